# SPDX-License-Identifier: MIT
"""What share of each timed call the update path is: samples.parquet joined with events.

Pure functions. Both files use CLOCK_MONOTONIC; the calls of a cycle follow
one another from ``start_ns`` on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.kernel.shares import (
    PHASES,
    Counts,
    Share,
    count_phases,
    path_share,
    ratio_share,
    sync_share,
)
from vmmprof.operations import Operation
from vmmprof.recording.schema import Flag

CONDITION = ("placement", "size_bytes", "scattered")
TIMES = ("duration_ns", "barrier_ns", "tlb_ns")


@dataclass(frozen=True)
class CallShare:
    """One call of one condition in the traced cycles."""

    placement: str
    size_bytes: int
    scattered: bool
    call: str
    cycles: int
    p50_us: float
    seen: float | None
    """Sampled time as a share of the call's, None when counted: where the thread sleeps or the
    kernel holds interrupts off, there are no samples."""
    path: Share
    """The update path's share of the call, or of what was sampled of it."""
    sync: Share
    """Barrier and TLB invalidate as a share of the update path."""


def traced_cycles(samples: pd.DataFrame, windows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which cycles began inside one of the ascending (start, end) windows, shape (n, 2)."""
    start_ns = np.asarray(samples["start_ns"], np.int64)
    if len(windows) == 0:
        return np.zeros(len(start_ns), np.bool_)
    index = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.asarray((index >= 0) & (start_ns < windows[np.maximum(index, 0), 1]), np.bool_)


def call_shares(
    samples: pd.DataFrame,
    events: pd.DataFrame,
    windows: npt.NDArray[np.int64],
    operation: Operation,
    calls: tuple[str, ...],
    *,
    period_ns: int | None = None,
) -> list[CallShare]:
    """Shares of the named calls for every condition, over traced cycles without a flag.

    ``period_ns`` is the sampling clock's, None for counted events.
    Cycles run in their process's first thread; what others did meanwhile is left out.
    """
    events = events[events["tid"] == events["pid"]]
    usable = samples[traced_cycles(samples, windows) & ((samples["flags"] & ~int(Flag.TRACED)) == 0).to_numpy()]
    usable = usable.sort_values("start_ns")
    found = []
    for _, of_condition in _named(usable).groupby(list(CONDITION)):
        for call in calls:
            found.append(_call_share(of_condition, events, operation, call, period_ns))
    return found


def _named(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples whose placement is plain text, with the variant of the cycle where there is one."""
    placement = samples["placement"].astype("object")
    if "variant" in samples:
        placement = (placement + " " + samples["variant"].astype("object")).str.strip()
    return samples.assign(placement=placement)


def _call_share(
    cycles: pd.DataFrame,
    events: pd.DataFrame,
    operation: Operation,
    call: str,
    period_ns: int | None,
) -> CallShare:
    before = [f"{name}_ns" for name in operation.calls[: operation.calls.index(call)]]
    start = np.asarray(cycles["start_ns"] + cycles[before].sum(axis=1), np.int64)
    took = np.asarray(cycles[f"{call}_ns"], np.int64)
    seen = None
    if period_ns is None:
        path, sync = _counted(start, start + took, events)
    else:
        counts = _phase_counts(start, start + took, events)
        seen = float(counts.sum() * period_ns / took.sum())
        path, sync = path_share(counts), sync_share(counts)
    first = cycles.iloc[0]
    return CallShare(
        str(first["placement"]),
        int(first["size_bytes"]),
        bool(first["scattered"]),
        operation.api_name(call),
        len(cycles),
        float(np.median(took) / 1e3),
        seen,
        path,
        sync,
    )


def _counted(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], events: pd.DataFrame
) -> tuple[Share, Share]:
    sums = np.zeros((len(start), len(TIMES)))
    if len(events):
        time_ns = np.asarray(events["time_ns"], np.int64)
        index = np.searchsorted(start, time_ns, side="right") - 1
        inside = (index >= 0) & (time_ns < end[np.maximum(index, 0)])
        np.add.at(sums, index[inside], np.asarray(events[list(TIMES)], np.float64)[inside])
    update = sums[:, 0]
    whole = (end - start).astype(np.float64)
    return ratio_share(update, whole), ratio_share(sums[:, 1] + sums[:, 2], update)


def _phase_counts(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], events: pd.DataFrame
) -> Counts:
    numbers = {phase.value: index for index, phase in enumerate(PHASES)}
    phase = np.asarray(events["phase"].astype("object").map(numbers), np.int64)
    return count_phases(start, end, np.asarray(events["time_ns"], np.int64), phase)


@dataclass(frozen=True)
class ProbeEffect:
    """What tracing did to a placement's cycles: the median ratio of traced to untraced."""

    placement: str
    ratio: float
    low: float
    high: float
    """95 % interval of the median, by bootstrap over conditions' cycles."""


def probe_effect(
    samples: pd.DataFrame, windows: npt.NDArray[np.int64], column: str
) -> list[ProbeEffect]:
    """Effect on the cycle's ``column`` (ns), by placement; each cycle against its condition."""
    usable = samples[((samples["flags"] & ~int(Flag.TRACED)) == 0).to_numpy()]
    traced = traced_cycles(usable, windows)
    keys = list(CONDITION)
    frame = _named(usable)
    baseline = frame[~traced].groupby(keys)[column].median().rename("untraced")
    joined = frame[traced].join(baseline, on=keys)
    ratios = joined[column] / joined["untraced"]
    found = []
    for placement in sorted(joined["placement"].unique()):
        of_placement = np.asarray(ratios[joined["placement"] == placement].dropna(), np.float64)
        if len(of_placement):
            found.append(_effect(placement, of_placement))
    return found


def _effect(placement: str, ratios: npt.NDArray[np.float64]) -> ProbeEffect:
    random = np.random.default_rng(0)
    picks = random.integers(0, len(ratios), (1000, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return ProbeEffect(placement, float(np.median(ratios)), float(low), float(high))
