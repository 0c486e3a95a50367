# SPDX-License-Identifier: MIT
"""Whatever keeps a file of a recording from being read, as one line of bad input."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from vmmprof.errors import UsageError


@contextmanager
def readable(path: Path, what: str | None = None) -> Iterator[None]:
    """UsageError, naming ``what`` (a file: its name) of the recording, where reading fails."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        recording = path.parent if what is None else path
        raise UsageError(
            f"{recording} is not a recording: its {what or path.name} cannot be read "
            f"({' '.join(str(error).split())})"
        ) from None


def is_folder(path: Path) -> bool:
    """Whether a folder is there; UsageError where the system does not let that be seen."""
    try:
        return path.is_dir()
    except OSError as error:
        raise UsageError(f"{path} cannot be looked up: {error.strerror}") from None


def require_regular_files(path: Path, names: Iterable[str]) -> None:
    """UsageError when one of ``names`` in ``path`` is there and is no file: a FIFO never ends."""
    for name in names:
        with readable(path / name):
            try:
                mode = (path / name).stat().st_mode
            except FileNotFoundError:
                continue
        if not stat.S_ISREG(mode):
            raise UsageError(
                f"{path} is not a recording: its {name} is {_kind(mode)}; it must be a regular file"
            )


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for matches, words in kinds if matches(mode)), "a device")
