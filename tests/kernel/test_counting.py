# SPDX-License-Identifier: MIT
"""From counted calls to events: the correction, and what a method does not know."""

from __future__ import annotations

import dataclasses

import pytest

from vmmprof.kernel.counting import (
    Calibration,
    CountingLosses,
    CountingResult,
    UpdateCall,
)
from vmmprof.kernel.phases import iteration_histogram, update_groups
from vmmprof.kernel.symbols import ResolvedPath, Symbol
from vmmprof.kernel.update_path import Part
from vmmprof.recording.events import event_facts

CALIBRATION = Calibration(self_ns=100, leaf_ns=300, map_ns=400)
# Four iterations, each: 1000 ns of page tables with one flush of 50, 2000 of barrier, 3000 of TLB.
TRUE = {"duration_ns": 24_000, "pte_ns": 4_000, "barrier_ns": 8_000, "tlb_ns": 12_000}
CALL = UpdateCall(
    start_ns=1_000_000,
    duration_ns=24_000 + 100 + 4 * 400 + 12 * 300,
    pid=10,
    tid=11,
    caller=0xC0DE,
    maps=4,
    map_ns=24_000 + 4 * 100 + 12 * 300,
    runs=2,
    bytes=4 << 21,
    barriers=4,
    barrier_ns=8_000 + 4 * 100,
    invalidates=4,
    tlb_ns=12_000 + 4 * 100,
    page_flushes=4,
    page_flush_ns=200 + 4 * 100,
    syncs_in_map=8,
    sync_in_map_ns=20_000 + 8 * 100,
    leaves=12,
    leaves_in_map=12,
    status=0,
    failed_iteration=None,
    failed_status=None,
)


def _result(*calls: UpdateCall) -> CountingResult:
    path = ResolvedPath("nvidia", "1", {part: (Symbol(1, part.name, "nvidia"),) for part in Part})
    return CountingResult(
        "module", path, calls, CALIBRATION, CountingLosses(), False, {0xC0DE: "commit"}
    )


def test_the_probes_cost_is_taken_out() -> None:
    assert CALIBRATION.corrected(CALL) == {**TRUE, "page_flush_ns": 200}


def test_a_correction_never_goes_below_zero() -> None:
    free = dataclasses.replace(CALL, barrier_ns=10, duration_ns=50)
    corrected = CALIBRATION.corrected(free)
    assert corrected["barrier_ns"] == corrected["duration_ns"] == 0


def test_events_keep_raw_times_and_leave_the_unknown_null() -> None:
    events = _result(CALL).events()
    (row,) = events.to_pylist()
    assert row["barrier_ns"] == 8_000
    assert row["barrier_raw_ns"] == 8_400
    assert row["pte_raw_ns"] == CALL.map_ns - CALL.sync_in_map_ns
    assert (row["iterations"], row["runs"], row["bytes"]) == (4, 2, 8 << 20)
    assert row["direction"] == "commit"
    assert row["failed_iteration"] is None and row["phase"] is None and row["stack"] is None
    assert event_facts(events)["calibration"]["leaf_ns"] == 300


def test_groups_by_direction_and_size() -> None:
    other = dataclasses.replace(CALL, caller=1, status=0x51, bytes=2 << 20)
    frame = _result(CALL, CALL, other).events().to_pandas()
    commit, unknown = update_groups(frame)
    assert (commit.direction, commit.bytes, commit.calls) == ("commit", 8 << 20, 2)
    assert commit.us_per_iteration == pytest.approx(6.0)
    assert commit.sync.value == pytest.approx(20 / 24)
    assert (unknown.direction, unknown.failed) == ("unknown", 1)


def test_histogram_bins_are_powers_of_two() -> None:
    calls = [dataclasses.replace(CALL, maps=maps) for maps in (1, 2, 3, 4, 512, 513)]
    histogram = iteration_histogram(_result(*calls).events().to_pandas())
    assert histogram == {1: 1, 2: 2, 4: 1, 512: 2}
