# SPDX-License-Identifier: MIT
"""A throw-away root that looks like a machine with a driver, for install and revert.

Its modules are small ELF files with a build-id of their own. modinfo and depmod
are the real ones; modprobe and update-initramfs are stand-ins on PATH that act
on the root.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from driverpatch.building import Build, record_build
from driverpatch.patching import Patched
from driverpatch.series import Patch, Series
from driverpatch.system import System
from driverpatch.tree import TURING_FILE

KERNEL = "9.9.9-test"
VERSION = "999.99.01"
NAMES = ("nvidia", "nvidia-uvm")
PROGRAMS = ("gcc", "ld", "modprobe", "modinfo", "depmod", "patch")

_MODULE_C = """
#define INFO(name, text) \\
    static const char name[] __attribute__((section(".modinfo"), used)) = text
INFO(i1, "name=%(symbol)s");
INFO(i2, "version=%(version)s");
INFO(i3, "vermagic=%(kernel)s SMP mod_unload ");
INFO(i4, "license=MIT");
int %(symbol)s_marker = %(marker)d;
"""

_UPDATE_INITRAMFS = """#!{python}
import sys
sys.path[:0] = {paths!r}
from tests.driver.machine import fake_update_initramfs
fake_update_initramfs(sys.argv)
"""

# Questions go to the real modprobe; what would touch the kernel does not.
_MODPROBE = """#!/bin/sh
case "$*" in *--show-depends*) exec {modprobe} "$@";; esac
exec {python} -c "
import sys
sys.path[:0] = {paths!r}
from tests.driver.machine import fake_modprobe
fake_modprobe(sys.argv)" "$@"
"""


def make_module(target: Path, name: str, marker: int) -> None:
    """Compile a small module file; another marker gives another build-id."""
    symbol = name.replace("-", "_")
    source = target.with_suffix(".c")
    fields = {"symbol": symbol, "version": VERSION, "kernel": KERNEL, "marker": marker}
    source.write_text(_MODULE_C % fields)
    intermediate = target.with_suffix(".o")
    subprocess.run(["gcc", "-c", "-o", intermediate, source], check=True)
    subprocess.run(["ld", "-r", "--build-id=sha1", "-o", target, intermediate], check=True)
    source.unlink()
    intermediate.unlink()


def make_initramfs(files: dict[str, bytes]) -> bytes:
    """An uncompressed archive as for microcode, then a compressed one with the files."""
    return _cpio({"early": b"microcode"}) + gzip.compress(_cpio(files), mtime=0)


def _cpio(files: dict[str, bytes]) -> bytes:
    archive = b""
    for name, content in [*files.items(), ("TRAILER!!!", b"")]:
        encoded = name.encode() + b"\0"
        fields = [0, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        archive += _padded(header + encoded) + _padded(content)
    return archive


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def fake_update_initramfs(arguments: list[str]) -> None:
    boot = Path(arguments[arguments.index("-b") + 1])
    system = System(boot.parent, arguments[arguments.index("-k") + 1])
    write_initramfs(system)


def write_initramfs(system: System) -> None:
    files = {}
    for name in NAMES:
        file = system.module_file(name)
        if file is not None:
            files[f"usr/lib/modules/{system.kernel}/{file.name}"] = file.read_bytes()
    image = system.root / "boot" / f"initrd.img-{system.kernel}"
    image.write_bytes(make_initramfs(files))


def fake_modprobe(arguments: list[str]) -> None:
    """modprobe NAME or modprobe -r NAME, on the root that MACHINE_ROOT names."""
    system = System(Path(os.environ["MACHINE_ROOT"]), KERNEL)
    name = arguments[-1]
    if os.environ.get("MODPROBE_FAILS") == name and "-r" not in arguments:
        sys.exit(f"modprobe: ERROR: could not insert '{name}': Key was rejected by service")
    set_loaded(system, name, loaded="-r" not in arguments)


def set_loaded(system: System, name: str, *, loaded: bool) -> None:
    """Make proc and sys say that the module is loaded from what lies on disk now."""
    table = system.root / "proc/modules"
    symbol = name.replace("-", "_")
    lines = [line for line in table.read_text().splitlines() if line.split()[0] != symbol]
    notes = system.root / "sys/module" / symbol / "notes"
    shutil.rmtree(notes.parent, ignore_errors=True)
    if loaded:
        lines.append(f"{symbol} 1 0 - Live 0x0")
        identity = bytes.fromhex(system.installed_build_id(name) or "")
        notes.mkdir(parents=True)
        note = struct.pack("<III", 4, len(identity), 3) + b"GNU\0" + identity
        (notes / ".note.gnu.build-id").write_bytes(note)
    table.write_text("".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class Machine:
    """The root, its system, a build that can be installed, and the series it came from."""

    system: System
    build: Build
    series: Series

    @property
    def root(self) -> Path:
        return self.system.root

    def snapshot(self) -> dict[str, str]:
        """Every file and directory with its content; the indexes of depmod by content too.

        The lock's directory and gzip's time stamps apart, nothing is left out.
        """
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = f"link {path.readlink()}"
            elif path.is_dir():
                found[name] = "directory"
            elif name.endswith(".bin"):
                found[name] = "index"
            else:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[name] = f"{path.stat().st_mode:o} {digest}"
        return found


def make_machine(
    where: Path, *, dkms: bool = True, compressed: bool = False, renamed: bool = False
) -> Machine:
    """A machine whose DKMS built the stock modules, with a copy in the initramfs.

    renamed: the files have other names than the modules, as Debian's have.
    """
    root = where / "root"
    for directory in ("proc", "sys/module", "boot", "var/lib", "usr/lib/x86_64-linux-gnu"):
        (root / directory).mkdir(parents=True)
    (root / "proc/modules").write_text("")
    (root / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}").touch()
    system = System(root, KERNEL)
    updates = system.modules_dir / ("updates/dkms" if dkms else "kernel/drivers/video")
    updates.mkdir(parents=True)
    for name in ("modules.order", "modules.builtin"):
        (system.modules_dir / name).touch()
    for marker, name in enumerate(NAMES):
        make_module(updates / f"{name}.ko", name, marker)
    if renamed:
        _rename_modules(root, updates)
    if dkms:
        _make_dkms_tree(root, updates)
    if compressed:
        for file in list(root.rglob("*.ko")):
            subprocess.run(["xz", "--check=crc32", file], check=True)
    system.depmod()
    write_initramfs(system)
    return Machine(system, _make_build(where), _make_series(where))


def _rename_modules(root: Path, updates: Path) -> None:
    conf = root / "etc/modprobe.d/nvidia.conf"
    conf.parent.mkdir(parents=True)
    lines = []
    for name in NAMES:
        other = name.replace("nvidia", "nvidia-current-open")
        (updates / f"{name}.ko").rename(updates / f"{other}.ko")
        lines.append(f"install {name} modprobe -i {other} $CMDLINE_OPTS\n")
    conf.write_text("".join(lines))


def _make_dkms_tree(root: Path, updates: Path) -> None:
    source = root / f"usr/src/nvidia-{VERSION}"
    (source / TURING_FILE).parent.mkdir(parents=True)
    (source / TURING_FILE).write_text("stock\n")
    (source / "dkms.conf").write_text(
        f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{VERSION}"\nAUTOINSTALL="yes"\n'
        'BUILT_MODULE_NAME[0]="nvidia"\nDEST_MODULE_LOCATION[0]="/updates/dkms"\n'
        'MAKE[0]="\'make\' nvidia.ko"\nCLEAN="true"\n'
    )
    (source / "Makefile").write_text(
        # The build-id follows the text that a patch changes.
        f"nvidia.ko: {TURING_FILE}\n"
        "\techo 'const char text[] = \"'`cat $<`'\";' > text.c\n"
        "\tgcc -c -o text.o text.c\n"
        "\tld -r --build-id=sha1 -o $@ text.o\n"
    )
    tree = root / f"var/lib/dkms/nvidia/{VERSION}"
    kept = tree / KERNEL / "x86_64/module"
    kept.mkdir(parents=True)
    (tree / "source").symlink_to(f"/usr/src/nvidia-{VERSION}")
    for file in updates.glob("*.ko"):
        shutil.copy2(file, kept / file.name)


def _make_build(where: Path) -> Build:
    tree = where / "built"
    (tree / "kernel-open").mkdir(parents=True)
    patched = Patched(tree, VERSION, "ab", "c6", "0" * 16)
    patched.save()
    for marker, name in enumerate(NAMES):
        make_module(tree / "kernel-open" / f"{name}.ko", name, marker + 100)
    return record_build(patched, KERNEL)


def _make_series(where: Path) -> Series:
    patch = where / "a-test.patch"
    patch.write_text(f"--- a/{TURING_FILE}\n+++ b/{TURING_FILE}\n@@ -1 +1 @@\n-stock\n+patched\n")
    return Series((Patch("a", patch, "test"),), {"ab": ("a",)}, (), ())


def put_stand_ins_on_path(where: Path, repository: Path) -> Path:
    """Write the stand-in programs; the directory to put first on PATH."""
    programs = where / "bin"
    programs.mkdir()
    paths = [str(repository), str(repository / "tools"), str(repository / "kernel_module_tests")]
    for name, text in (("update-initramfs", _UPDATE_INITRAMFS), ("modprobe", _MODPROBE)):
        (programs / name).write_text(
            text.format(python=sys.executable, paths=paths, modprobe=shutil.which("modprobe"))
        )
        (programs / name).chmod(0o755)
    return programs
