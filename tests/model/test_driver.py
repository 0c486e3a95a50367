# SPDX-License-Identifier: MIT
"""The models behind the driver protocol: what is timed, what is not, and errors."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from vmmprof.drivers.model import GPUS, make
from vmmprof.drivers.model.driver import ModelDriver
from vmmprof.drivers.protocol import (
    NO_FAILED_CALL,
    NO_TIME_NS,
    Batch,
    Driver,
    PlacementUnavailableError,
)
from vmmprof.errors import UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.recording.schema import Flag
from vmmprof.sizes import GIB, MIB

NAMES = tuple(f"model:{gpu}" for gpu in GPUS)
LOCALIZED = Placement(domain=0)
COMPRESSIBLE = Placement(compressible=True)


def run(driver: Driver, *conditions: Condition, repeats: int = 1) -> Batch:
    driver.prepare(conditions)
    return driver.run(np.tile(np.arange(len(conditions), dtype=np.int32), repeats))


def call_ns(batch: Batch, call: str) -> list[int]:
    return [int(ns) for ns in batch.calls_ns[:, VMM_CYCLE.calls.index(call)]]


def known_calls(batch: Batch) -> set[str]:
    return {call for call in VMM_CYCLE.calls if max(call_ns(batch, call)) != NO_TIME_NS}


def total_us(driver: Driver, placement: Placement, size_mib: int) -> float:
    return float(run(driver, Condition(placement, size_mib * MIB)).total_ns[0]) / 1000


def create_us(driver: Driver, placement: Placement, size_mib: int) -> float:
    return call_ns(run(driver, Condition(placement, size_mib * MIB)), "create")[0] / 1000


def test_b300_knows_the_total_and_two_calls_at_1_gib_alone() -> None:
    driver = make("model:b300")
    assert driver.headline == "total"
    batch = run(driver, Condition(LOCALIZED, 64 * MIB))
    assert known_calls(batch) == set()
    assert batch.total_ns[0] > 0
    batch = run(driver, Condition(LOCALIZED, GIB))
    assert known_calls(batch) == {"create", "release"}
    assert sum(call_ns(batch, "create") + call_ns(batch, "release")) < batch.total_ns[0]


def test_b200_knows_create_alone() -> None:
    driver = make("model:b200")
    assert driver.headline == "create"
    batch = run(driver, Condition(LOCALIZED, 64 * MIB), Condition(PLAIN, GIB))
    assert known_calls(batch) == {"create"}
    assert set(batch.total_ns) == {NO_TIME_NS}


def test_h200_knows_create_and_release() -> None:
    driver = make("model:h200")
    batch = run(driver, Condition(COMPRESSIBLE, 64 * MIB))
    assert known_calls(batch) == {"create", "release"}
    assert set(batch.total_ns) == {NO_TIME_NS}
    assert driver.headline in known_calls(batch)


@pytest.mark.parametrize("name", NAMES)
def test_no_time_is_given_beyond_the_sources(name: str) -> None:
    batch = run(make(name), Condition(PLAIN, GIB + 2 * MIB))
    assert known_calls(batch) == set()
    assert batch.total_ns[0] == NO_TIME_NS
    assert batch.status[0] == 0


@pytest.mark.parametrize("domain", [0, 1])
def test_b300_has_its_threshold_between_32_and_34_mib(domain: int) -> None:
    driver = make("model:b300")
    sizes_mib = range(30, 68, 2)
    extra_us = [
        total_us(driver, Placement(domain), size) - total_us(driver, PLAIN, size)
        for size in sizes_mib
    ]
    steps = dict(zip(itertools.pairwise(sizes_mib), np.diff(extra_us), strict=True))
    threshold = max(steps, key=lambda sizes: steps[sizes])
    assert threshold == (32, 34)
    assert steps.pop(threshold) > 10 * max(steps.values())


def test_h200_has_no_threshold_unless_its_card_is_scattered() -> None:
    driver = make("model:h200")

    def slope_us(from_mib: int, to_mib: int) -> float:
        extra = [
            create_us(driver, COMPRESSIBLE, size) - create_us(driver, PLAIN, size)
            for size in (from_mib, to_mib)
        ]
        return (extra[1] - extra[0]) / (to_mib - from_mib)

    assert slope_us(32, 34) == pytest.approx(slope_us(34, 64), abs=0.01)
    assert slope_us(32, 64) < 0.5
    with driver.scattered():
        assert slope_us(32, 64) > 2


def test_ordinary_memory_takes_its_base_and_nothing_else() -> None:
    assert total_us(make("model:b300"), PLAIN, 2) == 123.1
    assert create_us(make("model:b200"), PLAIN, 1024) == 145.6
    h200 = make("model:h200")
    batch = run(h200, Condition(PLAIN, GIB))
    for call, name in (("create", "alloc_base_us"), ("release", "free_base_us")):
        base_us = h200.gpu.parameters.curve(name).at(1024)
        assert call_ns(batch, call)[0] / 1000 == pytest.approx(base_us)


@pytest.mark.parametrize(("patch", "share"), [("b", "sync"), ("a", "all"), ("ab", "all")])
def test_an_iteration_on_the_h200_is_a_call_and_its_synchronisation(patch: str, share: str) -> None:
    # 512 adjacent pages of a non-contiguous descriptor: 512 calls in stock, one when coalesced.
    placement = Placement(compressible=True, noncontiguous=True)
    stock = make("model:h200")
    saved_us = create_us(stock, placement, 1024) - create_us(
        make("model:h200", patch), placement, 1024
    )
    iteration_us = stock.gpu.parameters.value("alloc_iteration_us")
    part = stock.gpu.parameters.value("sync_share") if share == "sync" else 1
    assert saved_us == pytest.approx(511 * iteration_us * part, abs=0.01)


def test_a_cycle_gives_its_memory_back() -> None:
    driver = make("model:h200")
    sizes = [80 * GIB, 90 * GIB, 100 * GIB]
    assert list(run(driver, *(Condition(PLAIN, size) for size in sizes)).status) == [0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_memory_is_the_same_under_every_patch(name: str) -> None:
    batches = [run(make(name, patch), Condition(PLAIN, GIB)) for patch in ("none", "a", "b", "ab")]
    assert len({(*batch.calls_ns[0], batch.total_ns[0]) for batch in batches}) == 1


def test_each_patch_saves_time_on_localized_memory_and_both_save_most() -> None:
    stock, a, b, ab = (
        total_us(make("model:b300", patch), LOCALIZED, 1024) for patch in ("none", "a", "b", "ab")
    )
    assert ab < a < b < stock


@pytest.mark.parametrize("name", NAMES)
def test_domains_of_one_gpu_cost_alike(name: str) -> None:
    driver = make(name)
    assert driver.domain_count is not None
    conditions = [Condition(Placement(domain), GIB) for domain in range(driver.domain_count)]
    batch = run(driver, *conditions)
    assert len({tuple(row) for row in batch.calls_ns}) == 1


def test_a_domain_of_a_gpu_with_one_is_ordinary_memory() -> None:
    driver = make("model:h200")
    assert create_us(driver, LOCALIZED, 64) == create_us(driver, PLAIN, 64)


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_are_the_same_to_the_nanosecond(name: str) -> None:
    conditions = [Condition(LOCALIZED, 64 * MIB), Condition(PLAIN, 2 * MIB)]
    first, second = (run(make(name), *conditions, repeats=3) for _ in range(2))
    for field in ("start_ns", "calls_ns", "total_ns", "status", "flags"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    assert len({tuple(row) for row in first.calls_ns[::2]}) == 1


def test_virtual_time_goes_on_from_cycle_to_cycle_and_from_batch_to_batch() -> None:
    driver = make("model:b300")
    conditions = [Condition(LOCALIZED, 64 * MIB), Condition(PLAIN, 2 * MIB)]
    batches = [run(driver, *conditions), run(driver, *conditions)]
    start_ns = np.concatenate([batch.start_ns for batch in batches])
    total_ns = np.concatenate([batch.total_ns for batch in batches])
    assert start_ns[0] == 0
    np.testing.assert_array_equal(np.diff(start_ns), total_ns[:-1])


def test_scattered_memory_is_the_state_of_the_card_and_ends_with_it() -> None:
    driver = make("model:h200")
    condition = Condition(COMPRESSIBLE, 64 * MIB)
    driver.prepare([condition])
    visits = np.zeros(1, np.int32)
    before = call_ns(driver.run(visits), "create")
    with driver.scattered():
        inside = call_ns(driver.run(visits), "create")
    assert inside > before
    assert call_ns(driver.run(visits), "create") == before


def test_noncontiguous_memory_costs_what_a_scattered_card_costs() -> None:
    driver = make("model:h200")
    asked_for = create_us(driver, Placement(compressible=True, noncontiguous=True), 64)
    with driver.scattered():
        assert create_us(driver, COMPRESSIBLE, 64) == asked_for


@pytest.mark.parametrize("name", ["model:b300", "model:b200"])
def test_a_scattered_card_is_refused_where_no_source_knows_it(name: str) -> None:
    driver = make(name)
    with pytest.raises(UsageError, match="scattered"):
        driver.require_alone()
    with pytest.raises(UsageError, match="model:h200"), driver.scattered():
        pass


def test_more_memory_than_there_is_fails_in_create_and_ends_the_batch() -> None:
    driver = make("model:h200")
    driver.prepare([Condition(PLAIN, 2 * MIB), Condition(PLAIN, 80 * GIB)])
    with driver.scattered():
        batch = driver.run(np.array([0, 1, 0], np.int32))
    assert len(batch) == 2
    assert driver.status_name(int(batch.status[1])) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert VMM_CYCLE.calls[batch.failed_call[1]] == "create"
    assert batch.failed_call[0] == NO_FAILED_CALL
    assert list(batch.flags) == [0, Flag.FAILED]
    assert set(batch.calls_ns[1]) == {NO_TIME_NS}
    assert not driver.is_sticky(int(batch.status[1]))
    assert len(driver.run(np.array([0], np.int32))) == 1


def test_a_domain_runs_out_at_its_share_of_the_memory() -> None:
    driver = make("model:b300")
    half = driver.total_memory_bytes // 2 // GIB * GIB
    batch = run(driver, Condition(LOCALIZED, half), Condition(LOCALIZED, half + GIB))
    assert list(batch.status) == [0, 2]


def test_a_requested_stop_ends_the_batch_until_the_next_prepare() -> None:
    driver = make("model:b300")
    driver.prepare([Condition(PLAIN, 2 * MIB)])
    visits = np.zeros(5, np.int32)
    driver.request_stop()
    batch = driver.run(visits)
    assert len(batch) == 0
    assert batch.calls_ns.shape == (0, len(VMM_CYCLE.calls))
    driver.prepare([Condition(PLAIN, 2 * MIB)])
    assert len(driver.run(visits)) == 5


@pytest.mark.parametrize(
    ("name", "placement", "word"),
    [
        ("model:b300", COMPRESSIBLE, "compressible"),
        ("model:b200", Placement(domain=1, compressible=True), "compressible"),
        ("model:b300", Placement(noncontiguous=True), "noncontiguous"),
        ("model:h200", Placement(rdma=True), "rdma"),
    ],
)
def test_a_placement_without_a_source_is_unavailable(
    name: str, placement: Placement, word: str
) -> None:
    driver = make(name)
    with pytest.raises(PlacementUnavailableError, match=f"{name} has no source .* {word}"):
        driver.granularity_bytes(placement)
    with pytest.raises(PlacementUnavailableError):
        driver.prepare([Condition(placement, 2 * MIB)])


def test_a_domain_that_does_not_exist_and_a_size_off_the_granularity_are_usage_errors() -> None:
    driver = make("model:b300")
    with pytest.raises(UsageError, match="2 locality domain"):
        driver.granularity_bytes(Placement(domain=2))
    with pytest.raises(UsageError, match="3 MiB"):
        driver.prepare([Condition(PLAIN, 3 * MIB)])


@pytest.mark.parametrize("name", ["b300", "model:a100", "cuda"])
def test_an_unknown_model_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        make(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_says_model_and_carries_every_parameter_with_its_source(name: str) -> None:
    with make(name, "a") as driver:
        assert isinstance(driver, ModelDriver)
        environment = json.loads(json.dumps(driver.environment()))
    assert "MODEL" in environment["name"]
    assert environment["patch"] == "a"
    assert environment["not_modelled"]
    assert environment["parameters"]
    assert all(parameter["fitted_on"] for parameter in environment["parameters"])
