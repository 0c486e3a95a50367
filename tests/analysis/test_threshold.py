# SPDX-License-Identifier: MIT
"""The threshold: found on steps, within one step, and not found where there is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vmmprof.analysis.threshold import Threshold, find_step, find_thresholds
from vmmprof.placement import PLAIN, Placement, Series

from .synthetic import (
    ARITHMETIC_MIB,
    GEOMETRIC_MIB,
    FloatArray,
    b300_extra_us,
    heavy_tailed,
    noisy_matrix,
    plain_us,
    random_walk,
    samples,
)

Curve = Callable[[FloatArray], FloatArray]

TABLE6_MIB = np.array([2.0, 32, 34, 64, 512, 1024])
GRIDS = {"arithmetic": ARITHMETIC_MIB, "geometric": GEOMETRIC_MIB, "table6": TABLE6_MIB}
BRACKETS = {"arithmetic": (32, 34), "geometric": (32, 64), "table6": (32, 34)}

NO_THRESHOLD: dict[str, Curve] = {
    "nothing": np.zeros_like,
    "flat": lambda x: np.full_like(x, 22.0),
    "linear from the origin": lambda x: 10.4 * x,
    "linear above a base": lambda x: 750 + 8.0 * x,
    "bend without a step": lambda x: np.where(x <= 32, 22.0, 22 + 10.4 * (x - 32)),
    "quadratic": lambda x: 0.05 * x**2,
    "square root": lambda x: 40 * np.sqrt(x),
    "one bad size": lambda x: np.where(x == x[-3], 122.0, 22.0),
    "one bad size, second": lambda x: np.where(x == x[1], -78.0, 22.0),
}


def bracket(found: Threshold | None) -> tuple[float, float] | None:
    return None if found is None else (found.lower_mib, found.upper_mib)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("rounds", [10, 30])
def test_found_within_one_step_under_heavy_tails(grid: str, rounds: int) -> None:
    rng = np.random.default_rng(3)
    sizes = GRIDS[grid]
    found = [
        bracket(find_step(sizes, noisy_matrix(b300_extra_us, sizes, rounds, rng, 10.0)))
        for _ in range(25)
    ]
    assert found == [BRACKETS[grid]] * len(found)


def test_step_and_slope_are_the_truth_within_their_intervals() -> None:
    """95 % of 200 machines, less four standard errors of that rate."""
    rng = np.random.default_rng(4)
    hits = np.zeros(2)
    machines = 200
    for _ in range(machines):
        found = find_step(ARITHMETIC_MIB, noisy_matrix(b300_extra_us, ARITHMETIC_MIB, 30, rng, 5.0))
        assert found is not None
        hits += [
            found.step_us.lo <= 335.0 <= found.step_us.hi,
            found.slope_us_per_mib.lo <= 10.4 <= found.slope_us_per_mib.hi,
        ]
    assert (hits / machines >= 0.88).all()


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", NO_THRESHOLD)
def test_not_found_where_there_is_none(grid: str, name: str) -> None:
    """At most 5 % of 40 machines."""
    rng = np.random.default_rng(5)
    sizes = GRIDS[grid]
    found = [
        find_step(sizes, noisy_matrix(NO_THRESHOLD[name], sizes, rounds, rng, 3.0)) is not None
        for rounds in (8, 30)
        for _ in range(20)
    ]
    assert sum(found) <= 2


def test_pure_heavy_tailed_noise_is_rarely_a_threshold() -> None:
    rng = np.random.default_rng(6)
    found = [
        find_step(ARITHMETIC_MIB, 10 * rng.standard_cauchy((30, len(ARITHMETIC_MIB))))
        for _ in range(100)
    ]
    assert sum(one is not None for one in found) <= 2


@pytest.mark.parametrize("grid", GRIDS)
def test_noise_free_samples_of_a_model(grid: str) -> None:
    sizes = GRIDS[grid]
    found = find_step(sizes, np.tile(b300_extra_us(sizes), (30, 1)))
    assert bracket(found) == BRACKETS[grid]
    for name, curve in NO_THRESHOLD.items():
        assert find_step(sizes, np.tile(curve(sizes), (30, 1))) is None, name


def test_a_bad_size_above_the_step_does_not_hide_it() -> None:
    rng = np.random.default_rng(7)
    matrix = noisy_matrix(b300_extra_us, ARITHMETIC_MIB, 30, rng, 2.0)
    matrix[:, -4] -= 100  # a control measured too slow, as the paper's 60 MiB point
    assert bracket(find_step(ARITHMETIC_MIB, matrix)) == (32, 34)


def test_missing_pairs_and_unequal_n_do_not_matter() -> None:
    rng = np.random.default_rng(8)
    matrix = noisy_matrix(b300_extra_us, ARITHMETIC_MIB, 60, rng, 2.0)
    matrix[30:, ::2] = np.nan
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    found = find_step(ARITHMETIC_MIB, matrix)
    assert bracket(found) == (32, 34)
    assert found == find_step(ARITHMETIC_MIB, matrix), "the search is deterministic"


def test_many_rounds_are_gathered_into_blocks() -> None:
    rng = np.random.default_rng(9)
    matrix = noisy_matrix(b300_extra_us, TABLE6_MIB, 20_000, rng, 10.0)
    found = find_step(TABLE6_MIB, matrix)
    assert bracket(found) == (32, 34)
    assert found is not None and found.step_us.n == 20_000


def drifting_recording(step: bool) -> object:
    """Rounds drift by far more than the step; every condition of a round drifts along."""
    rng = np.random.default_rng(10)
    rounds = 30
    drift = 100 * np.abs(random_walk(rng, rounds, 3.0))[:, None]
    noise = lambda: heavy_tailed(rng, (rounds, len(ARITHMETIC_MIB)))  # noqa: E731
    plain = 1000 + plain_us(ARITHMETIC_MIB) + drift + noise()
    extra = b300_extra_us(ARITHMETIC_MIB) if step else np.full_like(ARITHMETIC_MIB, 22.0)
    placed = 1000 + plain_us(ARITHMETIC_MIB) + extra + drift + noise()
    return samples({"device": plain, "domain:0": placed}, ARITHMETIC_MIB)


def test_drift_is_in_both_of_a_pair() -> None:
    searches = find_thresholds(drifting_recording(step=True), "total")
    assert bracket(searches[Series(Placement(domain=0))].threshold) == (32, 34)
    flat = find_thresholds(drifting_recording(step=False), "total")
    assert flat[Series(Placement(domain=0))].threshold is None


def test_plain_has_none_by_definition() -> None:
    searches = find_thresholds(drifting_recording(step=True), "total")
    plain = searches[Series(PLAIN)]
    assert plain.threshold is None
    assert plain.reason == "plain is the control"


@pytest.mark.parametrize(
    ("sizes", "rounds", "reason"),
    [
        (np.array([32.0, 34, 64]), 30, "it takes 4 sizes, 2 on each side"),
        (ARITHMETIC_MIB, 5, "it takes 6 rounds at every size"),
    ],
)
def test_too_little_data_is_said(sizes: FloatArray, rounds: int, reason: str) -> None:
    plain = np.tile(plain_us(sizes), (rounds, 1))
    frame = samples({"device": plain, "domain:0": plain + b300_extra_us(sizes)}, sizes)
    search = find_thresholds(frame, "total")[Series(Placement(domain=0))]
    assert (search.threshold, search.reason) == (None, reason)
