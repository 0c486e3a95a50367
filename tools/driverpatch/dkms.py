# SPDX-License-Identifier: MIT
"""The DKMS side of an installation.

DKMS builds its source tree again for every new kernel, and it does not replace
a module of the same version on its own. So the change is made where DKMS reads:
the series goes into the source tree as PATCH entries, and the modules that DKMS
keeps for the current kernel are replaced by ours. A new kernel then gets
patched modules by `dkms autoinstall`, and taking the files back undoes it all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverpatch.series import Patch
from driverpatch.system import System, stem_of
from driverpatch.tree import TURING_FILE

_CONF_HEADER = "# Added by vmmprof's tools/driver; 'driver revert' removes it."


@dataclass(frozen=True)
class DkmsTree:
    """A source tree that DKMS knows, and the modules it has built for this kernel."""

    name: str
    version: str
    source: Path
    built: Mapping[str, Path]
    """File name without suffix to the file that DKMS keeps (possibly compressed)."""

    @property
    def conf(self) -> Path:
        return self.source / "dkms.conf"

    @property
    def is_full_source(self) -> bool:
        """Whether patches can reach the resource manager; else it is there as a binary."""
        return (self.source / TURING_FILE).is_file()

    def conf_with(self, patches: list[Patch]) -> str:
        """dkms.conf with the series added as PATCH entries."""
        entries = "".join(f'PATCH+=("{patch.file.name}")\n' for patch in patches)
        return f"{self.conf.read_text().rstrip()}\n\n{_CONF_HEADER}\n{entries}"


def find_dkms(system: System, version: str) -> DkmsTree | None:
    """The DKMS tree of the driver at this version; None when DKMS does not manage it."""
    for tree in sorted((system.root / "var/lib/dkms").glob(f"nvidia*/{version}")):
        source = _under_root(tree / "source", system.root)
        conf = source / "dkms.conf"
        if not conf.is_file() or not re.search(r"BUILT_MODULE_NAME\S*=\S*nvidia", conf.read_text()):
            continue
        return DkmsTree(tree.parent.name, version, source, _built_modules(tree, system))
    return None


def _under_root(source: Path, root: Path) -> Path:
    """Where DKMS's `source` link points; an absolute target is meant under the root."""
    if not source.is_symlink():
        return source
    target = source.readlink()
    if target.is_absolute() and not target.is_relative_to(root):
        return root / str(target).lstrip("/")
    return source.resolve()


def _built_modules(tree: Path, system: System) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(tree.glob(f"{system.kernel}/*/module/nvidia*.ko*")):
        found[stem_of(file)] = file
    return found
