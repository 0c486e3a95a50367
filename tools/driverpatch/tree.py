# SPDX-License-Identifier: MIT
"""A driver source tree: where its static BAR1 update path is and what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from driverpatch.errors import DriverError, DriverUsageError
from driverpatch.functions import Function, called_names, find_functions

BUS_DIR = Path("src/nvidia/src/kernel/gpu/bus")
TURING_FILE = BUS_DIR / "arch/turing/kern_bus_tu102.c"
_UPDATE_NAME = re.compile(r"_?kbusUpdateStaticBar1VAMapping_(\w+)")
_DMA_MACRO = re.compile(r"#define\s+dmaUpdateVASpace_HAL\(([^)]*)\)")
_VERSION = re.compile(r"^NVIDIA_VERSION\s*:?=\s*(\S+)", re.MULTILINE)
_VERSION_FALLBACK = re.compile(r'#define\s+NV_VERSION_STRING\s+"(\S+)"')


def _binaries(root: Path) -> list[Path]:
    """The resource manager as NVIDIA and Debian ship it to be linked on the user's machine."""
    return list(root.glob("**/nv-kernel.o_binary"))


@dataclass(frozen=True)
class UpdatePath:
    """The functions under study, cut out of one C file of a tree."""

    file: Path
    """Relative to the tree."""
    source: str
    update: Function
    increase: Function | None
    decrease: Function | None
    helpers: tuple[Function, ...]
    """Static functions of the same file that the three call, callees first."""
    has_start_offset: bool
    """Whether static BAR1 may begin elsewhere than at 0 in this driver."""

    @property
    def has_page_loop(self) -> bool:
        """Whether there is a loop to map from; loop and call may be in different functions."""
        text = " ".join(body.normalised for body in (self.update, *self.helpers))
        loops = re.search(r"\b(for|while|do)\b", text) is not None
        return loops and "dmaUpdateVASpace" in text


@dataclass(frozen=True)
class Tree:
    """A checked-out or unpacked open-gpu-kernel-modules source tree."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Tree:
        if not root.is_dir():
            raise DriverUsageError(f"{root}: no such directory; name a driver source tree")
        tree = cls(root)
        if not (root / "src/nvidia").is_dir():
            what = (
                "has the resource manager as a binary"
                if _binaries(root)
                else "holds something else"
            )
            raise DriverUsageError(
                f"{root}: no src/nvidia below it: it {what}; the source of the open kernel "
                "modules is NVIDIA/open-gpu-kernel-modules, or a distribution's source package"
            )
        return tree

    @property
    def version(self) -> str:
        """The driver version that the tree states, 'unknown' when it states none."""
        version_mk = self.root / "version.mk"
        if version_mk.is_file() and (match := _VERSION.search(version_mk.read_text())):
            return match.group(1)
        header = self.root / "src/common/inc/nvUnixVersion.h"
        if header.is_file() and (match := _VERSION_FALLBACK.search(header.read_text())):
            return match.group(1)
        return "unknown"

    def update_path(self) -> UpdatePath | None:
        """The update path, wherever under the bus directory it is; None: there is none.

        Raises DriverError when the tree cannot be read or is ambiguous.
        """
        candidates = []
        offset = self._has_start_offset()
        for path in sorted((self.root / BUS_DIR).rglob("*.c")):
            source = path.read_text(encoding="utf-8", errors="surrogateescape")
            if not _UPDATE_NAME.search(source):
                continue
            functions = find_functions(source)
            for name, function in functions.items():
                if (match := _UPDATE_NAME.fullmatch(name)) is not None:
                    file = path.relative_to(self.root)
                    candidates.append(
                        _cut(
                            file,
                            source,
                            functions,
                            function,
                            match.group(1),
                            has_start_offset=offset,
                        )
                    )
        if len(candidates) > 1:
            files = ", ".join(str(candidate.file) for candidate in candidates)
            raise DriverError(f"{self.root}: more than one update function ({files}); expected one")
        return candidates[0] if candidates else None

    def _has_start_offset(self) -> bool:
        header = self.root / "src/nvidia/generated/g_kern_bus_nvoc.h"
        return not header.is_file() or "startOffset" in header.read_text()

    def dma_update_parameters(self) -> list[str]:
        """Parameter names of dmaUpdateVASpace_HAL as this tree declares them."""
        header = self.root / "src/nvidia/generated/g_virt_mem_allocator_nvoc.h"
        if not header.is_file():
            raise DriverError(
                f"{header}: missing; the bench needs dmaUpdateVASpace_HAL's parameters"
            )
        match = _DMA_MACRO.search(header.read_text())
        if match is None:
            raise DriverError(f"{header}: declares no dmaUpdateVASpace_HAL macro")
        return [name.strip() for name in match.group(1).split(",")]


def _cut(
    file: Path,
    source: str,
    functions: dict[str, Function],
    update: Function,
    chip: str,
    *,
    has_start_offset: bool,
) -> UpdatePath:
    increase = functions.get(f"kbusIncreaseStaticBar1Refcount_{chip}")
    decrease = functions.get(f"kbusDecreaseStaticBar1Refcount_{chip}")
    roots = [f for f in (update, increase, decrease) if f is not None]
    helpers: list[Function] = []

    def add_callees(function: Function) -> None:
        for name in sorted(called_names(function)):
            callee = functions.get(name)
            if callee is None or callee in roots or callee in helpers or not callee.is_static:
                continue
            add_callees(callee)
            helpers.append(callee)

    for root in roots:
        add_callees(root)
    return UpdatePath(file, source, update, increase, decrease, tuple(helpers), has_start_offset)
