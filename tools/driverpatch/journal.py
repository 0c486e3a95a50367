# SPDX-License-Identifier: MIT
"""File replacements that can always be taken back, byte for byte.

Write-ahead: the former content is backed up and the manifest names the change
on disk before the change is made, and each change is one rename. Whatever the
moment at which the process dies, the manifest then knows every file that may
have changed, and each of those has either its old or its new content.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from driverpatch.building import sha256_of
from driverpatch.errors import DriverError

INSTALLING = "installing"
INSTALLED = "installed"
_TEMPORARY_PREFIX = ".vmmprof-new-"


@dataclass(frozen=True)
class Change:
    """One file: before and after are SHA-256, None where there is no file."""

    path: str
    """Absolute, as seen from the root."""
    before: str | None
    after: str | None
    backup: str | None
    """Name below the backup directory."""


@dataclass
class Manifest:
    """What was done, kept beside the backups; facts is what status needs to know."""

    state: str
    facts: dict[str, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


def _fsync_dir(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_durably(target: Path, content: bytes) -> None:
    temporary = target.with_name(_TEMPORARY_PREFIX + target.name)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    _fsync_dir(target.parent)


def _place(source: Path, target: Path) -> None:
    """Copy `source` over `target` with its mode and times, atomically."""
    temporary = target.with_name(_TEMPORARY_PREFIX + target.name)
    shutil.copy2(source, temporary)
    if os.geteuid() == 0:
        owner = source.stat()
        os.chown(temporary, owner.st_uid, owner.st_gid)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    _fsync_dir(target.parent)


class Journal:
    """The manifest of one root and the changes made through it."""

    def __init__(self, root: Path, directory: Path) -> None:
        self._root = root
        self._directory = directory
        self._backups = directory / "backup"

    @property
    def path(self) -> Path:
        return self._directory / "manifest.json"

    def load(self) -> Manifest | None:
        if not self.path.is_file():
            return None
        data = json.loads(self.path.read_text())
        changes = [Change(**entry) for entry in data["changes"]]
        return Manifest(data["state"], data["facts"], changes)

    def save(self, manifest: Manifest) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        _write_durably(self.path, (json.dumps(asdict(manifest), indent=2) + "\n").encode())

    def _real(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def replace(self, manifest: Manifest, target: Path, source: Path | None) -> None:
        """Make `target` (under the root) a copy of `source`; None removes it."""
        path = "/" + str(target.relative_to(self._root))
        if any(change.path == path for change in manifest.changes):
            raise DriverError(f"{path}: would be changed twice in one transaction")
        if target.is_symlink():
            raise DriverError(f"{path}: is a symbolic link, which could not be restored as such")
        before = sha256_of(target) if target.is_file() else None
        backup = None
        if before is not None:
            self._backups.mkdir(parents=True, exist_ok=True)
            backup = f"{len(manifest.changes)}-{target.name}"
            _place(target, self._backups / backup)
        after = sha256_of(source) if source is not None else None
        manifest.changes.append(Change(path, before, after, backup))
        self.save(manifest)
        if source is not None:
            self._make_parent(manifest, target)
            _place(source, target)
        elif before is not None:
            target.unlink()
            _fsync_dir(target.parent)

    def _make_parent(self, manifest: Manifest, target: Path) -> None:
        """Create missing directories, noting them first, so that revert can remove them."""
        missing = [parent for parent in target.parents if not parent.exists()]
        if not missing:
            return
        noted = manifest.facts.setdefault("directories", [])
        noted += ["/" + str(directory.relative_to(self._root)) for directory in reversed(missing)]
        self.save(manifest)
        target.parent.mkdir(parents=True, exist_ok=True)

    def foreign(self, manifest: Manifest) -> list[str]:
        """Files that have neither their old nor their new content: changed by others since."""
        return [
            change.path
            for change in manifest.changes
            if self._current(change) not in (change.before, change.after)
        ]

    def _current(self, change: Change) -> str | None:
        file = self._real(change.path)
        return sha256_of(file) if file.is_file() else None

    def restore(self, manifest: Manifest, keep: set[str]) -> Iterator[str]:
        """Take all changes back, last first, except files in `keep`; yields what was restored."""
        for change in reversed(manifest.changes):
            target = self._real(change.path)
            temporary = target.with_name(_TEMPORARY_PREFIX + target.name)
            temporary.unlink(missing_ok=True)
            if change.path in keep or self._current(change) == change.before:
                continue
            if change.backup is None:
                target.unlink(missing_ok=True)
            else:
                backup = self._backups / change.backup
                if sha256_of(backup) != change.before:
                    raise DriverError(f"{backup}: is damaged; restore {change.path} by other means")
                target.parent.mkdir(parents=True, exist_ok=True)
                _place(backup, target)
            yield change.path
        for directory in reversed(manifest.facts.get("directories", [])):
            real = self._real(directory)
            if real.is_dir() and not any(real.iterdir()):
                real.rmdir()

    def forget(self) -> None:
        """Remove the backups and, last of all, the manifest."""
        shutil.rmtree(self._backups, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        (self._directory / (_TEMPORARY_PREFIX + self.path.name)).unlink(missing_ok=True)
        if self._directory.is_dir() and not any(self._directory.iterdir()):
            self._directory.rmdir()
