# SPDX-License-Identifier: MIT
"""The stub libcuda itself, seen through the real cuda.bindings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import stub_cuda
from tests.cuda.conftest import REPOSITORY, TIMEOUT_S, Ended, Run

# Not imported from children.py: cuda.bindings must not be loaded in this process.
MIB = 1 << 20


def value(child: Ended) -> Any:
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.fixture(scope="module")
def misuses(
    stub_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[Any]], dict[str, str], stub_cuda.Ledger]:
    """Answer and violations by mistake, the expected answers, and the ledger behind all."""
    ledger = tmp_path_factory.mktemp("ledger")
    code = (
        "import json; from tests.cuda import children;"
        "results = children.misuses();"
        "expected = {name: answer for name, (_, answer) in children.MISUSES.items()};"
        "print(json.dumps([results, expected]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=stub_cuda.env(stub_library, ledger),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results, expected = json.loads(done.stdout)
    return results, expected, stub_cuda.read_ledger(ledger)


def test_every_mistake_is_answered_and_noted_once(
    misuses: tuple[dict[str, list[Any]], dict[str, str], stub_cuda.Ledger],
) -> None:
    results, expected, ledger = misuses
    assert results == {name: [answer, 1] for name, answer in expected.items()}
    assert len(ledger.violations) == ledger.violation_count == len(expected)
    assert ledger.is_empty


def test_a_correct_program_on_three_devices_is_no_violation(drive: Run) -> None:
    child = drive("correct", devices=3)
    assert value(child) == {"devices": 3}
    assert child.ledger.violations == []
    assert child.ledger.is_empty
    assert child.ledger.exited
    assert child.ledger.calls["cuMemMap"] == 9
    assert child.ledger.peak_allocated_bytes == 4 * MIB


def test_chunks_in_one_range_take_one_access_and_one_unmap(drive: Run) -> None:
    child = drive("chunks")
    assert value(child) == {}
    assert child.ledger.violations == []
    assert child.ledger.is_empty
    assert child.ledger.calls["cuMemUnmap"] == 1


def test_what_is_not_given_back_stays_in_the_ledger(drive: Run) -> None:
    ledger = drive("leak").ledger
    assert dict(ledger.alive) == {
        "reservations": 1,
        "handles": 1,
        "allocations": 1,
        "mappings": 1,
        "contexts": 1,
        "reserved_bytes": 2 * MIB,
        "allocated_bytes": 2 * MIB,
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"plain": [[-1, 0]] * 8, "localized": [[1, 0]] * 8, "compressible": [[-1, 1]] * 8}),
        ({"compression": "refuse"}, {"compressible": [[-1, 0]] * 8}),
        ({"domains": 1}, {}),
        (
            {"wrong_ordinal": 4},
            {
                "plain": [[-1, 0], [-1, 0], [-1, 0], [0, 0]] * 2,
                "localized": [[1, 0], [1, 0], [1, 0], [0, 0]] * 2,
            },
        ),
        ({"wrong_compression": 4}, {"compressible": [[-1, 1], [-1, 1], [-1, 1], [-1, 0]] * 2}),
    ],
    ids=["honest", "refused", "one domain", "wrong ordinal", "wrong compression"],
)
def test_read_backs(drive: Run, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    child = drive("read_backs", **settings)
    if settings.get("domains") == 1:
        assert child.returncode != 0 and "localityDomainId 1 of 1" in child.ledger.violations[0]
        return
    assert value(child).items() >= expected.items()
    assert child.ledger.violations == []


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, {"attribute": "ERROR_INVALID_VALUE", "create": "ERROR_INVALID_VALUE"}),
        (1, {"attribute": "SUCCESS", "count": 1, "create": "SUCCESS", "ordinal": -1}),
        (2, {"attribute": "SUCCESS", "count": 2, "create": "SUCCESS", "ordinal": 0}),
    ],
)
def test_unknown_one_and_two_domains_are_three_answers(
    drive: Run, count: int, expected: dict[str, Any]
) -> None:
    child = drive("domains", domains=count)
    assert value(child).items() >= expected.items()
    # Asking for the attribute is right, asking for the memory is not.
    unknown = ["cuMemCreate: location.type 6 is unknown"] if count == 0 else []
    assert child.ledger.violations == unknown


@pytest.mark.parametrize(
    ("settings", "plain", "localized"),
    [
        ({}, "SUCCESS", "SUCCESS"),
        ({"rdma": 0}, "ERROR_NOT_SUPPORTED", "ERROR_NOT_SUPPORTED"),
        ({"rdma_localized": 0}, "SUCCESS", "ERROR_NOT_SUPPORTED"),
    ],
)
def test_rdma(drive: Run, settings: dict[str, Any], plain: str, localized: str) -> None:
    child = drive("rdma", **settings)
    assert value(child) == {"plain": plain, "localized": localized}
    assert child.ledger.violations == []


def test_memory_is_limited_and_a_domain_has_its_share(drive: Run) -> None:
    child = drive("fill", memory=64 * MIB)
    assert value(child) == {
        "plain": [32, "ERROR_OUT_OF_MEMORY", 0, 64 * MIB],
        "domain 0": [16, "ERROR_OUT_OF_MEMORY", 32 * MIB, 64 * MIB],
    }
    assert child.ledger.violations == []
    assert child.ledger.is_empty


def test_one_call_fails_without_effect(drive: Run) -> None:
    child = drive("answers", fail="cuMemMap:2:CUDA_ERROR_OUT_OF_MEMORY")
    assert value(child) == ["SUCCESS", "ERROR_OUT_OF_MEMORY", "SUCCESS", "SUCCESS", "SUCCESS"]
    assert child.ledger.violation_count == 1  # the unmap of what was not mapped
    assert child.ledger.faults == 1
    assert child.ledger.is_empty


def test_all_later_calls_fail(drive: Run) -> None:
    child = drive("answers", fail="cuMemMap:3+:CUDA_ERROR_ILLEGAL_STATE")
    assert value(child)[:4] == ["SUCCESS", "SUCCESS", "ERROR_ILLEGAL_STATE", "ERROR_ILLEGAL_STATE"]


def test_any_call_can_be_counted(drive: Run) -> None:
    # Four calls to enter, six a cycle without the access call.
    child = drive("answers", fail="*:13:CUDA_ERROR_UNKNOWN,*:7:CUDA_ERROR_INVALID_IMAGE")
    assert value(child)[:2] == ["ERROR_INVALID_IMAGE", "ERROR_UNKNOWN"]


def test_a_late_error_comes_with_the_effect(drive: Run) -> None:
    child = drive("answers", fail="cuMemMap:2:CUDA_ERROR_LAUNCH_FAILED:late")
    assert value(child)[1] == "ERROR_LAUNCH_FAILED"
    assert child.ledger.violations == []
    assert child.ledger.is_empty


def test_a_sticky_error_stays_and_keeps_memory(drive: Run) -> None:
    child = drive("answers", fail="cuMemMap:2:CUDA_ERROR_ILLEGAL_ADDRESS:sticky")
    assert child.returncode != 0  # the third cycle cannot even reserve
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in child.stderr
    assert child.ledger.sticky_result == 700
    assert child.ledger.alive["handles"] == child.ledger.alive["reservations"] == 1


def test_signals_come_at_the_call(drive: Run) -> None:
    child = drive("caught_signals", signal="cuMemCreate:2:SIGINT,cuMemUnmap:4:SIGTERM")
    assert value(child) == ["SIGINT", "SIGTERM"]
    assert child.ledger.is_empty


def test_the_ledger_survives_sigkill(drive: Run) -> None:
    child = drive("caught_signals", signal="cuMemSetAccess:3:SIGKILL")
    assert child.returncode == -signal.SIGKILL
    assert not child.ledger.exited
    assert child.ledger.calls["cuMemMap"] == 3
    assert child.ledger.alive["mappings"] == 1


def test_a_forked_child_has_no_cuda_and_its_own_ledger(drive: Run) -> None:
    child = drive("fork")
    assert value(child) == {"child": "ERROR_NOT_INITIALIZED"}
    assert child.ledger.processes == 2
    assert child.ledger.violations == ["cuMemGetInfo: called in a forked child"]
    assert child.ledger.is_empty


def test_threads_share_the_driver(drive: Run) -> None:
    child = drive("threads")
    assert value(child) == {}
    assert child.ledger.calls["cuMemMap"] == 800
    assert child.ledger.violations == []
    assert child.ledger.is_empty


def test_the_current_context_is_the_threads_own(drive: Run) -> None:
    child = drive("contexts_by_thread", devices=2)
    assert value(child) == [0, 1]
    assert child.ledger.is_empty


def test_latency_is_spent_on_the_sizes_it_is_for(drive: Run) -> None:
    # 20 ms, and 1 ms for each of the 2 MiB over 32: a slow machine cannot miss a lower bound.
    rule = "cuMemCreate:20000000:1000000:localized:32"
    assert value(drive("time_create", "34", latency=rule)) >= 22_000_000
    # Were this hour spent, the child would run into its time limit.
    value(drive("time_create", "32", latency="cuMemCreate:3600000000000:0:localized:32"))
    value(drive("time_create", "34", latency="cuMemCreate:3600000000000:0:plain"))


def test_kernels_are_launched_on_what_is_alive(drive: Run) -> None:
    child = drive("launches")
    assert value(child) == [
        "SUCCESS",
        "ERROR_INVALID_VALUE",
        "ERROR_INVALID_HANDLE",
        "ERROR_INVALID_HANDLE",
        "ERROR_INVALID_HANDLE",
    ]
    assert child.ledger.violation_count == 4
    assert child.ledger.is_empty


def test_a_pool_keeps_what_is_under_its_threshold(drive: Run) -> None:
    child = drive("pools", memory=64 * MIB)
    assert value(child) == {
        "allocated": [6, 5],
        "ordinal": 1,
        "freed": [6, 0],
        "cold": [0, 0],
        "warm": [6, 0],
        "trimmed": [2, 0],
        "free of the card": 62,
        "freed twice": "ERROR_INVALID_VALUE",
        "destroyed": "ERROR_INVALID_VALUE",
        "free in the end": 64,
    }
    assert child.ledger.violations == [
        "cuMemFreeAsync: 0x300000000000 is no allocation of a pool",
        "cuMemAllocFromPoolAsync: no such pool",
    ]
    assert child.ledger.is_empty


def test_the_default_pool_goes_with_its_context(drive: Run) -> None:
    child = drive("default_pool")
    assert value(child) == {
        "state": [6, 6],
        "ordinal": -1,
        "too much": "ERROR_OUT_OF_MEMORY",
        "destroyed": "ERROR_INVALID_VALUE",
    }
    assert child.ledger.violations == ["cuMemPoolDestroy: a default pool cannot be destroyed"]
    assert child.ledger.is_empty


def test_only_a_cold_pool_takes_the_time_of_the_card(drive: Run) -> None:
    rule = "cuMemAllocFromPoolAsync:20000000:0:cold"
    assert min(value(drive("time_pool", "0", latency=rule))) >= 20_000_000
    warm = value(drive("time_pool", str(2**64 - 1), latency=rule))
    # The first one is cold; of three more at least one is not held up by the machine.
    assert warm[0] >= 20_000_000 > min(warm[1:])


def test_green_contexts_on_the_multiprocessors_of_a_domain(drive: Run) -> None:
    child = drive("green_contexts")
    assert value(child) == {
        "whole": 144,
        "parts": [[72, 0], [72, 1]],
        "rest": 0,
        "no domain": "ERROR_INVALID_VALUE",
        "inside": [72, 72],
        "destroyed": "ERROR_INVALID_HANDLE",
        "active": [1, 0],
    }
    assert child.ledger.violation_count == 2
    assert child.ledger.is_empty


def test_a_part_of_the_multiprocessors_on_drivers_without_domains(drive: Run) -> None:
    # 20 are rounded up to whole co-scheduled groups of 8.
    child = drive("split_by_count", domains=0)
    assert value(child) == {
        "count": 6,
        "sizes": [24] * 6,
        "rest": 0,
        "made up": "ERROR_INVALID_RESOURCE_TYPE",
        "two splits": "ERROR_INVALID_RESOURCE_CONFIGURATION",
    }
    assert child.ledger.violation_count == 2
    assert child.ledger.is_empty


def test_every_result_has_its_name(drive: Run) -> None:
    named = value(drive("all_results"))
    assert named["CUDA_ERROR_OUT_OF_MEMORY"] == 2
    assert named["CUDA_ERROR_UNKNOWN"] == 999
    assert len(named) > 100


@pytest.mark.parametrize(
    "setting",
    [
        {"fail": "cuMemMap:0:CUDA_ERROR_UNKNOWN"},
        {"fail": "cuMemMap:1:CUDA_ERROR_NONSENSE"},
        {"fail": "cuMemMap:1:CUDA_SUCCESS"},
        {"fail": "cuMemMop:1:CUDA_ERROR_UNKNOWN"},
        {"signal": "cuMemMap:1:SIGNONSENSE"},
        {"latency": "cuMemMap:1:1:everywhere"},
        {"domains": "3"},
        {"compression": "maybe"},
    ],
)
def test_a_setting_that_makes_no_sense_aborts(drive: Run, setting: dict[str, str]) -> None:
    child = drive("domains", **setting)
    assert child.returncode == -signal.SIGABRT
    assert f"STUB_CUDA_{next(iter(setting)).upper()}=" in child.stderr
