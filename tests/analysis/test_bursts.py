# SPDX-License-Identifier: MIT
"""Recordings of several workers: a burst is one observation, all cycles make the quantiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vmmprof.analysis.bursts import one_row_a_visit
from vmmprof.analysis.overview import overview
from vmmprof.analysis.remeasure import candidates
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import Level
from vmmprof.recording.schema import Flag
from vmmprof.sizes import MIB

ROUNDS, WORKERS, CYCLES = 24, 4, 25


def bursts(placement: str, shift_ns: float, seed: int, threads: int = WORKERS) -> pd.DataFrame:
    """Bursts whose level wanders from round to round far more than cycles differ in one."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(ROUNDS):
        level = 10_000 + 3_000 * np.random.default_rng(number).standard_normal() + shift_ns
        for thread in range(threads):
            totals = level + 20 * rng.standard_normal(CYCLES + 1)
            rows.append(
                pd.DataFrame(
                    {
                        "round": number,
                        "process": 0,
                        "thread": thread,
                        "device": 0,
                        "repeat": np.arange(CYCLES + 1),
                        # A cycle every 20 us.
                        "start_ns": number * 10**9 + 20_000 * np.arange(CYCLES + 1),
                        "total_ns": totals,
                        **{f"{call}_ns": totals / 7 for call in VMM_CYCLE.calls},
                        "flags": np.where(np.arange(CYCLES + 1) == 0, int(Flag.OUTSIDE_WINDOW), 0),
                    }
                )
            )
    return pd.concat(rows).assign(
        placement=placement,
        size_bytes=2 * MIB,
        scattered=False,
        attempt=1,
        processes=1,
        threads=threads,
        devices=1,
    )


@pytest.fixture
def recording() -> pd.DataFrame:
    parts = [
        bursts("device", 0, seed=1),
        bursts("compressible", 500, seed=2),
        bursts("device", -4_000, seed=3, threads=1),
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame.astype({"placement": "category"})


def test_levels_are_conditions_of_their_own(recording: pd.DataFrame) -> None:
    found = overview(recording, VMM_CYCLE, "total")
    assert [(p.name, p.headlines[0].n) for p in found] == [
        ("device (plain, the control)", ROUNDS * CYCLES),
        ("device (plain, the control), 4 threads", ROUNDS * WORKERS * CYCLES),
        ("compressible, 4 threads", ROUNDS * WORKERS * CYCLES),
    ]
    assert found[2].level == Level(threads=4)


def test_pairs_are_of_bursts_of_one_round_at_one_level(recording: pd.DataFrame) -> None:
    compressible = overview(recording, VMM_CYCLE, "total")[2].headlines[0]
    assert compressible.extra is not None and compressible.extra.n == ROUNDS
    # The rounds wander by 3000 ns; the pairs do not.
    assert compressible.extra.lo < 500 < compressible.extra.hi
    assert compressible.extra.hi - compressible.extra.lo < 20


def test_the_interval_knows_that_cycles_of_a_burst_go_together(recording: pd.DataFrame) -> None:
    plain = overview(recording, VMM_CYCLE, "total")[1].headlines[0]
    assert plain.p50 is not None
    # 2400 cycles taken as independent would give an interval of about 300 ns.
    assert plain.p50.hi - plain.p50.lo > 1_000


def test_the_rate_is_that_of_all_workers_and_counts_cycles_without_rows(
    recording: pd.DataFrame,
) -> None:
    four, one = (overview(recording, VMM_CYCLE, "total")[i].headlines[0] for i in (1, 0))
    assert one.cycles_per_s is not None and four.cycles_per_s is not None
    assert one.cycles_per_s.value == pytest.approx(50_000)
    assert four.cycles_per_s.value == pytest.approx(200_000)
    # Of a worker that ran 49 more cycles than it has rows for, the last row is the latest.
    last = recording["repeat"] == CYCLES
    recording.loc[last, "repeat"] += 49
    recording.loc[last, "start_ns"] += 49 * 20_000
    again = overview(recording, VMM_CYCLE, "total")[1].headlines[0]
    assert again.cycles_per_s is not None
    assert again.cycles_per_s.value == pytest.approx(200_000)


def test_wandering_bursts_are_no_reason_to_measure_again(recording: pd.DataFrame) -> None:
    assert candidates(recording, "total") == []


def test_one_row_a_visit_leaves_recordings_of_single_cycles_alone() -> None:
    single = bursts("device", 0, seed=1).query("repeat == 0").assign(flags=0)
    assert one_row_a_visit(single, VMM_CYCLE.calls, "total") is single


def test_one_row_a_visit_is_the_median_of_what_counts(recording: pd.DataFrame) -> None:
    visits = one_row_a_visit(recording, VMM_CYCLE.calls, "total")
    assert isinstance(visits, pd.DataFrame)
    assert len(visits) == 3 * ROUNDS
    burst = recording[(recording["threads"] == 1) & (recording["round"] == 5)]
    row = visits[(visits["threads"] == 1) & (visits["round"] == 5)]
    assert row["total_ns"].item() == burst[burst["flags"] == 0]["total_ns"].median()
