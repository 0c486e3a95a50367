# SPDX-License-Identifier: MIT
"""Progress: one live line on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import io

import pytest

from vmmprof.report import progress
from vmmprof.report.progress import ProgressLine, format_seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(progress.time, "monotonic", lambda: fake.now_s)
    return fake


def test_a_terminal_has_one_line_that_is_redrawn_and_left_clean(clock: Clock) -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show(10, 100, 75.0, "measuring")
    clock.now_s += 0.1
    line.show(11, 100, 74.0, "measuring")
    clock.now_s += 0.2
    line.show(12, 100, None, "measuring")
    line.close()
    text = terminal.getvalue()
    assert "\n" not in text
    drawn = [part.rstrip() for part in text.split("\r")]
    assert drawn == [
        "",
        "measuring: 10 of 100 cycles, about 1 min 15 s left",
        "measuring: 12 of 100 cycles",
        "",
        "",
    ]
    assert max(len(part) for part in text.split("\r")) < 80


def test_elsewhere_plain_lines_come_seldom(clock: Clock) -> None:
    pipe = io.StringIO()
    line = ProgressLine(pipe)
    for done in range(30):
        line.show(done, 30, 1.0, "measuring")
        clock.now_s += 1.0
    line.close()
    assert pipe.getvalue().splitlines() == [
        f"measuring: {done} of 30 cycles, about 1 s left" for done in (0, 10, 20)
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3725, "62 min 05 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
