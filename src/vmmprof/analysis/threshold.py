# SPDX-License-Identifier: MIT
"""The size from which a placement costs extra: a step in extra cost over size.

Input are pairs: a matrix of extra cost over plain, a row a round, a column a
size. The medians over rounds are described by two straight lines with a break
between two neighbouring sizes. A break is a threshold when the second line
lies above the first at both ends of the gap between them (a mere bend crosses
inside it), by more than the scatter of the sizes about the lines, and by more
than resampled rounds give where there is no step. docs/method.md has the
reasons and the simulated error rates.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmmprof.analysis.groups import (
    Columns,
    Group,
    group_samples,
    headline_attempts,
    round_numbers,
    times_ns,
)
from vmmprof.analysis.intervals import CONFIDENCE, Estimate, FloatArray, IntArray
from vmmprof.analysis.pairs import pair_rows
from vmmprof.placement import Series
from vmmprof.sizes import mib

NS_PER_US = 1000.0
MIN_SIZES_A_SIDE = 2
MIN_SIZES = 2 * MIN_SIZES_A_SIDE
MIN_ROUNDS = 6

_RESAMPLES = 999
_SEED = 0x5EED
# More rounds than this are gathered into blocks of neighbouring rounds first, by their medians.
_MAX_BLOCKS = 400
# Largest number of cells resampled at once; bounds memory, not the result.
_CELLS_AT_ONCE = 4_000_000
# What a median is trusted to at best, so that noise-free samples do not make every ripple a step.
_LEAST_ERROR_US = 0.01
_LEAST_RELATIVE_ERROR = 0.002
# A step stands this many standard errors above nothing, whatever the resampling says; the errors
# are widened by the scatter of the sizes about the lines, which a curve has and a step has not.
_LEAST_SIGNIFICANCE = 4.0
_NULL_QUANTILE = 0.99
# Two lines, two parameters each.
_LINE_PARAMETERS = 4


@dataclass(frozen=True)
class Threshold:
    """A step in extra cost between two neighbouring measured sizes.

    ``step_us``: extra cost at ``upper_mib`` less that at ``lower_mib``, on the
    fitted lines. ``slope_us_per_mib``: extra cost a MiB above the threshold;
    ``lower_slope_us_per_mib``: below it. ``n`` of an estimate is the number of
    rounds behind it.
    """

    lower_mib: float
    upper_mib: float
    step_us: Estimate
    slope_us_per_mib: Estimate
    lower_slope_us_per_mib: Estimate


@dataclass(frozen=True)
class ThresholdSearch:
    """A search's outcome: the threshold, or None and why there is none to report."""

    threshold: Threshold | None
    reason: str | None = None


@dataclass(frozen=True)
class _Break:
    """A candidate break after size ``last_lower``, as linear maps of the medians (sizes,)."""

    last_lower: int
    fit: FloatArray  # (sizes, sizes): medians -> fitted values of the two lines
    gap_below: FloatArray  # (sizes,): second line less first, at the last lower size
    gap_above: FloatArray  # at the first upper size
    step: FloatArray
    slope: FloatArray
    lower_slope: FloatArray

    def gap(self, medians: FloatArray) -> FloatArray:
        """The smaller of the two gaps; ``medians``: (..., sizes)."""
        gaps: FloatArray = np.minimum(medians @ self.gap_below, medians @ self.gap_above)
        return gaps


def _line_maps(x: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted least squares as maps (points,): values -> intercept, values -> slope."""
    weights = weights / weights.sum()
    centre = weights @ x
    slope = weights * (x - centre) / (weights @ (x - centre) ** 2)
    return weights - centre * slope, slope


def _break_after(last_lower: int, x: FloatArray, weights: FloatArray) -> _Break:
    n = len(x)
    first_upper = last_lower + 1
    lower, upper = slice(0, first_upper), slice(first_upper, n)
    maps = np.zeros((4, n))  # intercept and slope of the lower, then of the upper line
    maps[0, lower], maps[1, lower] = _line_maps(x[lower], weights[lower])
    maps[2, upper], maps[3, upper] = _line_maps(x[upper], weights[upper])

    def lower_at(size: float) -> FloatArray:
        line: FloatArray = maps[0] + maps[1] * size
        return line

    def upper_at(size: float) -> FloatArray:
        line: FloatArray = maps[2] + maps[3] * size
        return line

    fit = np.array([lower_at(s) if i <= last_lower else upper_at(s) for i, s in enumerate(x)])
    return _Break(
        last_lower=last_lower,
        fit=fit,
        gap_below=upper_at(x[last_lower]) - lower_at(x[last_lower]),
        gap_above=upper_at(x[first_upper]) - lower_at(x[first_upper]),
        step=upper_at(x[first_upper]) - lower_at(x[last_lower]),
        slope=maps[3],
        lower_slope=maps[1],
    )


def _block_medians(extra_us: FloatArray) -> FloatArray:
    rounds = len(extra_us)
    if rounds <= _MAX_BLOCKS:
        return extra_us
    edges = np.linspace(0, rounds, _MAX_BLOCKS + 1).astype(int)
    return np.array([_median(extra_us[a:b]) for a, b in itertools.pairwise(edges)])


def _median(extra_us: FloatArray) -> FloatArray:
    """Median over rounds (axis -2), missing pairs left out."""
    if not np.isnan(extra_us).any():
        medians: FloatArray = np.median(extra_us, axis=-2)
        return medians
    with warnings.catch_warnings():
        # A resample can miss every round of a size that few rounds measured; it stays NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        present: FloatArray = np.nanmedian(extra_us, axis=-2)
    return present


def _resampled_medians(extra_us: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Medians of resampled rounds, shape (resamples, sizes).

    Whole rounds are drawn, in blocks of neighbouring ones (the first follows
    the last), so that what sizes and rounds share stays together.
    """
    rounds, sizes = extra_us.shape
    length = math.ceil(rounds ** (1 / 3))
    blocks = -(-rounds // length)
    at_once = max(1, _CELLS_AT_ONCE // (rounds * sizes))
    parts = []
    for done in range(0, _RESAMPLES, at_once):
        count = min(at_once, _RESAMPLES - done)
        starts = rng.integers(0, rounds, size=(count, blocks, 1))
        draws = ((starts + np.arange(length)) % rounds).reshape(count, -1)[:, :rounds]
        parts.append(_median(extra_us[draws]))
    medians = np.concatenate(parts)
    return np.where(np.isnan(medians), _median(extra_us), medians)


def _percentile_estimate(value: float, resampled: FloatArray, rounds: int) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    lo, hi = np.quantile(resampled, (tail, 1 - tail))
    return Estimate(value, min(float(lo), value), max(float(hi), value), rounds)


def _persists(candidate: _Break, medians: FloatArray, x: FloatArray) -> bool:
    """Whether the sizes of either side keep to their side: one bad size is no threshold.

    The upper sizes must stay half a gap above the lower line (held level where
    it falls, or any far size would stay above it), the lower sizes half a gap
    below where the upper line meets the break.
    """
    last_lower, first_upper = candidate.last_lower, candidate.last_lower + 1
    half_gap = float(candidate.gap(medians)) / 2
    lower_end = float(candidate.fit[last_lower] @ medians)
    upper_end = lower_end + float(candidate.gap_below @ medians)
    rise = max(0.0, float(candidate.lower_slope @ medians))
    lower_line = lower_end + rise * (x[first_upper:] - x[last_lower])
    return _nearly_all(medians[first_upper:] - lower_line > half_gap) and _nearly_all(
        upper_end - medians[:first_upper] > half_gap
    )


def _nearly_all(holds: npt.NDArray[np.bool_]) -> bool:
    """All of up to three, of more three quarters."""
    return bool(holds.mean() >= (1.0 if len(holds) <= 3 else 0.75))


def find_step(sizes_mib: FloatArray, extra_us: FloatArray) -> Threshold | None:
    """The threshold in a matrix of extra cost, or None. Deterministic.

    ``sizes_mib``: (sizes,), ascending, at least four. ``extra_us``: (rounds,
    sizes), NaN where a round has no pair; at least six rounds and one value a
    size. Which resampling noise decides is fixed by a constant seed.
    """
    rng = np.random.default_rng(_SEED)
    rounds = len(extra_us)
    blocks = _block_medians(extra_us)
    medians = _median(extra_us)
    resampled = _resampled_medians(blocks, rng)
    least_error = np.maximum(_LEAST_ERROR_US, _LEAST_RELATIVE_ERROR * np.abs(medians))
    error = np.hypot(resampled.std(axis=0), least_error)
    weights = error**-2.0
    breaks = [
        _break_after(k, sizes_mib, weights)
        for k in range(MIN_SIZES_A_SIDE - 1, len(sizes_mib) - MIN_SIZES_A_SIDE)
    ]
    noise = resampled - medians

    def gap_error(candidate: _Break) -> float:
        return max(
            float(np.sqrt((noise @ gap).var() + (gap**2) @ (least_error**2)))
            for gap in (candidate.gap_below, candidate.gap_above)
        )

    errors = np.array([gap_error(candidate) for candidate in breaks])
    gaps = np.array([float(candidate.gap(medians)) for candidate in breaks])
    # What the largest significance is where the truth is one straight line with this noise.
    null_gaps = np.array([candidate.gap(noise) for candidate in breaks])
    null_significance = (null_gaps / errors[:, None]).max(axis=0)
    needed = max(_LEAST_SIGNIFICANCE, float(np.quantile(null_significance, _NULL_QUANTILE)))

    def scatter(candidate: _Break) -> float:
        """How far the medians lie from the lines, in their own standard errors (rms)."""
        residual = (medians - candidate.fit @ medians) / error
        freedom = max(1, len(medians) - _LINE_PARAMETERS)
        return float(np.sqrt((residual**2).sum() / freedom))

    def misfit(candidate: _Break) -> float:
        return float((np.abs(medians - candidate.fit @ medians) / error).sum())

    standing = [
        candidate
        for candidate, gap, gap_sd in zip(breaks, gaps, errors, strict=True)
        if gap > needed * gap_sd * max(1.0, scatter(candidate))
        and _persists(candidate, medians, sizes_mib)
    ]
    if not standing:
        return None
    best = min(standing, key=misfit)

    def estimate(linear: FloatArray) -> Estimate:
        return _percentile_estimate(float(medians @ linear), resampled @ linear, rounds)

    return Threshold(
        lower_mib=float(sizes_mib[best.last_lower]),
        upper_mib=float(sizes_mib[best.last_lower + 1]),
        step_us=estimate(best.step),
        slope_us_per_mib=estimate(best.slope),
        lower_slope_us_per_mib=estimate(best.lower_slope),
    )


def extra_matrix(
    columns: Columns, placed: list[Group], controls: list[Group], headline: str
) -> tuple[FloatArray, FloatArray]:
    """Sizes in MiB and extra cost in us, (rounds, sizes), NaN where a round has no pair.

    ``placed`` and ``controls`` are the groups of one placement and card state
    and their controls of the same attempt, index by index. Several pairs of a
    round (threads, devices) become their median.
    """
    times = times_ns(columns, headline)
    of_round = round_numbers(columns)
    sizes, parts = [], []
    for group, control in zip(placed, controls, strict=True):
        placed_rows, control_rows = pair_rows(columns, group, control)
        if not len(placed_rows):
            continue
        extra_us = (times[placed_rows] - times[control_rows]) / NS_PER_US
        parts.append(_median_by_round(of_round[placed_rows], extra_us))
        sizes.append(mib(group.condition.size_bytes))
    if not parts:
        return np.empty(0), np.empty((0, 0))
    first = parts[0][0]
    all_rounds = first
    if not all(np.array_equal(rounds, first) for rounds, _ in parts):
        all_rounds = np.unique(np.concatenate([rounds for rounds, _ in parts]))
    matrix = np.full((len(all_rounds), len(parts)), np.nan)
    for column, (rounds, extra_us) in enumerate(parts):
        matrix[np.searchsorted(all_rounds, rounds), column] = extra_us
    return np.array(sizes), matrix


def _median_by_round(rounds: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    if (rounds[1:] > rounds[:-1]).all():
        return rounds, values
    unique, first, counts = np.unique(rounds, return_index=True, return_counts=True)
    if (counts == 1).all():
        return unique, values[first]
    order = np.argsort(rounds, kind="stable")
    parts = np.split(values[order], np.cumsum(counts)[:-1])
    return unique, np.array([float(np.median(part)) for part in parts])


def find_thresholds(
    columns: Columns, headline: str, groups: list[Group] | None = None
) -> dict[Series, ThresholdSearch]:
    """A search for each placement, card state and level of a recording's samples.

    A recording of bursts comes with one row a burst (bursts.one_row_a_visit).
    ``groups``: the columns' groups by the headline, where they are known already.
    """
    if groups is None:
        groups = group_samples(columns, headline)
    chosen = headline_attempts(groups)
    by_key = {(group.condition, group.attempt): group for group in groups}
    curves: dict[Series, list[Group]] = {}
    for group in groups:
        condition = group.condition
        curve = curves.setdefault(condition.series, [])
        if group.attempt == chosen[condition]:
            curve.append(group)
    searches = {}
    for series, curve in curves.items():
        if series.is_control:
            searches[series] = ThresholdSearch(None, "plain is the control")
            continue
        paired = [
            (group, by_key[group.condition.control, group.attempt])
            for group in curve
            if (group.condition.control, group.attempt) in by_key
        ]
        sizes_mib, matrix = extra_matrix(
            columns, [p for p, _ in paired], [c for _, c in paired], headline
        )
        searches[series] = _search(sizes_mib, matrix)
    return searches


def _search(sizes_mib: FloatArray, extra_us: FloatArray) -> ThresholdSearch:
    if len(sizes_mib) < MIN_SIZES:
        return ThresholdSearch(None, f"it takes {MIN_SIZES} sizes, {MIN_SIZES_A_SIDE} on each side")
    if int((~np.isnan(extra_us)).sum(axis=0).min()) < MIN_ROUNDS:
        return ThresholdSearch(None, f"it takes {MIN_ROUNDS} rounds at every size")
    return ThresholdSearch(find_step(sizes_mib, extra_us))
