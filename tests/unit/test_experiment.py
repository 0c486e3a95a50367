# SPDX-License-Identifier: MIT
"""The runner on a driver without a device: order, stopping, failures, what is given back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.fake_driver import OUT_OF_MEMORY, STICKY, FakeDriver
from vmmprof.analysis.summary import summarise
from vmmprof.drivers.protocol import NO_TIME_NS
from vmmprof.errors import ExitCode, NothingMeasuredError, UsageError
from vmmprof.experiment.plan import make_plan
from vmmprof.experiment.runner import Options
from vmmprof.experiment.schedule import interleaved, state_blocks
from vmmprof.experiment.session import Request, Result, measure
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import PLAIN, Condition, Level, Placement
from vmmprof.recording.reader import load
from vmmprof.recording.schema import Flag
from vmmprof.sizes import KIB, MIB

DOMAIN_0, DOMAIN_1 = Placement(0), Placement(1)


def run(
    driver: FakeDriver,
    tmp_path: Path,
    sizes: tuple[int, ...] = (2 * MIB, 4 * MIB),
    placements: list[str] | None = None,
    scatter: bool = False,
    **options: object,
) -> tuple[Result, pd.DataFrame]:
    settings: dict[str, object] = {"repeats": 6, "warmup": 1} | options
    request = Request(
        sizes=sizes,
        placements=placements,
        scatter=scatter,
        options=Options(**settings),  # type: ignore[arg-type]
        pin="none",
        lock=False,
        device=0,
        output=tmp_path / f"r{len(list(tmp_path.iterdir()))}.vmmprof",
        command=["vmmprof", "sweep"],
        facts={},
    )
    result = measure(driver, request, lambda plan: None, lambda progress: None)
    return result, load(str(result.path)).samples


# -- plan -------------------------------------------------------------------


def test_by_default_plain_and_every_domain_are_measured() -> None:
    plan = make_plan((2 * MIB,), None, False, FakeDriver(domain_count=2))
    assert [c.placement for c in plan.conditions] == [PLAIN, DOMAIN_0, DOMAIN_1]


@pytest.mark.parametrize("count", [None, 1])
def test_without_several_domains_plain_is_measured_alone(count: int | None) -> None:
    plan = make_plan((2 * MIB,), None, False, FakeDriver(domain_count=count))
    assert [c.placement for c in plan.conditions] == [PLAIN]


def test_sizes_that_meet_after_rounding_are_measured_once_and_it_is_said() -> None:
    plan = make_plan((KIB, 4 * KIB, 2 * MIB, 3 * MIB), ["device"], False, FakeDriver())
    assert [c.size_bytes for c in plan.conditions] == [2 * MIB, 4 * MIB]
    assert plan.notes == [
        "3 of 4 sizes rounded up to the granularity of 2 MiB; each real size is measured once"
    ]


def test_a_refused_placement_is_named_with_its_reason() -> None:
    driver = FakeDriver()
    driver.refuse = {DOMAIN_1}
    plan = make_plan((2 * MIB,), ["domain:all"], False, driver)
    assert [c.placement for c in plan.conditions] == [PLAIN, DOMAIN_0]
    assert plan.unavailable == {"domain:1": "placement domain:1: refused here"}


def test_a_size_beyond_the_card_is_bad_input() -> None:
    driver = FakeDriver()
    with pytest.raises(UsageError, match="2 TiB is larger than the device's memory of 1 TiB"):
        make_plan((2 << 40,), None, False, driver)


def test_levels_multiply_and_a_driver_of_one_thread_says_that_it_has_none() -> None:
    plan = make_plan((2 * MIB,), ["device"], False, FakeDriver(), (Level(), Level(threads=4)))
    assert [c.level for c in plan.conditions] == [Level()]
    assert plan.unavailable == {"4 threads": "4 threads: --driver fake runs one thread alone"}


# -- order ------------------------------------------------------------------


def test_every_round_visits_every_condition_once_in_a_new_order() -> None:
    rounds = list(interleaved([0, 1, 2, 3, 4, 5], range(20), seed=1, attempt=1))
    orders = {tuple(visits.condition) for visits in rounds}
    assert all(sorted(order) == [0, 1, 2, 3, 4, 5] for order in orders)
    assert len(orders) > 15
    assert [set(visits.round) for visits in rounds] == [{n} for n in range(20)]


def test_the_order_follows_from_the_seed_alone(tmp_path: Path) -> None:
    first, second, third = FakeDriver(), FakeDriver(), FakeDriver()
    run(first, tmp_path, seed=7)
    run(second, tmp_path, seed=7)
    run(third, tmp_path, seed=8)
    assert first.visited == second.visited
    assert first.visited != third.visited


def test_sequential_finishes_one_condition_before_the_next(tmp_path: Path) -> None:
    driver = FakeDriver()
    run(driver, tmp_path, order="sequential", warmup=0)
    changes = sum(a != b for a, b in zip(driver.visited, driver.visited[1:], strict=False))
    assert changes == len(set(driver.visited)) - 1


def test_warmup_is_recorded_and_flagged(tmp_path: Path) -> None:
    _, samples = run(FakeDriver(), tmp_path, warmup=2)
    warm = samples["flags"] == int(Flag.WARMUP)
    assert Counter(warm) == {True: 2 * 6, False: 6 * 6}


@pytest.mark.parametrize("repeats", [1, 2, 5, 30])
def test_card_states_alternate_and_get_all_their_rounds(repeats: int) -> None:
    blocks = state_blocks(repeats, [False, True])
    for state in (False, True):
        assert sum(size for s, size in blocks if s == state) == repeats
    if repeats >= 4:
        assert [state for state, _ in blocks] == [False, True, True, False] * 2


def test_scattered_conditions_run_in_the_scattered_state_and_no_others(tmp_path: Path) -> None:
    driver = FakeDriver()
    result, samples = run(driver, tmp_path, scatter=True, placements=["compressible"])
    assert all(c.scattered == state for c, state in zip(driver.visited, driver.states, strict=True))
    assert result.exit_code == ExitCode.OK
    counts = (
        samples[samples["flags"] == 0]
        .groupby(["size_bytes", "scattered", "placement"], observed=True)
        .size()
    )
    assert set(counts) == {6}
    assert not driver.is_scattered


def test_scatter_is_refused_before_measuring_when_others_use_the_card(tmp_path: Path) -> None:
    driver = FakeDriver()
    driver.alone = False
    with pytest.raises(Exception, match="others use the card"):
        run(driver, tmp_path, scatter=True)
    assert driver.visited == []
    assert list(tmp_path.iterdir()) == []


# -- stopping ---------------------------------------------------------------


def test_until_ci_goes_on_only_with_what_is_not_known_well_and_its_control(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 100_000, 100_000)
    wide = Condition(DOMAIN_1, 4 * MIB)

    def time_ns(condition: Condition, n: int) -> int:
        return 100_000 + int(noise[n]) if condition == wide else 100_000

    driver = FakeDriver(time_ns)
    result, _ = run(driver, tmp_path, until_ci=0.05, repeats=5, warmup=0)
    counts = Counter(driver.visited)
    assert counts[wide] > 60
    assert counts[wide.control] == counts[wide]
    assert counts[Condition(DOMAIN_0, 4 * MIB)] == 30, "the first look is at n = 30"
    assert np.log2(counts[wide] / 30) % 1 == 0, "n doubles"
    assert result.outcome.not_converged == {}


def test_max_time_ends_the_run_and_says_so(tmp_path: Path) -> None:
    driver = FakeDriver()
    result, samples = run(driver, tmp_path, max_time_s=1e-9)
    assert result.outcome.ended_early == "--max-time of 1e-09 s reached"
    assert len(samples) == 0
    assert result.exit_code == ExitCode.NOTHING_MEASURED


def test_conditions_that_an_early_end_left_without_a_sample_are_missing(tmp_path: Path) -> None:
    driver = FakeDriver()
    second = Condition(DOMAIN_0, 2 * MIB)
    driver.fail = {(second, 3): STICKY}
    result, samples = run(driver, tmp_path, order="sequential", warmup=0)
    assert list(samples["placement"]) == ["device"] * 6 + ["domain:0"] * 4
    assert result.exit_code == ExitCode.PARTIAL
    assert len(result.missing) == 5
    unreached = {why for what, why in result.missing.items() if what != str(second)}
    assert unreached == {f"not reached: {result.outcome.ended_early}"}
    assert load(str(result.path)).environment["missing"] == result.missing


def test_until_ci_that_is_not_reached_is_said(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 100_000, 100_000)
    driver = FakeDriver(lambda condition, n: int(noise[n]), domain_count=None)
    result, _ = run(driver, tmp_path, sizes=(2 * MIB,), until_ci=1e-6, warmup=0, max_time_s=2)
    assert list(result.outcome.not_converged) == [Condition(PLAIN, 2 * MIB)]
    assert result.outcome.not_converged[Condition(PLAIN, 2 * MIB)] > 1e-6


# -- re-measuring -----------------------------------------------------------


def test_a_condition_that_changed_half_way_is_measured_again_with_its_control(
    tmp_path: Path,
) -> None:
    odd = Condition(DOMAIN_0, 2 * MIB)
    driver = FakeDriver(
        lambda condition, n: 90_000 + n % 7 if condition == odd and n < 20 else 50_000 + n % 7
    )
    result, samples = run(driver, tmp_path, repeats=40, warmup=0)
    assert set(result.outcome.remeasured) == {odd, odd.control}
    again = samples[samples["attempt"] == 2]
    of_odd = (again["size_bytes"] == odd.size_bytes) & (again["placement"] != "domain:1")
    assert of_odd.sum() == 2 * 40
    assert (again["flags"] == 0).equals(of_odd), "the others are company"
    shown = {s.condition: s.attempt for s in summarise(samples, VMM_CYCLE, "total")}
    assert shown == {c: 2 if c in (odd, odd.control) else 1 for c in result.plan.conditions}


def test_a_second_attempt_has_the_same_conditions_around_it(tmp_path: Path) -> None:
    odd = Condition(DOMAIN_0, 2 * MIB)

    def shifts(condition: Condition, n: int) -> int:
        return 90_000 + n % 7 if condition == odd and n < 20 else 50_000 + n % 7

    _, samples = run(FakeDriver(shifts), tmp_path, repeats=40)
    rounds = samples.groupby(["attempt", "round"]).apply(
        lambda rows: sorted(zip(rows["placement"], rows["size_bytes"], strict=True))
    )
    assert len(rounds[1]) == len(rounds[2]) == 40
    assert (rounds[1] == rounds[2]).all()
    scattered, both = run(FakeDriver(shifts), tmp_path, repeats=40, scatter=True)
    states = {condition.scattered for condition in scattered.outcome.remeasured}
    assert states == set(both["scattered"][both["attempt"] == 2]) == {False}
    _, alone = run(FakeDriver(shifts), tmp_path, repeats=40, order="sequential")
    assert (alone["flags"][alone["attempt"] == 2] & int(Flag.COMPANY) == 0).all()


# -- failures ---------------------------------------------------------------


def test_a_condition_that_fails_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    driver = FakeDriver()
    bad = Condition(DOMAIN_0, 4 * MIB)
    driver.fail = {(bad, 3): OUT_OF_MEMORY}
    result, samples = run(driver, tmp_path, warmup=0)
    assert result.exit_code == ExitCode.PARTIAL
    assert result.outcome.failed == {
        bad: "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY (after 3 samples)"
    }
    counts = Counter(driver.visited)
    assert counts.pop(bad) == 4
    assert set(counts.values()) == {6}
    failed = samples[samples["flags"] == int(Flag.FAILED)]
    assert len(failed) == 1
    assert failed["create_ns"].isna().all()
    assert failed["reserve_ns"].notna().all()


def test_a_sticky_error_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    driver = FakeDriver()
    driver.fail = {(Condition(DOMAIN_0, 4 * MIB), 3): STICKY}
    result, samples = run(driver, tmp_path, warmup=0)
    assert result.exit_code == ExitCode.PARTIAL
    assert "CUDA_ERROR_LAUNCH_FAILED; the context cannot be used" in str(result.outcome.ended_early)
    assert 3 * 6 <= len(samples) <= 4 * 6
    assert driver.entered == 0


def test_memory_that_cannot_be_given_back_ends_the_run(tmp_path: Path) -> None:
    driver = FakeDriver()
    driver.fail = {(Condition(DOMAIN_0, 4 * MIB), 3): OUT_OF_MEMORY}
    driver.leak = True
    result, samples = run(driver, tmp_path, warmup=0)
    assert result.outcome.ended_early == "cuMemCreate failed and memory is left"
    assert (samples["flags"] == int(Flag.FAILED)).sum() == 1
    assert result.exit_code == ExitCode.PARTIAL


def test_everything_failing_is_nothing_measured_but_saved(tmp_path: Path) -> None:
    driver = FakeDriver()
    for domain in (PLAIN, DOMAIN_0, DOMAIN_1):
        for size in (2 * MIB, 4 * MIB):
            driver.fail[Condition(domain, size), 0] = OUT_OF_MEMORY
    result, samples = run(driver, tmp_path)
    assert result.exit_code == ExitCode.NOTHING_MEASURED
    assert len(samples) == 6


def test_a_control_that_is_refused_is_nothing_measured(tmp_path: Path) -> None:
    driver = FakeDriver()
    driver.refuse = {PLAIN}
    with pytest.raises(NothingMeasuredError, match="placement device: refused here"):
        run(driver, tmp_path)
    assert driver.entered == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_between_cycles_and_keeps_them(tmp_path: Path, number: int) -> None:
    driver = FakeDriver()
    driver.before_cycle = lambda n: os.kill(os.getpid(), number) if n == 10 else None
    before = signal.getsignal(number)
    result, samples = run(driver, tmp_path)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert len(samples) == 11, "the cycle that was running is finished and kept"
    assert load(str(result.path)).environment["outcome"] == (
        f"interrupted by {signal.Signals(number).name}"
    )
    assert driver.entered == 0
    assert signal.getsignal(number) == before


def test_a_signal_while_the_card_is_scattered_gives_the_card_back(tmp_path: Path) -> None:
    driver = FakeDriver()
    driver.before_cycle = lambda n: (
        os.kill(os.getpid(), signal.SIGINT) if driver.is_scattered else None
    )
    result, _ = run(driver, tmp_path, scatter=True)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert not driver.is_scattered
    assert driver.entered == 0


def test_a_mismatch_is_kept_flagged_and_does_not_count(tmp_path: Path) -> None:
    driver = FakeDriver()
    wrong = Condition(DOMAIN_0, 2 * MIB)
    driver.flags = {wrong: Flag.WRONG_ORDINAL}
    result, samples = run(driver, tmp_path, warmup=0)
    assert (samples["flags"] == int(Flag.WRONG_ORDINAL)).sum() == 6
    assert result.usable == 5 * 6


def test_a_size_that_a_model_has_no_source_for_is_said(tmp_path: Path) -> None:
    driver = FakeDriver(
        lambda condition, n: NO_TIME_NS if condition.size_bytes > 2 * MIB else 10_000
    )
    driver.is_model, driver.headline = True, "create"
    driver.name = "model:fake"
    result, samples = run(driver, tmp_path)
    assert result.exit_code == ExitCode.PARTIAL
    assert result.missing == {
        f"{placement} 4 MiB": "model:fake has no source for the times of this size"
        for placement in ("device", "domain:0", "domain:1")
    }
    assert (samples["size_bytes"] == 4 * MIB).sum() == 3 * 7
