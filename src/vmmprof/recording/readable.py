# SPDX-License-Identifier: MIT
"""Whatever Arrow or the system says of an unreadable file, as one line of bad input."""

from __future__ import annotations

from collections.abc import Iterator
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
