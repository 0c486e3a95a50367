# SPDX-License-Identifier: MIT
"""Quantiles with 95 % intervals that assume no distribution (docs/method.md).

The interval of a quantile runs from one order statistic to another: the number
of independent samples below the true quantile is binomial, whatever the
samples' distribution, so the two ranks follow from n alone. Where rounds are
correlated that number varies more; how much more, blocks of rounds tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.signedinteger]

CONFIDENCE = 0.95
# From here on a 95 % interval of the median exists: 2 * 0.5 ** 6 <= 0.05.
MEDIAN_INTERVAL_MIN_N = 6
# From here on a two-sided 95 % interval of P90 exists: 0.9 ** 29 <= 0.05.
P90_MIN_N = 29
# Ten samples lie beyond P99. An interval exists from n = 299 on, but it ends at the maximum.
P99_MIN_N = 1000
# The binomial's mass further than this many standard deviations out is below 1e-20.
_BINOMIAL_REACH_SD = 10


# Correlated rounds are resampled in this many blocks; few and long, or blocks cut correlation.
_BLOCKS = 6
# Student's t at 97.5 % for overlapping sixths: 1.5 * (6 - 1) = 7.5 degrees of freedom.
_BLOCK_STUDENT = 2.335
# Neighbouring rounds count as correlated from one standard deviation of no correlation on: taking
# independent rounds for correlated widens their interval a little, the reverse halves coverage.
_CORRELATED_SD = 1.0


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval and the number of samples behind it.

    ``lo`` and ``hi`` are NaN where ``n`` samples support no 95 % interval
    (fewer than six for a median). Value and ends share the input's unit.
    """

    value: float
    lo: float
    hi: float
    n: int

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.lo) or math.isnan(self.hi))

    @property
    def relative_half_width(self) -> float:
        """Half the interval's width over the value; infinite without an interval."""
        if not self.has_interval:
            return math.inf
        half_width = (self.hi - self.lo) / 2
        if half_width == 0:
            return 0.0
        return half_width / abs(self.value) if self.value else math.inf

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in another unit (``factor`` > 0)."""
        return Estimate(self.value * factor, self.lo * factor, self.hi * factor, self.n)


def _binomial_pmf(n: int, p: float) -> tuple[int, FloatArray]:
    """First k and the probabilities from there on, within reach of the mean."""
    reach = _BINOMIAL_REACH_SD * math.sqrt(n * p * (1 - p)) + 1
    first = max(0, math.floor(n * p - reach))
    last = min(n, math.ceil(n * p + reach))
    k = np.arange(first, last, dtype=np.float64)
    log_ratios = np.log((n - k) / (k + 1)) + math.log(p / (1 - p))
    log_pmf = np.concatenate([[0.0], np.cumsum(log_ratios)])
    pmf = np.exp(log_pmf - log_pmf.max())
    return first, pmf / pmf.sum()


@lru_cache(maxsize=4096)
def interval_ranks(n: int, q: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Ranks (from 0) of the order statistics that hold quantile ``q`` with ``confidence``.

    The tails are kept at half the error each where both ends exist; a quantile
    too far out for that gives its outer end to the extreme sample and spends
    what is left on the other end. None when no pair of ranks reaches the
    confidence.
    """
    if n < 1:
        return None
    error = 1 - confidence
    first, pmf = _binomial_pmf(n, q)
    below = np.cumsum(pmf)  # below[i] = P(B <= first + i), B = samples under the quantile
    above = np.cumsum(pmf[::-1])[::-1]  # above[i] = P(B >= first + i)

    def lowest(tail: float) -> int:
        """Largest rank whose order statistic lies above the quantile with at most ``tail``."""
        return first + int(np.searchsorted(below, tail, side="right")) - 1

    def highest(tail: float) -> int:
        """Smallest rank whose order statistic lies below the quantile with at most ``tail``."""
        return first + int(np.searchsorted(-above, -tail, side="left")) - 1

    below_all, above_all = (1 - q) ** n, q**n  # the quantile lies outside all samples
    if below_all + above_all > error:
        return None
    if below_all > error / 2:
        return 0, highest(error - below_all)
    if above_all > error / 2:
        return lowest(error - above_all), n - 1
    return lowest(error / 2), highest(error / 2)


def _later_rounds_tell(rounds_below: FloatArray) -> bool:
    """Whether the share of samples below the median in one round tells about the next."""
    shares = rounds_below - rounds_below.mean()
    spread = float((shares * shares).sum())
    if spread == 0 or len(shares) < 3:
        return False
    correlation = float((shares[1:] * shares[:-1]).sum()) / spread
    return correlation * math.sqrt(len(shares)) > _CORRELATED_SD


def _block_half_width(per_round: FloatArray) -> float:
    """Half the 95 % interval of a count's sum over rounds, by blocks of neighbouring rounds.

    ``per_round``: each round's count less its expectation, shape (rounds,).
    The spread of the sum is what resampling blocks of rounds gives, in closed
    form: that of the sums of all overlapping blocks.
    """
    rounds = len(per_round)
    length = max(1, round(rounds / _BLOCKS))
    sums = np.concatenate([[0.0], np.cumsum(per_round)])
    block_sums = sums[length:] - sums[:-length]
    variance_a_round = float(np.mean(block_sums**2)) / length / (1 - length / rounds)
    return _BLOCK_STUDENT * math.sqrt(rounds * variance_a_round)


def _sums_by_round(values: FloatArray, rounds: IntArray) -> FloatArray:
    if (rounds[1:] > rounds[:-1]).all():
        return values
    _, of_round = np.unique(rounds, return_inverse=True)
    return np.bincount(of_round, weights=values).astype(np.float64)


def _ranks_by_rounds(
    values: FloatArray,
    value: float,
    q: float,
    rounds: IntArray,
    independent: tuple[int, int],
) -> tuple[int, int] | None:
    """Ranks that hold the quantile when rounds are correlated or hold several samples.

    ``independent``: the ranks that would do for independent samples.
    """
    n = len(values)
    weights = (values < value) + 0.5 * (values == value)
    below = _sums_by_round(weights - weights.mean(), rounds)
    if len(below) == n and not _later_rounds_tell(below):
        return independent
    if len(below) < _BLOCKS:
        return None
    half_width = _block_half_width(below)
    lo = min(independent[0], math.floor(n * q - half_width) - 1)
    hi = max(independent[1], math.ceil(n * q + half_width))
    return (lo, hi) if lo >= 0 and hi <= n - 1 else None


def quantile(values: FloatArray, q: float, rounds: IntArray | None = None) -> Estimate:
    """Quantile ``q`` with the 95 % interval between two order statistics.

    ``values``: shape (n,), finite, n >= 1. ``rounds``: the round of each
    value, ascending; without it the values are taken as independent. With it,
    the interval is widened where rounds are correlated or hold several values
    (docs/method.md). The point estimate interpolates linearly between order
    statistics (numpy's default).
    """
    n = len(values)
    independent = interval_ranks(n, q)
    at = (n - 1) * q
    below, above = math.floor(at), math.ceil(at)
    ordered = np.partition(values, (below, above, *(independent or ())))
    low, high = float(ordered[below]), float(ordered[above])
    # A file may hold infinities; their difference is no number.
    value = low if low == high else low + (high - low) * (at - below)
    ranks = independent
    if rounds is not None and independent is not None:
        ranks = _ranks_by_rounds(values, value, q, rounds, independent)
    if ranks is None:
        return Estimate(value, math.nan, math.nan, n)
    if ranks != independent:
        ordered = np.partition(ordered, ranks)
    return Estimate(value, float(ordered[ranks[0]]), float(ordered[ranks[1]]), n)


def median(values: FloatArray, rounds: IntArray | None = None) -> Estimate:
    """Median with its interval; arguments as for :func:`quantile`."""
    return quantile(values, 0.5, rounds)


def p90(values: FloatArray, rounds: IntArray | None = None) -> Estimate | None:
    """P90, or None below the n from which its 95 % interval exists."""
    return quantile(values, 0.9, rounds) if len(values) >= P90_MIN_N else None


def p99(values: FloatArray, rounds: IntArray | None = None) -> Estimate | None:
    """P99, or None when fewer than ten samples lie beyond it (n < 1000)."""
    return quantile(values, 0.99, rounds) if len(values) >= P99_MIN_N else None
