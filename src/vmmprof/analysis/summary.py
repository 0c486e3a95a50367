# SPDX-License-Identifier: MIT
"""One summary a condition and attempt: quantiles, pairs with plain, what was left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmmprof.analysis.bursts import rate_of, visits_of
from vmmprof.analysis.groups import (
    Columns,
    Group,
    group_samples,
    has_bursts,
    headline_attempts,
    round_numbers,
    times_ns,
)
from vmmprof.analysis.intervals import Estimate, FloatArray, median, p90, p99
from vmmprof.analysis.pairs import pair
from vmmprof.operations import Operation
from vmmprof.placement import Condition

# Tukey's "far out": beyond the quartiles by three interquartile ranges.
OUTLIER_RANGES = 3.0
# Clock steps make quartiles of fast calls meet; a range below 1 % of the median is no yardstick.
_LEAST_RANGE_OF_MEDIAN = 0.01


@dataclass(frozen=True)
class ConditionSummary:
    """What one condition's samples of one attempt say; times in ns.

    ``is_headline`` marks the attempt that counts (groups.headline_attempts);
    the others are kept to be shown. With ``n`` = 0 every estimate
    is None. ``p90`` and ``p99`` are None where ``n`` cannot support them.
    ``extra`` and ``ratio`` are over pairs with the plain control of the same
    attempt, and None for the control itself and without pairs. ``calls_p50``
    has every call of the operation, None for one without times.
    ``cycles_per_s`` is the rate of all workers together, None where a visit
    was a single cycle; intervals of bursts are those of analysis/bursts.py.
    """

    condition: Condition
    attempt: int
    is_headline: bool
    n: int
    p50: Estimate | None
    p90: Estimate | None
    p99: Estimate | None
    max_ns: float | None
    extra: Estimate | None
    ratio: Estimate | None
    calls_p50: dict[str, Estimate | None]
    flagged_outliers: int
    warmup: int
    failed: int
    discarded: int
    traced: int
    outside_window: int
    untimed: int
    cycles_per_s: Estimate | None = None


def outliers(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which values lie more than three interquartile ranges beyond the quartiles.

    They are flagged for the reader and stay in every estimate.
    """
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    reach = OUTLIER_RANGES * max(high - low, _LEAST_RANGE_OF_MEDIAN * abs(middle))
    flagged: np.ndarray[tuple[int], np.dtype[np.bool_]] = (values < low - reach) | (
        values > high + reach
    )
    return flagged


def _calls_p50(
    columns: Columns, operation: Operation, groups: list[Group]
) -> list[dict[str, Estimate | None]]:
    """Per group, the median of each call; a column is read once for all groups."""
    medians: list[dict[str, Estimate | None]] = [{} for _ in groups]
    rounds = round_numbers(columns)
    of_round = [rounds[group.rows] for group in groups]
    for call in operation.calls:
        times = times_ns(columns, call)
        for group, group_rounds, by_call in zip(groups, of_round, medians, strict=True):
            values = times[group.rows]
            known = ~np.isnan(values)
            if known.all():
                by_call[call] = median(values, group_rounds) if len(values) else None
            else:
                by_call[call] = median(values[known], group_rounds[known]) if known.any() else None
    return medians


def summarise(
    columns: Columns, operation: Operation, headline: str, groups: list[Group] | None = None
) -> list[ConditionSummary]:
    """Summaries of all conditions and attempts in reporting order.

    ``columns``: a recording's samples (recording/schema.py). ``headline`` is
    the time that is summarised: ``total`` or a call of the operation.
    ``groups``: the columns' groups by that time, where they are known already.
    """
    if groups is None:
        groups = group_samples(columns, headline)
    bursts = has_bursts(columns)
    visits = visits_of(columns, operation, headline)
    visit_groups = group_samples(visits, headline) if bursts else groups
    visits_by_key = {(group.condition, group.attempt): group for group in visit_groups}
    chosen = headline_attempts(groups)
    calls = _calls_p50(columns, operation, groups)
    times = times_ns(columns, headline)
    rounds = round_numbers(columns)
    summaries = []
    for group, calls_p50 in zip(groups, calls, strict=True):
        values, of_round = times[group.rows], rounds[group.rows]
        extra = ratio = None
        placed = visits_by_key.get((group.condition, group.attempt))
        control = visits_by_key.get((group.condition.control, group.attempt))
        if placed and control and not group.condition.series.is_control:
            pairs = pair(visits, placed, control, headline)
            extra, ratio = pairs.extra(), pairs.ratio()
        n = len(values)
        summaries.append(
            ConditionSummary(
                condition=group.condition,
                attempt=group.attempt,
                is_headline=chosen[group.condition] == group.attempt,
                n=n,
                p50=median(values, of_round) if n else None,
                p90=p90(values, of_round),
                p99=p99(values, of_round),
                max_ns=float(values.max()) if n else None,
                extra=extra,
                ratio=ratio,
                calls_p50=calls_p50,
                flagged_outliers=int(outliers(values).sum()) if n else 0,
                warmup=group.warmup,
                failed=group.failed,
                discarded=group.discarded,
                traced=group.traced,
                outside_window=group.outside_window,
                untimed=group.untimed,
                cycles_per_s=rate_of(columns, group) if bursts else None,
            )
        )
    return summaries
