# SPDX-License-Identifier: MIT
"""Verdicts: pairs inside a recording, extra cost between recordings, and what is ambiguous."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vmmprof.analysis.arms import Arm, ArmRecording, Cell
from vmmprof.analysis.compare import (
    Row,
    Verdict,
    compare,
    default_baseline,
    slower_rows,
)
from vmmprof.analysis.groups import placement_of
from vmmprof.analysis.student import two_sided_95
from vmmprof.operations import RM_ALLOC
from vmmprof.recording.reader import Recording
from vmmprof.sizes import MIB

from ..report.recordings import environment, frame
from .synthetic import FloatArray, samples

SIZE = np.array([64.0])
CELL = Cell(64 * MIB, "total")


def recording(name: str, times: dict[str, FloatArray], **facts: Any) -> Recording:
    rows = frame([samples(times, SIZE, attempt=1, operation=RM_ALLOC)])
    return Recording(Path(name), rows, environment(**facts), RM_ALLOC)


def arm(name: str, placement: str, *recordings: Recording) -> Arm:
    where = placement_of(placement)
    return Arm(name, where, tuple(ArmRecording(one, where) for one in recordings))


def one_row(arms: list[Arm], margin: float = 0.05) -> Row:
    return compare(arms, arms[0], margin).row(arms[-1].name, CELL)


def two_placements(
    rng: np.random.Generator, extra_us: float, *, drift_us: float = 0.0, noise_us: float = 1.0
) -> dict[str, FloatArray]:
    shape = (30, 1)
    drift = np.cumsum(rng.normal(0, drift_us, shape), axis=0)
    return {
        "device": 200 + drift + rng.normal(0, noise_us, shape),
        "domain:0": 200 + extra_us + drift + rng.normal(0, noise_us, shape),
    }


@pytest.mark.parametrize(
    ("extra_us", "verdict"), [(50.0, "slower"), (-50.0, "faster"), (0.0, "same")]
)
def test_arms_of_one_recording_are_compared_pair_by_pair(extra_us: float, verdict: str) -> None:
    """A drift far above the difference cancels."""
    rng = np.random.default_rng(40)
    one = recording("one", two_placements(rng, extra_us, drift_us=10.0))
    row = one_row([arm("off", "device", one), arm("on", "domain:0", one)])
    assert row.verdict == verdict
    assert row.gain is not None and row.gain.n == 30
    assert "30 pairs of one round" in row.reason


def test_effect_is_the_share_of_wins() -> None:
    control = np.full((10, 1), 100.0)
    placed = control + np.array([[-1.0]] * 7 + [[1.0]] * 2 + [[0.0]])
    one = recording("one", {"device": control, "domain:0": placed})
    row = one_row([arm("off", "device", one), arm("on", "domain:0", one)])
    assert row.effect == pytest.approx(0.75)


def test_noise_wider_than_the_margin_is_ambiguous_not_same() -> None:
    rng = np.random.default_rng(41)
    one = recording("one", two_placements(rng, 0.0, noise_us=100.0))
    row = one_row([arm("off", "device", one), arm("on", "domain:0", one)])
    assert row.verdict is Verdict.AMBIGUOUS
    assert "the interval holds both none and over 5 %" in row.reason


def reloads(
    rng: np.random.Generator, extras_us: tuple[float, ...], *, reload_us: float = 5.0
) -> list[Recording]:
    """One recording a reload; every reload moves level and extra cost by its own amount."""
    made = []
    for i, extra_us in enumerate(extras_us):
        level = rng.normal(0, 40)
        times = two_placements(rng, extra_us + rng.normal(0, reload_us))
        made.append(
            recording(
                f"r{rng.integers(1 << 30)}-{i}",
                {name: values + level for name, values in times.items()},
                started=f"2026-11-30T10:0{i}",
            )
        )
    return made


def test_one_recording_an_arm_is_ambiguous_however_clear_it_looks() -> None:
    rng = np.random.default_rng(42)
    old, new = reloads(rng, (500.0, 50.0))
    row = one_row([arm("old", "domain:0", old), arm("new", "domain:0", new)])
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, "one recording an arm")
    assert row.gain is not None and row.gain.value > 2, "the point estimate is still shown"


def test_alternated_recordings_are_compared_by_extra_cost() -> None:
    rng = np.random.default_rng(43)
    a1, b1, b2, a2 = reloads(rng, (500.0, 50.0, 50.0, 500.0))
    row = one_row([arm("old", "domain:0", a1, a2), arm("new", "domain:0", b1, b2)])
    assert row.verdict is Verdict.FASTER
    assert row.gain is not None and row.gain.value == pytest.approx(700 / 250, rel=0.1)
    assert row.effect == 1.0
    assert row.reason == "extra over plain, 2 against 2 recordings"


def test_levels_that_differ_between_recordings_are_not_a_difference() -> None:
    """The control moves by hundreds of us between reloads; the extra cost does not."""
    rng = np.random.default_rng(44)
    slow = reloads(rng, (50.0, 50.0), reload_us=0.1)
    fast = reloads(rng, (50.0, 50.0), reload_us=0.1)
    row = one_row([arm("old", "domain:0", *slow), arm("new", "domain:0", *fast)])
    assert row.verdict is Verdict.SAME


def test_same_is_called_different_at_most_5_percent_across_reloads() -> None:
    """A B B A with a reload effect of 20 us in extra cost, 100 machines."""
    rng = np.random.default_rng(45)
    wrong = 0
    machines = 100
    for _ in range(machines):
        a1, b1, b2, a2 = reloads(rng, (50.0,) * 4, reload_us=20.0)
        row = one_row([arm("old", "domain:0", a1, a2), arm("new", "domain:0", b1, b2)])
        wrong += row.verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong / machines <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / machines)


def test_the_control_is_not_compared_across_recordings() -> None:
    rng = np.random.default_rng(46)
    a1, b1, b2, a2 = reloads(rng, (50.0,) * 4)
    row = one_row([arm("old", "device", a1, a2), arm("new", "device", b1, b2)])
    assert row.verdict is Verdict.AMBIGUOUS
    assert "plain is the control" in row.reason


def test_arms_that_were_not_alternated_are_named() -> None:
    rng = np.random.default_rng(47)
    a1, a2, b1, b2 = reloads(rng, (50.0,) * 4)
    arms = [arm("old", "domain:0", a1, a2), arm("new", "domain:0", b1, b2)]
    assert any("not alternated" in caution for caution in compare(arms, arms[0]).cautions)
    arms = [arm("old", "domain:0", a1, b2), arm("new", "domain:0", a2, b1)]
    assert compare(arms, arms[0]).cautions == ()


def test_models_need_no_second_recording() -> None:
    exact = {"device": np.full((30, 1), 200.0), "domain:0": np.full((30, 1), 700.0)}
    better = exact | {"domain:0": np.full((30, 1), 250.0)}
    old, new = (recording(n, t, is_model=True) for n, t in (("o", exact), ("n", better)))
    row = one_row([arm("old", "domain:0", old), arm("new", "domain:0", new)])
    assert row.verdict is Verdict.FASTER
    assert row.gain is not None and row.gain.value == pytest.approx(2.8)


def test_only_what_says_something_about_conditions_differs() -> None:
    times = {"device": np.full((6, 1), 200.0)}
    one = recording("one", times, nvidia_module={"build_id": "aa"}, started="10:00")
    two = recording("two", times, nvidia_module={"build_id": "bb"}, started="11:00")
    arms = [arm("a", "device", one), arm("b", "device", two)]
    differences = compare(arms, arms[0]).differences
    assert [(d.fact, d.values) for d in differences] == [
        ("nvidia_module.build_id", {"one": "aa", "two": "bb"})
    ]


def test_default_baseline_is_the_unpatched_arm_with_the_last_placement() -> None:
    rng = np.random.default_rng(48)
    one, two = reloads(rng, (50.0, 50.0))
    off, on, ab = arm("off", "device", one), arm("on", "domain:0", one), arm("ab", "domain:0", two)
    assert default_baseline([off, on, ab]) is on
    assert default_baseline([off, on]) is off
    assert default_baseline([on, ab]) is on


def test_slower_counts_from_the_limit_on() -> None:
    rng = np.random.default_rng(49)
    one = recording("one", two_placements(rng, 50.0))
    arms = [arm("off", "device", one), arm("on", "domain:0", one)]
    comparison = compare(arms, arms[0])
    assert [row.arm for row in slower_rows(comparison, "total", 0.05)] == ["on"]
    assert slower_rows(comparison, "total", 0.30) == []


def test_students_t() -> None:
    assert two_sided_95(2) == 4.303
    assert two_sided_95(11) == pytest.approx(2.201, abs=2e-3)
    assert two_sided_95(30) == pytest.approx(2.042, abs=1e-3)
