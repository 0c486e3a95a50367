# SPDX-License-Identifier: MIT
"""A whole traced experiment: rounds in turn, events in the recording, shares in its report."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from rich.console import Console

from tests.fake_driver import FakeDriver
from vmmprof.drivers.protocol import Batch
from vmmprof.experiment.runner import Options
from vmmprof.experiment.session import Request, measure
from vmmprof.experiment.traced import TracedDriver
from vmmprof.recording.events import UPDATE, event_facts, events_table, read_events, write_events
from vmmprof.recording.reader import load
from vmmprof.recording.schema import Flag
from vmmprof.report.trace import print_traced_recording
from vmmprof.sizes import MIB

CYCLE_NS = 40_000
CREATE_NS = 10_000
UPDATE_NS = 6_000


class _ClockedDriver(FakeDriver):
    """Cycles that begin when they say they do; the fake one's times are kept."""

    def __init__(self) -> None:
        super().__init__(time_ns=lambda condition, n: CREATE_NS)
        self.traced_starts: list[int] = []
        self.tracing = False

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        batch = super().run(visits)
        first_ns = time.monotonic_ns()
        batch.start_ns[:] = first_ns + CYCLE_NS * np.arange(len(batch))
        while time.monotonic_ns() < first_ns + CYCLE_NS * len(batch):
            pass
        if self.tracing:
            self.traced_starts += batch.start_ns.tolist()
        return batch


class _Probe:
    """One update call in every create of a traced cycle, half of it synchronisation."""

    def __init__(self, driver: _ClockedDriver) -> None:
        self._driver = driver

    def start(self) -> None:
        self._driver.tracing = True

    def stop(self) -> None:
        self._driver.tracing = False

    def poll(self) -> None:
        pass

    def result(self) -> _Probe:
        return self

    def events(self) -> pa.Table:
        # Create is the second call; the first one takes 1000 ns.
        starts = [start + 1_000 + 500 for start in self._driver.traced_starts]
        columns = {
            "kind": [UPDATE] * len(starts),
            "time_ns": starts,
            "pid": [1] * len(starts),
            "tid": [1] * len(starts),
            "direction": ["commit"] * len(starts),
            "iterations": [4] * len(starts),
            "runs": [1] * len(starts),
            "bytes": [8 * MIB] * len(starts),
            "duration_ns": [UPDATE_NS] * len(starts),
            "pte_ns": [UPDATE_NS // 2] * len(starts),
            "barriers": [4] * len(starts),
            "barrier_ns": [UPDATE_NS // 4] * len(starts),
            "invalidates": [4] * len(starts),
            "tlb_ns": [UPDATE_NS // 4] * len(starts),
            "status": [0] * len(starts),
        }
        facts = {
            "method": "fake",
            "module": "nvidia",
            "driver_reloaded": False,
            "losses": {"records_lost": 0},
            "calibration": {"self_ns": 1, "leaf_ns": 2, "map_ns": 3},
        }
        return events_table(columns, facts)


@pytest.fixture
def traced_recording(tmp_path: Path) -> Path:
    driver = _ClockedDriver()
    wrapped, traced = TracedDriver.wrapping(driver, _Probe(driver))
    request = Request(
        sizes=(8 * MIB,),
        placements=None,
        scatter=False,
        options=Options(repeats=6, warmup=2),
        pin="none",
        lock=False,
        device=0,
        output=tmp_path / "traced.vmmprof",
        command=["vmmprof", "sweep", "--trace"],
        facts={},
    )
    result = measure(wrapped, request, lambda plan: None, lambda progress: None)
    write_events(result.path, traced.events())
    return result.path


def test_rounds_are_traced_in_turn(traced_recording: Path) -> None:
    events = read_events(traced_recording)
    # eight rounds, the warm-up's two included, of three placements
    assert events.num_rows == 4 * 3
    windows = event_facts(events)["traced_windows_ns"]
    assert len(windows) == 4
    assert all(start < end for start, end in windows)


def test_traced_cycles_are_flagged(traced_recording: Path) -> None:
    recording = load(str(traced_recording))
    traced = (recording.samples["flags"].to_numpy() & int(Flag.TRACED)) != 0
    windows = event_facts(read_events(traced_recording))["traced_windows_ns"]
    begun = recording.samples["start_ns"].to_numpy()[traced]
    assert traced.sum() == len(traced) / 2
    assert all(any(start <= at < end for start, end in windows) for at in begun)


def test_the_report_shows_the_path_s_share(traced_recording: Path) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_traced_recording(load(str(traced_recording)), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    (create,) = [line for line in text.splitlines() if line.startswith("domain:0 8 MiB    create")]
    assert "60.0 (60.0-60.0)" in create
    assert "50.0 (50.0-50.0)" in create
    (release,) = [line for line in text.splitlines() if line.startswith("domain:0 8 MiB   release")]
    assert "0.0 (0.0-0.0)" in release
    assert "tracing made the cycles of domain:0 1.000 times as long" in text


def test_an_untraced_recording_shows_nothing(traced_recording: Path) -> None:
    (traced_recording / "events.parquet").unlink()
    console = Console(file=io.StringIO(), width=80)
    print_traced_recording(load(str(traced_recording)), console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ""
