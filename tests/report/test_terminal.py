# SPDX-License-Identifier: MIT
"""The terminal report, by snapshot at 80 and 140 columns.

After a wanted change: VMMPROF_UPDATE_SNAPSHOTS=1 pytest tests/report, then
read the difference.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from vmmprof.recording.reader import Recording
from vmmprof.report.terminal import print_recording

from .recordings import RECORDINGS, measured, modelled, plain_only

SNAPSHOTS = Path(__file__).parent / "snapshots"


def printed(recording: Recording, width: int, *, calls: bool = True, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, force_terminal=colour)
    print_recording(recording, calls=calls, console=console)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", RECORDINGS)
def test_snapshot(name: str, width: int) -> None:
    text = printed(RECORDINGS[name](), width)
    path = SNAPSHOTS / f"{name}-{width}.txt"
    if os.environ.get("VMMPROF_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", RECORDINGS)
def test_fits_the_width_in_plain_ascii(name: str, width: int) -> None:
    text = printed(RECORDINGS[name](), width)
    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "..." not in text, "a cut cell hides a number"


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize(("rounds", "has_p99"), [(999, False), (1000, True)])
def test_p99_is_shown_from_a_thousand_samples_on(width: int, rounds: int, has_p99: bool) -> None:
    text = printed(plain_only(rounds), width)
    head = next(line for line in text.splitlines() if "P90" in line)
    assert ("P99" in head) == has_p99
    assert max(len(line) for line in text.splitlines()) <= width


def test_every_column_of_times_has_its_unit() -> None:
    lines = printed(measured(), 80).splitlines()
    heads = [(lines[at - 2], lines[at - 1]) for at, line in enumerate(lines) if line[:3] == "---"]
    assert len(heads) == 4, "a table of sizes and one of calls for each placement"
    for names, units in heads:
        times = names.replace("extra over plain", "extra").split()
        assert units.split().count("us") == len(times)


def test_a_recording_without_samples_says_so() -> None:
    full = measured()
    empty = Recording(full.path, full.samples.iloc[:0], full.environment, full.operation)
    assert "\nno samples\n" in printed(empty, 80)


def test_model_stands_in_every_title() -> None:
    text = printed(modelled(), 80, calls=False)
    assert text.startswith("MODEL model:b300")
    assert text.count("(MODEL)") == 2
    assert "MODEL" not in printed(measured(), 80)


def test_threshold_line() -> None:
    text = " ".join(printed(measured(), 80).split())
    assert "threshold: between 32 and 34 MiB (step " in text
    assert "] us/MiB of extra cost)" in text
    assert "threshold: none found (plain is the control)" in printed(plain_only(), 80)


def test_what_was_left_out_and_measured_twice_is_said() -> None:
    text = printed(measured(), 140)
    assert "discarded, wrong memory read back: 64 MiB 1" in text
    assert "flagged as outliers (kept): " in text
    assert "measured twice at 34 MiB: attempt 1 P50 " in text
    assert "note: measured twice: domain:0 34 MiB: first and second half differ" in text


def test_colour_changes_no_word() -> None:
    coloured = printed(measured(), 80, colour=True)
    assert "\x1b[" in coloured
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == printed(measured(), 80).split()


def test_a_run_that_was_killed_is_not_said_to_run() -> None:
    recording = measured()
    recording.environment["outcome"] = "running"
    stream = io.StringIO()
    print_recording(recording, console=Console(file=stream, width=80))
    assert "note: the run was killed, or is not at its end yet" in stream.getvalue()
