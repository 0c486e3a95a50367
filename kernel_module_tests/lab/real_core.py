#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build the lab's cores around the object of a driver tree that holds the update path.

For each arm the one file is compiled with the flags of the tree's own makefile and linked as the
driver's core is: by its linker script, without what is never reached. The tree is only read.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from driverpatch.errors import DriverError  # noqa: E402
from driverpatch.patching import patch_update_file  # noqa: E402
from driverpatch.series import Series  # noqa: E402
from driverpatch.tree import Tree  # noqa: E402

ARMS = ("a", "b", "ab")
# What the module around the core, or the kernel, provides.
PROVIDED = re.compile(r"mock_(now_ns|sleep_us|reached)|mem(cpy|set|move|cmp)|__x86_\w+")
MAKE_VARIABLES = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS", "OUT")
RELOCATION_OF_A_CALL = "R_X86_64_PLT32"


def build(tree: Tree, out: Path) -> None:
    """Write core_real_FLAVOUR.o_shipped for stock and every arm of the series."""
    path = tree.update_path()
    if path is None:
        raise DriverError(f"{tree.root}: has no static BAR1 update path")
    flags = _tree_flags(tree)
    with tempfile.TemporaryDirectory(prefix="vmmprof-real-core-") as folder:
        scratch = Path(folder)
        around = [
            _compiled(tree, flags, HERE / "real_core.c", scratch / "around.o"),
            _compiled(tree, flags, HERE / "mock_path.c", scratch / "path.o"),
        ]
        sources = {"stock": tree.root / path.file}
        for arm in ARMS:
            (scratch / arm).mkdir()
            patch_update_file(tree, scratch / arm, arm, Series.load())
            sources[arm] = scratch / arm / path.file
        for flavour, source in sources.items():
            real = _compiled(tree, flags, source, scratch / f"{flavour}.o")
            linked = _linked(tree, [real, *around], scratch / f"{flavour}-linked.o")
            stubs = _stubs(tree, flags, linked, scratch / f"{flavour}-stubs.c")
            _run(["ld", "-r", linked, stubs, "-o", out / f"core_real_{flavour}.o_shipped"])


def _run(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Output of a command; DriverError with its first error."""
    # The make that runs this has variables of its own, which are none of the tree's.
    environment = {name: value for name, value in os.environ.items() if name not in MAKE_VARIABLES}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        errors = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
        raise DriverError(f"{command[0]} failed: {(errors or ['no message'])[0]}")
    return done.stdout


def _rm_folder(tree: Tree) -> Path:
    return tree.root / "src/nvidia"


def _tree_flags(tree: Tree) -> list[str]:
    """Compiler and flags, as the tree's makefile has them for its C files."""
    rule = "print-flags: ; $(info $(CC) $(CFLAGS) $(CC_ONLY_CFLAGS)) @:"
    printed = _run(["make", "-s", "-C", _rm_folder(tree), "--eval", rule, "print-flags"])
    return [*shlex.split(printed), f"-I{HERE}", _dma_parameters(tree)]


def _dma_parameters(tree: Tree) -> str:
    """The mapping call's parameters in this tree, each as wide as a register."""
    parameters = ", ".join(f"uint64_t {name}" for name in tree.dma_update_parameters())
    return f"-DDMA_PARAMETERS={parameters}"


def _compiled(tree: Tree, flags: list[str], source: Path, target: Path) -> Path:
    # Include paths of the tree are relative to its resource manager.
    _run([*flags, "-c", source, "-o", target], cwd=_rm_folder(tree))
    return target


def _linked(tree: Tree, objects: list[Path], target: Path) -> Path:
    script = _rm_folder(tree) / "nv-kernel.ld"
    roots = ["--undefined=mock_run", "--undefined=mock_state_bytes"]
    _run(["ld", "-r", "--gc-sections", *roots, "-T", script, *objects, "-o", target])
    return target


def _stubs(tree: Tree, flags: list[str], linked: Path, source: Path) -> Path:
    """Functions that say that they were called, for all that nobody provides.

    Some belong to parts that the linker has taken out; it keeps their names all the same.
    """
    undefined = [line.split()[-1] for line in _run(["nm", "-u", linked]).splitlines()]
    missing = [name for name in undefined if not PROVIDED.fullmatch(name)]
    relocations = _run(["readelf", "-rW", linked]).splitlines()
    for name in missing:
        kinds = {line.split()[2] for line in relocations if name in line.split()}
        if not kinds <= {RELOCATION_OF_A_CALL}:
            raise DriverError(f"{name} is no function that is called; the lab has to provide it")
    text = "unsigned long mock_reached(const char *function);\n" + "".join(
        f"unsigned long {name}(void);\n"
        f'unsigned long {name}(void) {{ return mock_reached("{name}"); }}\n'
        for name in missing
    )
    source.write_text(text)
    return _compiled(tree, flags, source, source.with_suffix(".o"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a driver source tree")
    parser.add_argument("out", type=Path, help="folder for core_real_FLAVOUR.o_shipped")
    options = parser.parse_args()
    try:
        build(Tree.at(options.tree.resolve()), options.out.resolve())
    except DriverError as error:
        print(f"real_core: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
