# SPDX-License-Identifier: MIT
"""Bursts of threads under ThreadSanitizer and AddressSanitizer, on the stub."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests import stub_cuda
from tests.cycle_core.test_cycle_core import SANITIZERS, TIMEOUT_S, build_harness


@dataclass(frozen=True)
class Ran:
    """What the harness printed, and the stub's ledger."""

    bursts: int
    rows: int
    short: int
    failed: int
    leaked: int
    left_early: int
    victim: int
    ledger: stub_cuda.Ledger


RunBursts = Callable[..., Ran]


@pytest.fixture(scope="module", params=SANITIZERS)
def run_bursts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> RunBursts:
    """Run the harness on the stub, both under one sanitizer; a finding fails the test."""
    library = stub_cuda.build(request.param)
    folder = tmp_path_factory.mktemp("harness")
    harness = build_harness(library, folder, request.param, "burst_harness.cpp")

    def run(
        threads: int, samples: int, bursts: int = 1, victim: str = "", **settings: object
    ) -> Ran:
        ledger = tmp_path_factory.mktemp("ledger")
        env = stub_cuda.env(library, ledger, **settings)
        env["TSAN_OPTIONS"] = "halt_on_error=1"
        env["ASAN_OPTIONS"] = "detect_leaks=0"
        done = subprocess.run(
            [
                *("setarch", platform.machine(), "-R", str(harness)),
                *map(str, (threads, samples, bursts)),
                *([victim] if victim else []),
            ],
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        numbers = re.fullmatch(
            r"bursts (\d+) rows (\d+) short (\d+) failed (\d+) leaked (\d+) early (\d+) "
            r"victim (\d+)\n",
            done.stdout,
        )
        assert numbers is not None, done.stdout
        return Ran(*map(int, numbers.groups()), stub_cuda.read_ledger(ledger))

    return run


@pytest.mark.parametrize(("threads", "samples"), [(1, 5), (2, 20), (8, 10), (64, 3)])
def test_each_worker_goes_on_until_all_have_their_samples(
    run_bursts: RunBursts, threads: int, samples: int
) -> None:
    ran = run_bursts(threads, samples, 3)
    assert (ran.bursts, ran.short, ran.failed, ran.leaked) == (3, 0, 0, 0)
    assert ran.rows >= 3 * threads * samples
    assert ran.left_early == 0
    assert ran.ledger.violations == []
    assert ran.ledger.is_empty


def test_nobody_leaves_with_a_cycle_from_before_the_last_sample(run_bursts: RunBursts) -> None:
    # Going by the count of those that reached, one burst in a hundred lost the race.
    ran = run_bursts(2, 2, 200)
    assert (ran.bursts, ran.left_early) == (200, 0)


def test_a_lone_worker_takes_its_samples_and_no_more(run_bursts: RunBursts) -> None:
    ran = run_bursts(1, 5, 2)
    assert ran.rows == 10
    # The cycle before the common start is the only one beside them.
    assert ran.ledger.calls["cuMemCreate"] == 12


def test_a_failing_worker_ends_the_burst_and_gives_its_memory_back(
    run_bursts: RunBursts,
) -> None:
    ran = run_bursts(8, 50, 1, fail="cuMemMap:100:CUDA_ERROR_OUT_OF_MEMORY")
    assert (ran.failed, ran.leaked) == (1, 0)
    assert ran.short > 0
    assert ran.rows > 0
    assert ran.ledger.is_empty


def test_a_worker_that_fails_before_the_start_keeps_nobody_waiting(run_bursts: RunBursts) -> None:
    ran = run_bursts(8, 50, 1, fail="cuMemCreate:1:CUDA_ERROR_OUT_OF_MEMORY")
    assert (ran.failed, ran.short) == (1, 8)
    assert ran.ledger.is_empty


def test_a_context_that_cannot_be_set_keeps_nobody_waiting(run_bursts: RunBursts) -> None:
    ran = run_bursts(8, 50, 1, fail="cuCtxSetCurrent:3:CUDA_ERROR_INVALID_CONTEXT")
    assert (ran.short, ran.failed) == (8, 0)
    assert ran.ledger.is_empty


def test_a_signal_halts_the_burst_between_cycles(run_bursts: RunBursts) -> None:
    ran = run_bursts(8, 100_000, 5, signal="cuMemCreate:300:SIGTERM")
    assert (ran.bursts, ran.failed, ran.leaked) == (1, 0, 0)
    assert ran.ledger.is_empty


@pytest.mark.parametrize("victim", ["query", "alloc"])
def test_a_victim_runs_beside_the_workers_until_they_have_settled(
    run_bursts: RunBursts, victim: str
) -> None:
    ran = run_bursts(8, 20, 3, victim)
    assert (ran.bursts, ran.short, ran.failed, ran.leaked) == (3, 0, 0, 0)
    # One operation of each burst is before the common start.
    assert ran.victim >= 3
    assert ran.ledger.violations == []
    assert ran.ledger.is_empty


def test_a_victim_alone_does_its_operations_and_ends(run_bursts: RunBursts) -> None:
    assert run_bursts(0, 50, 2, "alloc").victim == 2 * 51


def test_a_victim_that_fails_ends_the_burst(run_bursts: RunBursts) -> None:
    ran = run_bursts(8, 200, 1, "query", fail="cuMemGetInfo:1:CUDA_ERROR_UNKNOWN")
    assert ran.failed == 1
    assert ran.ledger.is_empty
