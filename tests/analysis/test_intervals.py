# SPDX-License-Identifier: MIT
"""Quantile intervals: exact coverage from the binomial, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.analysis.intervals import (
    MEDIAN_INTERVAL_MIN_N,
    P90_MIN_N,
    P99_MIN_N,
    Estimate,
    interval_ranks,
    median,
    p90,
    p99,
    quantile,
)
from vmmprof.analysis.precision import next_look, relative_half_width


def exact_coverage(n: int, q: float, lo: int, hi: int) -> float:
    """P(order statistic lo <= quantile <= order statistic hi), ranks from 0."""
    return sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(lo + 1, hi + 1))


@given(st.integers(1, 400), st.sampled_from([0.1, 0.5, 0.9, 0.99]))
def test_ranks_cover_at_least_the_confidence_or_are_none(n: int, q: float) -> None:
    ranks = interval_ranks(n, q)
    outside_all_samples = q**n + (1 - q) ** n
    if ranks is None:
        assert outside_all_samples > 0.05
        return
    lo, hi = ranks
    assert 0 <= lo < hi <= n - 1
    assert exact_coverage(n, q, lo, hi) >= 0.95
    # No wider than needed: giving up a rank at either end loses a tail's share.
    assert exact_coverage(n, q, lo + 1, hi) < 0.975
    assert exact_coverage(n, q, lo, hi - 1) < 0.975


def test_ranks_of_ten_million_samples_follow_the_normal_approximation() -> None:
    n = 10_000_000
    lo, hi = interval_ranks(n, 0.5) or (0, 0)
    half_width = 1.959964 * math.sqrt(n) / 2
    assert lo == pytest.approx(n / 2 - half_width, abs=2)
    assert hi == pytest.approx(n / 2 + half_width, abs=2)


@pytest.mark.parametrize(
    ("n", "noise"),
    [(30, "normal"), (30, "cauchy"), (300, "normal"), (300, "exponential")],
)
def test_intervals_of_the_median_cover_93_to_97_percent(n: int, noise: str) -> None:
    """Independent samples of any distribution, 20000 machines: error of the rate is 0.15 %."""
    rng = np.random.default_rng(1)
    shape = (20_000, n)
    samples, truth = {
        "normal": lambda: (rng.standard_normal(shape), 0.0),
        "cauchy": lambda: (rng.standard_cauchy(shape), 0.0),
        "exponential": lambda: (rng.standard_exponential(shape), math.log(2)),
    }[noise]()
    lo, hi = interval_ranks(n, 0.5) or (0, 0)
    ordered = np.sort(samples, axis=1)
    covered = np.mean((ordered[:, lo] <= truth) & (truth <= ordered[:, hi]))
    assert 0.93 <= covered <= 0.97


def autoregressive(rng: np.random.Generator, machines: int, n: int, rho: float) -> np.ndarray:
    """Normal AR(1) series around zero, (machines, n), started in equilibrium."""
    shocks = rng.standard_normal((n, machines))
    series = np.empty((n, machines))
    series[0] = shocks[0] / math.sqrt(1 - rho**2)
    for t in range(1, n):
        series[t] = rho * series[t - 1] + shocks[t]
    return series.T


def coverage(series: np.ndarray) -> tuple[float, float]:
    """Share of given intervals that hold the true median 0, and share without an interval."""
    rounds = np.arange(series.shape[1])
    estimates = [median(values, rounds) for values in series]
    given = [e for e in estimates if e.has_interval]
    return float(np.mean([e.lo <= 0 <= e.hi for e in given])), 1 - len(given) / len(estimates)


@pytest.mark.parametrize(
    ("n", "rho", "least"),
    [(30, 0.0, 0.93), (300, 0.0, 0.93), (300, 0.3, 0.93), (300, 0.8, 0.93), (30, 0.8, 0.85)],
)
def test_block_intervals_cover_where_rounds_are_correlated(
    n: int, rho: float, least: float
) -> None:
    """1000 machines: error of the rate is 0.7 %. 30 rounds of AR(1) 0.8 hold too little."""
    covered, without = coverage(autoregressive(np.random.default_rng(3), 1000, n, rho))
    assert least <= covered <= 0.98
    assert without <= 0.05


def test_taking_correlated_rounds_for_independent_would_not_cover() -> None:
    series = autoregressive(np.random.default_rng(4), 500, 300, 0.8)
    covered = np.mean([e.lo <= 0 <= e.hi for e in map(median, series)])
    assert covered < 0.7


def test_threads_of_one_round_are_not_taken_for_independent() -> None:
    """Eight threads that share their round's luck know no more than the rounds do."""
    rng = np.random.default_rng(5)
    rounds = np.repeat(np.arange(100), 8)
    covered = []
    for _ in range(500):
        values = np.repeat(rng.standard_normal(100), 8) + 0.1 * rng.standard_normal(800)
        estimate = median(values, rounds)
        covered.append(estimate.lo <= 0 <= estimate.hi)
    assert 0.92 <= np.mean(covered) <= 0.99


def test_median_takes_the_ranked_samples_as_ends() -> None:
    values = np.arange(30.0)[::-1].copy()
    assert median(values) == Estimate(14.5, 9.0, 20.0, 30)


def test_no_interval_below_six_samples() -> None:
    assert not median(np.arange(MEDIAN_INTERVAL_MIN_N - 1.0)).has_interval
    assert median(np.arange(float(MEDIAN_INTERVAL_MIN_N))).has_interval


def test_tail_quantiles_wait_for_the_samples_that_support_them() -> None:
    assert p90(np.arange(P90_MIN_N - 1.0)) is None
    supported = p90(np.arange(float(P90_MIN_N)))
    assert supported is not None and supported.has_interval
    assert p99(np.arange(P99_MIN_N - 1.0)) is None
    supported = p99(np.arange(float(P99_MIN_N)))
    assert supported is not None and supported.has_interval and supported.hi < P99_MIN_N - 1


def test_p90_of_30_samples_covers() -> None:
    rng = np.random.default_rng(2)
    ordered = np.sort(rng.random((20_000, 30)), axis=1)
    lo, hi = interval_ranks(30, 0.9) or (0, 0)
    assert 0.95 <= np.mean((ordered[:, lo] <= 0.9) & (ordered[:, hi] >= 0.9)) <= 0.97


def test_relative_half_width() -> None:
    shuffled = np.random.default_rng(6).permutation(30).astype(float)
    assert relative_half_width(shuffled) == pytest.approx(5.5 / 14.5)
    assert relative_half_width(np.arange(30.0)) > 9 / 14.5, "a trend is known less well"
    assert relative_half_width(np.full(30, 7.0)) == 0.0
    assert relative_half_width(np.full(3, 7.0)) == math.inf
    assert relative_half_width(np.empty(0)) == math.inf


def test_looks_are_at_30_and_each_doubling() -> None:
    assert [next_look(n) for n in (0, 29, 30, 59, 60, 120)] == [30, 30, 60, 60, 120, 240]


def test_scaling_keeps_the_count() -> None:
    assert quantile(np.arange(30.0), 0.5).scaled(2.0) == Estimate(29.0, 18.0, 40.0, 30)
