# SPDX-License-Identifier: MIT
"""The timing core alone under ThreadSanitizer and AddressSanitizer, on the stub."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import stub_cuda

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "src" / "vmmprof" / "drivers" / "cuda"
TIMEOUT_S = 300
SANITIZERS = ("thread", "address,undefined")


@dataclass(frozen=True)
class Ran:
    """What the harness printed, and the stub's ledger."""

    rows: int
    failed: int
    leaked: int
    mismatched: int
    ledger: stub_cuda.Ledger


RunHarness = Callable[..., Ran]


def build_harness(library: Path, folder: Path, sanitize: str, source: str = "harness.cpp") -> Path:
    harness = folder / "harness"
    subprocess.run(
        [
            *("c++", "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"),
            *(f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
            *(f"-I{CORE}", f"-isystem{stub_cuda.cuda_include()}"),
            *(str(HERE / source), f"-L{library}", "-l:libcuda.so.1"),
            *("-o", str(harness)),
        ],
        check=True,
    )
    return harness


@pytest.fixture(scope="module", params=SANITIZERS)
def run_harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> RunHarness:
    """Run the harness on the stub, both under one sanitizer; a finding fails the test."""
    folder = tmp_path_factory.mktemp("harness")
    library = stub_cuda.build(request.param)
    harness = build_harness(library, folder, request.param)

    def run(threads: int, cycles: int, **settings: object) -> Ran:
        ledger = tmp_path_factory.mktemp("ledger")
        env = stub_cuda.env(library, ledger, **settings)
        env["TSAN_OPTIONS"] = "halt_on_error=1"
        # The stub keeps its tables to the end, as a driver does.
        env["ASAN_OPTIONS"] = "detect_leaks=0"
        done = subprocess.run(
            # ThreadSanitizer of GCC 12 does not know where newer kernels put things.
            ["setarch", platform.machine(), "-R", str(harness), str(threads), str(cycles)],
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        match = re.fullmatch(
            r"rows (\d+) failed (\d+) leaked (\d+) mismatched (\d+)\n", done.stdout
        )
        assert match is not None, done.stdout
        rows, failed, leaked, mismatched = map(int, match.groups())
        return Ran(rows, failed, leaked, mismatched, stub_cuda.read_ledger(ledger))

    return run


@pytest.mark.parametrize("threads", [1, 2, 8, 64])
def test_threads_share_nothing_but_the_driver(run_harness: RunHarness, threads: int) -> None:
    ran = run_harness(threads, 40)
    assert (ran.rows, ran.failed, ran.leaked, ran.mismatched) == (40 * threads, 0, 0, 0)
    assert ran.ledger.calls["cuMemSetAccess"] == 40 * threads
    assert ran.ledger.violations == []
    assert ran.ledger.is_empty


def test_failed_cycles_of_any_call_give_everything_back(run_harness: RunHarness) -> None:
    calls = (
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressFree",
    )
    fail = ",".join(f"{call}:{20 + 9 * i}:CUDA_ERROR_UNKNOWN" for i, call in enumerate(calls))
    ran = run_harness(8, 40, fail=fail)
    assert (ran.rows, ran.failed, ran.leaked) == (320, len(calls), 0)
    assert ran.ledger.faults == len(calls)
    assert ran.ledger.violations == []
    assert ran.ledger.is_empty


def test_out_of_memory_is_a_failed_cycle(run_harness: RunHarness) -> None:
    # Of 4 MiB, 2 a domain, two of the four conditions can never get theirs.
    ran = run_harness(64, 20, memory=4 << 20)
    assert ran.rows == 64 * 20
    assert ran.failed >= ran.rows // 2 and ran.leaked == 0
    assert ran.ledger.violations == []
    assert ran.ledger.is_empty


def test_read_back_that_lies_is_seen(run_harness: RunHarness) -> None:
    assert run_harness(4, 50, wrong_ordinal=10).mismatched == 20
    # Two of the four conditions are compressible.
    assert run_harness(4, 50, wrong_compression=10).mismatched == 10


def test_a_signal_stops_all_threads_between_cycles(run_harness: RunHarness) -> None:
    ran = run_harness(8, 100_000, signal="cuMemCreate:500:SIGTERM")
    # Each thread ends at the latest with the cycle that it is in.
    assert 500 <= ran.rows < 8 * 100_000
    assert ran.failed == ran.leaked == 0
    assert ran.ledger.calls["cuMemAddressFree"] == ran.rows
    assert ran.ledger.is_empty


def test_what_cannot_be_given_back_is_reported_as_leaked(run_harness: RunHarness) -> None:
    ran = run_harness(1, 40, fail="cuMemUnmap:5+:CUDA_ERROR_ILLEGAL_STATE")
    assert (ran.rows, ran.failed, ran.leaked) == (5, 1, 1)
    assert ran.ledger.alive["mappings"] == ran.ledger.alive["reservations"] == 1
    assert ran.ledger.alive["handles"] == 0
    # The only thing wrong is that the context goes with memory in it.
    assert {text.split(":")[0] for text in ran.ledger.violations} == {"cuDevicePrimaryCtxRelease"}
