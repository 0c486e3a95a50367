# SPDX-License-Identifier: MIT
"""Quantiles with 95 % intervals that assume no distribution (docs/method.md).

The interval of a quantile runs from one order statistic to another: the number
of independent samples below the true quantile is binomial, whatever the
samples' distribution, so the two ranks follow from n alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# From here on a 95 % interval of the median exists: 2 * 0.5 ** 6 <= 0.05.
MEDIAN_INTERVAL_MIN_N = 6
# From here on a two-sided 95 % interval of P90 exists: 0.9 ** 29 <= 0.05.
P90_MIN_N = 29
# Ten samples lie beyond P99. An interval exists from n = 299 on, but it ends at the maximum.
P99_MIN_N = 1000
# The binomial's mass further than this many standard deviations out is below 1e-20.
_BINOMIAL_REACH_SD = 10


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


def quantile(values: FloatArray, q: float) -> Estimate:
    """Quantile ``q`` of independent samples with its order-statistic interval.

    ``values``: shape (n,), finite, n >= 1. The point estimate interpolates
    linearly between order statistics (numpy's default).
    """
    n = len(values)
    value = float(np.quantile(values, q))
    ranks = interval_ranks(n, q)
    if ranks is None:
        return Estimate(value, math.nan, math.nan, n)
    ends = np.partition(values, ranks)[list(ranks)]
    return Estimate(value, float(ends[0]), float(ends[1]), n)


def median(values: FloatArray) -> Estimate:
    """Median of independent samples with its order-statistic interval."""
    return quantile(values, 0.5)


def p90(values: FloatArray) -> Estimate | None:
    """P90, or None below the n from which its 95 % interval exists."""
    return quantile(values, 0.9) if len(values) >= P90_MIN_N else None


def p99(values: FloatArray) -> Estimate | None:
    """P99, or None when fewer than ten samples lie beyond it (n < 1000)."""
    return quantile(values, 0.99) if len(values) >= P99_MIN_N else None
