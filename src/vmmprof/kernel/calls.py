# SPDX-License-Identifier: MIT
"""What each timed call spent in the update path: samples.parquet joined with events.

Pure functions. Both files use CLOCK_MONOTONIC; the calls of a cycle follow
one another from ``start_ns`` on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.kernel.attribution import UPDATE_PHASES, Phase
from vmmprof.kernel.shares import Share, ratio_share
from vmmprof.operations import Operation
from vmmprof.recording.schema import Flag

CONDITION = ("placement", "variant", "size_bytes", "scattered")
UNKNOWN = "unknown"

FloatArray = npt.NDArray[np.float64]

# The parts of the path: the column that holds a counted call's time in them, and the phases
# that a sample of them has. Flushes that end single page-table writes are of those writes.
_PARTS = {
    "path": ("duration_ns", UPDATE_PHASES),
    "pte": ("pte_ns", frozenset({Phase.PTE, Phase.PAGE_FLUSH})),
    "barrier": ("barrier_ns", frozenset({Phase.BARRIER})),
    "tlb": ("tlb_ns", frozenset({Phase.TLB})),
}
_COUNTS = ("updates", "iterations", "runs", "barriers", "invalidates")


@dataclass(frozen=True)
class TracedCalls:
    """One call of one condition in the traced cycles: arrays with an entry a call.

    ``whole`` is what the path is a share of: the call's time, or the samples
    that were taken in it. ``parts`` are in the same unit; ``counts`` are of a
    counting method. What the method does not give is None.
    """

    placement: str
    variant: str
    size_bytes: int
    scattered: bool
    name: str
    """As in the samples, such as ``create``."""
    api_name: str
    directions: frozenset[str]
    rows: npt.NDArray[np.int64]
    """Of the samples: whose calls these are."""
    took_ns: FloatArray
    whole: FloatArray
    parts: dict[str, FloatArray | None]
    counts: dict[str, FloatArray | None]
    period_ns: int | None


@dataclass(frozen=True)
class CallShare:
    """One call of one condition in the traced cycles, in sum."""

    placement: str
    variant: str
    size_bytes: int
    scattered: bool
    name: str
    call: str
    direction: str | None
    """Of the update calls in it: commit, release, unknown, or several; None without any."""
    cycles: int
    p50_us: float
    seen: float | None
    """Sampled time as a share of the call's, None when counted: where the thread sleeps or the
    kernel holds interrupts off, there are no samples."""
    path: Share | None
    """The update path's share of the call, or of what was sampled of it. None here and below:
    the method does not give it."""
    pte: Share | None
    """Page-table writes as a share of the path; also barrier, tlb, and sync, which is both."""
    barrier: Share | None
    tlb: Share | None
    sync: Share | None
    path_us: float | None
    """Time in the path, mean a call; the counts below are means, too."""
    updates: float | None
    iterations: float | None
    runs: float | None
    barriers: float | None
    invalidates: float | None


def traced_cycles(samples: pd.DataFrame, windows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which cycles began inside one of the ascending (start, end) windows, shape (n, 2)."""
    start_ns = np.asarray(samples["start_ns"], np.int64)
    if len(windows) == 0:
        return np.zeros(len(start_ns), np.bool_)
    index = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.asarray((index >= 0) & (start_ns < windows[np.maximum(index, 0), 1]), np.bool_)


def _usable(samples: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Cycles without a flag but that of having been traced."""
    return np.asarray((np.asarray(samples["flags"], np.uint16) & ~np.uint16(Flag.TRACED)) == 0)


def call_shares(
    samples: pd.DataFrame,
    events: pd.DataFrame,
    windows: npt.NDArray[np.int64],
    operation: Operation,
    calls: tuple[str, ...],
    *,
    period_ns: int | None = None,
) -> list[CallShare]:
    """The sums of :func:`traced_calls`."""
    found = traced_calls(samples, events, windows, operation, calls, period_ns=period_ns)
    return [call_share([one]) for one in found]


def traced_calls(
    samples: pd.DataFrame,
    events: pd.DataFrame,
    windows: npt.NDArray[np.int64],
    operation: Operation,
    calls: tuple[str, ...],
    *,
    period_ns: int | None = None,
) -> list[TracedCalls]:
    """The named calls of every condition, over traced cycles that count.

    ``period_ns`` is the sampling clock's, None for counted events.
    Cycles run in their process's first thread; what others did meanwhile is left out.
    """
    events = events[events["tid"] == events["pid"]]
    usable = samples[traced_cycles(samples, windows) & _usable(samples)].sort_values("start_ns")
    return [
        _traced_call(of_condition, events, operation, call, period_ns)
        for _, of_condition in _named(usable).groupby(list(CONDITION))
        for call in calls
    ]


def _named(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples whose placement and variant are plain text."""
    variant = samples["variant"].astype("object") if "variant" in samples else ""
    return samples.assign(placement=samples["placement"].astype("object"), variant=variant)


def _traced_call(
    cycles: pd.DataFrame,
    events: pd.DataFrame,
    operation: Operation,
    call: str,
    period_ns: int | None,
) -> TracedCalls:
    before = [f"{name}_ns" for name in operation.calls[: operation.calls.index(call)]]
    start = np.asarray(cycles["start_ns"] + cycles[before].sum(axis=1), np.int64)
    took = np.asarray(cycles[f"{call}_ns"], np.float64)
    time_ns = np.asarray(events["time_ns"], np.int64)
    index = np.searchsorted(start, time_ns, side="right") - 1
    inside = (index >= 0) & (time_ns < (start + took.astype(np.int64))[np.maximum(index, 0)])
    mine = _Inside(events[inside], index[inside], len(cycles))
    if period_ns is None:
        whole = took
        parts = {name: mine.sum_of(column) for name, (column, _) in _PARTS.items()}
        counts = {name: mine.sum_of(name) for name in _COUNTS[1:]} | {"updates": mine.number()}
        in_path = mine.events
    else:
        phases = mine.events["phase"].astype("object")
        whole = mine.number()
        parts = {name: mine.number(phases.isin(_values(of))) for name, (_, of) in _PARTS.items()}
        counts = dict.fromkeys(_COUNTS)
        in_path = mine.events[phases.isin(_values(UPDATE_PHASES))]
    first = cycles.iloc[0]
    return TracedCalls(
        str(first["placement"]),
        str(first["variant"]),
        int(first["size_bytes"]),
        bool(first["scattered"]),
        call,
        operation.api_name(call),
        _directions(in_path),
        np.asarray(cycles.index, np.int64),
        took,
        whole,
        parts,
        counts,
        period_ns,
    )


def _values(phases: frozenset[Phase]) -> list[str]:
    return [phase.value for phase in phases]


def _directions(events: pd.DataFrame) -> frozenset[str]:
    if "direction" not in events:
        return frozenset({UNKNOWN} if len(events) else ())
    return frozenset(events["direction"].astype("object").fillna(UNKNOWN).unique())


@dataclass(frozen=True)
class _Inside:
    """The events inside of calls, and the number of the call that each is in."""

    events: pd.DataFrame
    call: npt.NDArray[np.intp]
    calls: int

    def number(self, which: pd.Series[bool] | None = None) -> FloatArray:
        at = self.call if which is None else self.call[which.to_numpy()]
        return np.bincount(at, minlength=self.calls).astype(np.float64)

    def sum_of(self, column: str) -> FloatArray | None:
        """Sum of a column in each call; None where any event lacks it."""
        if column not in self.events or self.events[column].isna().any():
            return None
        values = np.asarray(self.events[column], np.float64)
        return np.bincount(self.call, weights=values, minlength=self.calls).astype(np.float64)


def call_share(calls: Sequence[TracedCalls]) -> CallShare:
    """One call of one condition in sum, over the recordings of one method that hold it."""
    first = calls[0]
    took = np.concatenate([one.took_ns for one in calls])
    whole = np.concatenate([one.whole for one in calls])
    parts = {name: _joined([one.parts[name] for one in calls]) for name in _PARTS}
    counts = {name: _joined([one.counts[name] for one in calls]) for name in _COUNTS}
    path = parts["path"]
    directions = frozenset[str]().union(*(one.directions for one in calls))
    period_ns = first.period_ns
    return CallShare(
        first.placement,
        first.variant,
        first.size_bytes,
        first.scattered,
        first.name,
        first.api_name,
        " + ".join(sorted(directions)) or None,
        len(took),
        float(np.median(took) / 1e3),
        None if period_ns is None else float(whole.sum() * period_ns / took.sum()),
        _share_of(path, whole),
        _share_of(parts["pte"], path),
        _share_of(parts["barrier"], path),
        _share_of(parts["tlb"], path),
        _share_of(_sum(parts["barrier"], parts["tlb"]), path),
        float(path.mean() / 1e3) if path is not None and period_ns is None else None,
        **{name: _mean(counts[name]) for name in _COUNTS},
    )


def _joined(arrays: Sequence[FloatArray | None]) -> FloatArray | None:
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if len(known) == len(arrays) else None


def _sum(one: FloatArray | None, other: FloatArray | None) -> FloatArray | None:
    return None if one is None or other is None else one + other


def _share_of(part: FloatArray | None, whole: FloatArray | None) -> Share | None:
    return None if part is None or whole is None else ratio_share(part, whole)


def _mean(values: FloatArray | None) -> float | None:
    return None if values is None else float(values.mean())


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
    usable = samples[_usable(samples)]
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
