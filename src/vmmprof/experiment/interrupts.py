# SPDX-License-Identifier: MIT
"""SIGINT, SIGTERM and SIGHUP end a run between two cycles instead of in one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While inside, the first of these signals calls ``on_signal`` and is remembered.

    A second one meets the handlers from before, so that a user who presses
    Ctrl-C twice is not kept waiting. A signal that is ignored stays so (nohup).
    """

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal
        self._previous: dict[int, Any] = {}
        self.received: str | None = None

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()
        self._on_signal()

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)
