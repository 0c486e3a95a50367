# SPDX-License-Identifier: MIT
"""Summaries: what counts, what is left out and said, attempts and pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vmmprof.analysis.intervals import Estimate, FloatArray
from vmmprof.analysis.intervals import median as independent_median
from vmmprof.analysis.summary import ConditionSummary, outliers, summarise
from vmmprof.operations import RM_ALLOC, VMM_CYCLE
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.recording.schema import Flag
from vmmprof.sizes import MIB

from .synthetic import heavy_tailed, random_walk, samples

SIZES = np.array([2.0, 64.0])
DOMAIN0 = Placement(domain=0)


def median(values: FloatArray) -> Estimate:
    """The median of samples of successive rounds."""
    return independent_median(values, np.arange(len(values)))


def two_placements(rounds: int = 30, attempt: int = 1, shift_us: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(rounds + attempt)
    plain = 100 + SIZES + rng.random((rounds, 2)) + shift_us
    placed = plain + 20 + rng.random((rounds, 2))
    return samples({"device": plain, "domain:0": placed}, SIZES, attempt=attempt)


def joined(*frames: pd.DataFrame) -> pd.DataFrame:
    frame = pd.concat(frames, ignore_index=True)
    frame["placement"] = frame["placement"].astype("category")
    return frame


def by_condition(
    frame: pd.DataFrame,
) -> dict[tuple[Condition, int], ConditionSummary]:
    return {
        (summary.condition, summary.attempt): summary
        for summary in summarise(frame, VMM_CYCLE, "total")
    }


def test_estimates_are_those_of_the_condition_s_own_samples() -> None:
    frame = two_placements()
    summary = by_condition(frame)[Condition(DOMAIN0, 64 * MIB), 1]
    own = frame[(frame.placement == "domain:0") & (frame.size_bytes == 64 * MIB)]
    total = own.total_ns.to_numpy(float)
    assert summary.n == 30
    assert summary.p50 == median(total)
    assert summary.max_ns == total.max()
    assert summary.p99 is None
    assert summary.calls_p50["set_access"] == median(own.set_access_ns.to_numpy(float))
    control = frame[(frame.placement == "device") & (frame.size_bytes == 64 * MIB)]
    assert summary.extra == median(total - control.total_ns.to_numpy(float))
    assert summary.ratio == median(total / control.total_ns.to_numpy(float))


def test_the_control_is_not_compared_with_itself() -> None:
    summary = by_condition(two_placements())[Condition(PLAIN, 2 * MIB), 1]
    assert summary.extra is None and summary.ratio is None


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        (Flag.WARMUP, "warmup"),
        (Flag.FAILED, "failed"),
        (Flag.WRONG_ORDINAL, "discarded"),
        (Flag.WRONG_COMPRESSION, "discarded"),
        (Flag.TRACED, "traced"),
        (Flag.OUTSIDE_WINDOW, "outside_window"),
        (Flag.WARMUP | Flag.WRONG_ORDINAL, "warmup"),
    ],
)
def test_flagged_rows_are_counted_once_and_measured_never(flag: Flag, field: str) -> None:
    frame = two_placements()
    rows = frame.index[(frame.placement == "domain:0") & (frame.size_bytes == 2 * MIB)][:4]
    frame.loc[rows, "flags"] = int(flag)
    frame.loc[rows, "total_ns"] = 10**12
    summary = by_condition(frame)[Condition(DOMAIN0, 2 * MIB), 1]
    fields = ("warmup", "failed", "discarded", "traced", "outside_window", "untimed")
    assert {name: getattr(summary, name) for name in fields} == {
        name: 4 if name == field else 0 for name in fields
    }
    assert summary.n == 26
    assert summary.max_ns is not None and summary.max_ns < 10**9
    assert summary.extra is not None and summary.extra.n == 26


def test_pairs_lack_where_either_side_lacks() -> None:
    frame = two_placements()
    plain = (frame.placement == "device") & (frame.size_bytes == 2 * MIB)
    frame.loc[plain & (frame["round"] < 5), "flags"] = int(Flag.WARMUP)
    frame.loc[plain & (frame["round"] == 9), "total_ns"] = pd.NA
    summary = by_condition(frame)[Condition(DOMAIN0, 2 * MIB), 1]
    assert summary.n == 30
    assert summary.extra is not None and summary.extra.n == 24


def test_the_second_attempt_is_the_headline_and_pairs_stay_within_an_attempt() -> None:
    frame = joined(two_placements(), two_placements(attempt=2, shift_us=500.0))
    summaries = by_condition(frame)
    first, second = (summaries[Condition(DOMAIN0, 2 * MIB), attempt] for attempt in (1, 2))
    assert (first.is_headline, second.is_headline) == (False, True)
    for summary in (first, second):
        assert summary.extra is not None
        assert 20_000 <= summary.extra.value <= 21_000, "pairs across attempts would see 500 us"


def test_an_attempt_cut_short_does_not_speak() -> None:
    frame = joined(two_placements(), two_placements(rounds=2, attempt=2))
    summaries = by_condition(frame)
    assert summaries[Condition(DOMAIN0, 2 * MIB), 1].is_headline
    assert not summaries[Condition(DOMAIN0, 2 * MIB), 2].is_headline


def test_threads_and_repeated_visits_pair_with_their_own() -> None:
    """Two threads with very different times and two visits a round: pairs must not cross."""
    frames = []
    for thread in (0, 1):
        for visit in (0, 1):
            frame = two_placements()
            frame["thread"] = np.int16(thread)
            shift = 1_000_000 * thread + 10_000_000 * visit
            frame["total_ns"] = frame["total_ns"] + shift
            frame["start_ns"] += visit
            frames.append(frame)
    frame = joined(*frames)
    # Threads come in another order in each placement, and some samples have no partner.
    thread_first = np.where(frame["placement"] == "device", frame["thread"], -frame["thread"])
    frame = frame.assign(_first=thread_first)
    frame = frame.sort_values(["round", "_first", "start_ns"], kind="stable", ignore_index=True)
    alone = (frame["placement"] == "device") & (frame["thread"] == 1) & (frame["round"] < 10)
    frame.loc[alone, "flags"] = int(Flag.FAILED)
    summary = by_condition(frame)[Condition(DOMAIN0, 2 * MIB), 1]
    assert summary.extra is not None
    assert summary.extra.n == 100
    assert 20_000 <= summary.extra.lo <= summary.extra.hi <= 21_000


def test_scattered_is_another_condition() -> None:
    slow = two_placements(shift_us=900.0)
    slow["scattered"] = True
    summaries = by_condition(joined(two_placements(), slow))
    scattered = summaries[Condition(DOMAIN0, 2 * MIB, scattered=True), 1]
    assert scattered.p50 is not None and scattered.p50.value > 1_000_000
    assert scattered.extra is not None and scattered.extra.value < 22_000


def test_times_that_a_model_does_not_know_are_none() -> None:
    frame = two_placements()
    frame["reserve_ns"] = pd.NA
    frame.loc[frame.size_bytes == 2 * MIB, "total_ns"] = pd.NA
    summary = by_condition(frame)[Condition(DOMAIN0, 2 * MIB), 1]
    assert (summary.n, summary.p50, summary.max_ns, summary.extra) == (0, None, None, None)
    assert summary.untimed == 30
    known = by_condition(frame)[Condition(DOMAIN0, 64 * MIB), 1]
    assert known.calls_p50["reserve"] is None
    assert known.calls_p50["create"] is not None


def test_another_operation_and_another_headline() -> None:
    times = np.full((10, 2), 50.0)
    frame = samples({"device": times}, SIZES, operation=RM_ALLOC)
    summaries = summarise(frame, RM_ALLOC, "alloc")
    assert set(summaries[0].calls_p50) == {"alloc", "free"}
    assert summaries[0].p50 == median(frame.alloc_ns.to_numpy(float)[:10])


def test_outliers_are_flagged_and_stay_in() -> None:
    rng = np.random.default_rng(11)
    values = 100 + rng.standard_normal(1000)
    values[:3] = 200.0
    assert outliers(values).sum() == 3
    assert not outliers(np.full(30, 7.0)).any()
    frame = two_placements()
    frame.loc[frame["round"] == 3, "total_ns"] = 10**9
    summary = by_condition(frame)[Condition(PLAIN, 2 * MIB), 1]
    assert (summary.flagged_outliers, summary.n, summary.max_ns) == (1, 30, 1e9)


def test_no_samples_give_no_summaries() -> None:
    assert summarise(two_placements().iloc[:0], VMM_CYCLE, "total") == []


def test_pairing_beats_not_pairing_under_drift() -> None:
    """Under drift a paired difference is far better known than the difference of medians."""
    rng = np.random.default_rng(12)
    rounds, machines = 30, 400
    paired, unpaired = [], []
    for _ in range(machines):
        drift = random_walk(rng, rounds, 10.0)
        plain = 100 + drift + heavy_tailed(rng, (rounds,))
        placed = 122 + drift + heavy_tailed(rng, (rounds,))
        paired.append(np.median(placed - plain) - 22)
        shuffled = rng.permutation(rounds)[: rounds // 2]
        rest = np.setdiff1d(np.arange(rounds), shuffled)
        unpaired.append(np.median(placed[shuffled]) - np.median(plain[rest]) - 22)
    error_of = lambda errors: float(np.median(np.abs(errors)))  # noqa: E731
    assert error_of(paired) < error_of(unpaired) / 5


def test_same_is_called_different_at_most_5_percent() -> None:
    """The interval of the extra cost leaves out zero in at most 5 % of machines (n = 30)."""
    rng = np.random.default_rng(13)
    machines = 1000
    wrong = 0
    for _ in range(machines):
        estimate = median(heavy_tailed(rng, (30,)) - heavy_tailed(rng, (30,)))
        wrong += not (estimate.lo <= 0 <= estimate.hi)
    assert wrong / machines <= 0.05
