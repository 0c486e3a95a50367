# SPDX-License-Identifier: MIT
"""A system-wide lock that keeps two measurements apart and says who holds it.

It is a flock on a file that anybody may open, so it goes when its holder dies,
however that happens. The holder is found through /proc/locks: no content of
the file needs to be trusted or cleaned up.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmmprof.errors import NothingMeasuredError

LOCK_PATH = Path("/run/lock/vmmprof.lock")
_FALLBACK_PATH = Path("/tmp/vmmprof.lock")


def _open(path: Path) -> int:
    # Without O_CREAT first: where fs.protected_regular is set, O_CREAT on
    # another user's file in a sticky folder is refused, plain opening is not.
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def holder(path: Path) -> str:
    """Who holds the lock on ``path``, for a person to read."""
    inode = path.stat().st_ino
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return _process(fields[4])
    return "a process that cannot be seen from here"


def _process(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return f"PID {pid}, which cannot be seen from here"
    return f"PID {pid} ({words.decode(errors='replace').strip()})"


@contextmanager
def measurement_lock(path: Path | None = None) -> Iterator[None]:
    """Hold the lock while inside; NothingMeasuredError, naming the holder, when it is taken."""
    if path is None:
        path = LOCK_PATH if LOCK_PATH.parent.is_dir() else _FALLBACK_PATH
    try:
        descriptor = _open(path)
    except OSError as error:
        raise NothingMeasuredError(
            f"the measurement lock {path} cannot be opened: {error.strerror}; "
            "--no-lock measures without it"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise NothingMeasuredError(
                f"another measurement is running: {holder(path)} holds {path}; wait for it, "
                "or use --no-lock and live with the disturbance"
            ) from None
        yield
    finally:
        os.close(descriptor)
