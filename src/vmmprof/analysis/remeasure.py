# SPDX-License-Identifier: MIT
"""Which conditions to measure a second time, and why (docs/method.md).

Two signs trigger it. The machine changed while the condition was measured:
the median's intervals of its first and second half do not meet. Or the
condition's median does not go with the sizes around it: it lies outside what
the neighbours' lines span by more than five of the neighbours' spreads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmmprof.analysis.bursts import one_row_a_visit
from vmmprof.analysis.groups import Columns, Group, group_samples, headline_attempts, times_ns
from vmmprof.analysis.intervals import FloatArray, median
from vmmprof.placement import Condition, Series
from vmmprof.sizes import mib

SPREADS = 5.0
# 1.4826 median absolute deviations are one standard deviation of normal noise.
_MAD_TO_SD = 1.4826
# Neighbours without noise (a model, a coarse clock) still leave this much room.
_LEAST_SPREAD_OF_MEDIAN = 0.01


@dataclass(frozen=True)
class Candidate:
    """A condition to measure again and the reason, one line for the user."""

    condition: Condition
    reason: str


def halves_disagree(values: FloatArray) -> bool:
    """Whether the median's 95 % intervals of the first and the second half do not meet.

    ``values``: samples in the order taken, shape (n,). False where a half
    supports no interval (n < 12).
    """
    middle = len(values) // 2
    if middle == 0:
        return False
    first, second = median(values[:middle]), median(values[middle:])
    if not (first.has_interval and second.has_interval):
        return False
    return first.hi < second.lo or second.hi < first.lo


def _line_at(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _neighbour_lines(i: int, sizes: FloatArray, medians: FloatArray) -> list[float]:
    """What the line around size i (not the first or last) and those beside it say at size i.

    A side with one size only has the level of that size for a line.
    """
    lines = [_line_at(sizes[i], sizes[i - 1], medians[i - 1], sizes[i + 1], medians[i + 1])]
    for near, far in ((i - 1, i - 2), (i + 1, i + 2)):
        if 0 <= far < len(sizes):
            lines.append(_line_at(sizes[i], sizes[near], medians[near], sizes[far], medians[far]))
        else:
            lines.append(float(medians[near]))
    return lines


def leaves_neighbours(
    sizes_mib: FloatArray, medians: FloatArray, spreads: FloatArray
) -> list[bool]:
    """Which medians lie outside the span of their neighbours' lines by over five spreads.

    All shape (sizes,), ascending in size. At a step or a bend the lines from
    either side span the truth, so neither is taken for a bad measurement. The
    first and last size have neighbours on one side only, which cannot tell a
    bend from a bad measurement: they never trigger.
    """
    leaves = [False] * len(sizes_mib)
    for i in range(1, len(sizes_mib) - 1):
        lines = _neighbour_lines(i, sizes_mib, medians)
        around = [j for j in (i - 2, i - 1, i + 1, i + 2) if 0 <= j < len(sizes_mib)]
        spread = max(
            float(np.median(spreads[around])),
            _LEAST_SPREAD_OF_MEDIAN * float(np.median(np.abs(medians[around]))),
        )
        below, above = min(lines) - medians[i], medians[i] - max(lines)
        leaves[i] = bool(max(below, above) > SPREADS * spread)
    return leaves


def _spread(values: FloatArray) -> float:
    return _MAD_TO_SD * float(np.median(np.abs(values - np.median(values))))


def candidates(columns: Columns, headline: str) -> list[Candidate]:
    """Conditions to measure again, in reporting order, each with its reason.

    ``columns`` and ``headline`` as for :func:`summary.summarise`. A placed
    condition brings its control along, since pairs need both in one attempt;
    a control comes alone.
    """
    columns = one_row_a_visit(columns, (), headline)
    groups = group_samples(columns, headline)
    chosen = headline_attempts(groups)
    times = times_ns(columns, headline)
    curves: dict[Series, list[Group]] = {}
    for group in groups:
        condition = group.condition
        if group.attempt == chosen[condition] and len(group.rows):
            curves.setdefault(condition.series, []).append(group)

    reasons: dict[Condition, str] = {}
    for curve in curves.values():
        reasons.update(_reasons_along(curve, times))
    present = {group.condition for group in groups}
    for condition in list(reasons):
        control = condition.control
        if control in present:
            reasons.setdefault(control, f"control of {condition}")
    in_order = dict.fromkeys(group.condition for group in groups)
    return [Candidate(c, reasons[c]) for c in in_order if c in reasons]


def _reasons_along(curve: list[Group], times: FloatArray) -> dict[Condition, str]:
    """Reasons for the groups of one series, ascending in size."""
    values = [times[group.rows] for group in curve]
    sizes = np.array([mib(group.condition.size_bytes) for group in curve])
    medians = np.array([float(np.median(v)) for v in values])
    spreads = np.array([_spread(v) for v in values])
    reasons = {}
    for group, samples, leaves in zip(
        curve, values, leaves_neighbours(sizes, medians, spreads), strict=True
    ):
        if halves_disagree(samples):
            reasons[group.condition] = "first and second half differ"
        elif leaves:
            reasons[group.condition] = f"over {SPREADS:g} spreads off the neighbouring sizes"
    return reasons
