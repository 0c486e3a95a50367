# SPDX-License-Identifier: MIT
"""What is measured a second time: shifts within a run, sizes off their neighbours' lines."""

from __future__ import annotations

import numpy as np

from vmmprof.analysis.remeasure import candidates, halves_disagree, leaves_neighbours
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.sizes import MIB

from .synthetic import (
    ARITHMETIC_MIB,
    GEOMETRIC_MIB,
    FloatArray,
    b300_extra_us,
    plain_us,
    samples,
)

DOMAIN0 = Placement(domain=0)


def quiet_matrices(sizes: FloatArray, rounds: int = 30) -> dict[str, FloatArray]:
    rng = np.random.default_rng(20)
    plain = plain_us(sizes) + rng.normal(0, 0.5, (rounds, len(sizes)))
    placed = plain_us(sizes) + b300_extra_us(sizes) + rng.normal(0, 0.5, (rounds, len(sizes)))
    return {"device": plain, "domain:0": placed}


def test_a_shift_within_the_run_brings_the_condition_and_its_control() -> None:
    matrices = quiet_matrices(ARITHMETIC_MIB)
    matrices["domain:0"][15:, 3] += 10
    found = candidates(samples(matrices, ARITHMETIC_MIB), "total")
    size = int(ARITHMETIC_MIB[3]) * MIB
    assert [(c.condition, c.reason) for c in found] == [
        (Condition(PLAIN, size), "control of domain:0 36 MiB"),
        (Condition(DOMAIN0, size), "first and second half differ"),
    ]


def test_a_bad_control_comes_alone() -> None:
    """The paper's 60 MiB baseline point: far off its neighbours, and it did not reproduce."""
    matrices = quiet_matrices(ARITHMETIC_MIB)
    matrices["device"][:, 15] += 50
    found = candidates(samples(matrices, ARITHMETIC_MIB), "total")
    assert [c.condition for c in found] == [Condition(PLAIN, 60 * MIB)]
    assert found[0].reason == "over 5 spreads off the neighbouring sizes"


def test_a_true_step_and_smooth_curves_trigger_nothing() -> None:
    for sizes in (ARITHMETIC_MIB, GEOMETRIC_MIB):
        assert candidates(samples(quiet_matrices(sizes), sizes), "total") == []


def test_noise_free_samples_of_a_model_trigger_nothing() -> None:
    for sizes in (ARITHMETIC_MIB, GEOMETRIC_MIB):
        plain = np.tile(plain_us(sizes), (30, 1))
        frame = samples({"device": plain, "domain:0": plain + b300_extra_us(sizes)}, sizes)
        assert candidates(frame, "total") == []


def test_halves_of_one_machine_rarely_disagree() -> None:
    rng = np.random.default_rng(21)
    disagree = [halves_disagree(rng.standard_cauchy(30)) for _ in range(2000)]
    assert np.mean(disagree) < 0.02
    assert not halves_disagree(np.arange(11.0)), "five samples a half support no interval"
    assert halves_disagree(np.arange(12.0))


def test_only_a_size_that_no_neighbours_line_explains_leaves() -> None:
    sizes = np.arange(1.0, 8.0)
    spreads = np.ones(7)
    off = 100 * sizes
    off[3] += 30
    assert leaves_neighbours(sizes, off, spreads) == [i == 3 for i in range(7)]
    off[3] -= 28
    assert not any(leaves_neighbours(sizes, off, spreads)), "within five spreads"


def test_no_samples_give_no_candidates() -> None:
    frame = samples(quiet_matrices(ARITHMETIC_MIB), ARITHMETIC_MIB)
    assert candidates(frame.iloc[:0], "total") == []
