# SPDX-License-Identifier: MIT
"""Apply an arm of the series to a copy of a tree, and prove what came out."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from driverpatch.check import CheckResult, arm_name, check
from driverpatch.errors import DriverError, DriverUsageError, ExitCode
from driverpatch.series import Known, Patch, Series
from driverpatch.tree import Tree, UpdatePath

MARKER = "vmmprof-patch.json"
# Results of an earlier build do not belong into the copy.
_NOT_COPIED = shutil.ignore_patterns(".git", "_out", "*.o", "*.ko", "*.mod", "*.cmd", MARKER)


class CannotPatchError(DriverError):
    """The tree is not a stock one of a known class; carries check's exit code."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(f"driver {result.version}: {result.message}; 'driver check' says more")
        self.exit_code = result.code


@dataclass(frozen=True)
class Patched:
    """A tree with an arm applied. Its marker file says the same to later commands."""

    root: Path
    version: str
    arm: str
    update_class: str
    digest: str

    def save(self) -> None:
        text = json.dumps(
            {
                "version": self.version,
                "arm": self.arm,
                "update_class": self.update_class,
                "digest": self.digest,
            },
            indent=2,
        )
        (self.root / MARKER).write_text(text + "\n")

    @classmethod
    def load(cls, root: Path) -> Patched:
        """Read the marker of a tree that `patch` made. Raises DriverUsageError without one."""
        marker = root / MARKER
        if not marker.is_file():
            raise DriverUsageError(f"{root}: not a tree that 'driver patch --into' made")
        entry = json.loads(marker.read_text())
        return cls(root, entry["version"], entry["arm"], entry["update_class"], entry["digest"])


def _patch_command() -> str:
    found = shutil.which("patch")
    if found is None:
        raise DriverError("no 'patch' program; install the package patch")
    return found


def apply_patches(patches: list[Patch], root: Path) -> None:
    """Apply the patches in order, without fuzz. Raises DriverError at the first refusal."""
    for patch in patches:
        command = [_patch_command(), "--force", "--no-backup-if-mismatch", "-F0", "-p1"]
        done = subprocess.run(
            [*command, "-d", str(root), "-i", str(patch.file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise DriverError(f"{patch.file.name} does not apply: {said[-1] if said else ''}")


def _copy_one(tree: Tree, path: UpdatePath, into: Path) -> None:
    target = into / path.file
    target.parent.mkdir(parents=True)
    shutil.copy2(tree.root / path.file, target)


def _prove(root: Path, series: Series, known: Known, arm: str) -> str:
    """Compare the patched functions with what the class must give; their update digest."""
    path = Tree(root).update_path()
    if path is None or path.increase is None:
        raise DriverError("the patched file has lost the functions that it should have")
    got = (path.update.digest, path.increase.digest)
    wanted = series.expected_digests(known, arm)
    if got != wanted:
        raise DriverError(f"the patched functions are {got}; class and arm must give {wanted}")
    return got[0]


def _patchable(tree: Tree, series: Series) -> tuple[UpdatePath, Known]:
    """The tree's update path as the series knows it. Raises CannotPatchError."""
    result = check(tree, series)
    path = tree.update_path()
    if result.code is not ExitCode.OK or path is None:
        raise CannotPatchError(result)
    known = series.recognise(path)
    assert known is not None
    return path, known


def patch_update_file(tree: Tree, into: Path, arm: str, series: Series) -> Patched:
    """Copy the file with the update path below `into`, apply `arm` to it and prove it.

    Raises CannotPatchError when check does not say 'patchable'.
    """
    path, known = _patchable(tree, series)
    _copy_one(tree, path, into)
    apply_patches(series.patches_of(arm), into)
    digest = _prove(into, series, known, arm)
    return Patched(into, tree.version, arm, known.update.id, digest)


def patch_tree(tree: Tree, into: Path, arm: str, series: Series, *, dry_run: bool) -> Patched:
    """Copy `tree` to `into` with `arm` applied; `into` must not exist or be empty.

    Everything is tried on the one file first, so that a refusal leaves nothing
    behind. Raises CannotPatchError when check does not say 'patchable'.
    """
    _, known = _patchable(tree, series)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise DriverUsageError(f"{into}: exists and is not empty; name a new directory")
    if into.resolve().is_relative_to(tree.root.resolve()):
        raise DriverUsageError(f"{into}: lies inside the source tree; name a directory outside it")
    with tempfile.TemporaryDirectory(prefix="vmmprof-patch-") as scratch:
        patched = replace(patch_update_file(tree, Path(scratch), arm, series), root=into)
    if dry_run:
        return patched
    try:
        shutil.copytree(tree.root, into, symlinks=True, ignore=_NOT_COPIED, dirs_exist_ok=True)
        apply_patches(series.patches_of(arm), into)
        _prove(into, series, known, arm)
        patched.save()
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return patched


def describe(patched: Patched) -> str:
    return (
        f"driver {patched.version} with {arm_name(patched.arm)} (class {patched.update_class}) "
        f"in {patched.root}"
    )
