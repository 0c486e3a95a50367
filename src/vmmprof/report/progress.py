# SPDX-License-Identifier: MIT
"""Progress of a run: one live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import sys
import time
from typing import TextIO

# On a terminal the line is redrawn at most this often: drawing costs CPU time
# next to the measurement, and there is no thread that draws behind its back.
_REDRAW_SECONDS = 0.2
_PLAIN_SECONDS = 10.0
_WIDTH = 79


class ProgressLine:
    """Call it with progress; ``close`` leaves the terminal's line clean."""

    def __init__(self, stream: TextIO | None = None) -> None:
        # Without standard error (2>&-) there is nobody to show anything to.
        self._stream = stream or sys.stderr or io.StringIO()
        self._live = self._stream.isatty()
        self._last = float("-inf")

    def show(self, done: int, planned: int, seconds_left: float | None, doing: str) -> None:
        """Show ``done`` of ``planned`` cycles when the last showing is long enough ago."""
        now = time.monotonic()
        if now - self._last < (_REDRAW_SECONDS if self._live else _PLAIN_SECONDS):
            return
        self._last = now
        left = "" if seconds_left is None else f", about {format_seconds(seconds_left)} left"
        text = f"{doing}: {done} of {planned} cycles{left}"[:_WIDTH]
        if self._live:
            self._stream.write(f"\r{text:<{_WIDTH}}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the live line."""
        if self._live and self._last > float("-inf"):
            self._stream.write("\r" + " " * _WIDTH + "\r")
            self._stream.flush()


def format_seconds(seconds: float) -> str:
    """``75`` as ``1 min 15 s``."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
