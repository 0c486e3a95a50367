# SPDX-License-Identifier: MIT
"""Chunks, peers and pools, from the command line to the recording, on the stub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.cuda.conftest import Ended, Run
from vmmprof.recording.reader import Recording, load
from vmmprof.recording.schema import Flag

Sweep = Callable[..., tuple[Ended, Recording]]
SHORT = ("--driver", "cuda", "--no-lock", "--repeats", "3", "--warmup", "0")


@pytest.fixture
def sweep(on_stub: Run, tmp_path: Path) -> Sweep:
    def run(*arguments: str, **settings: object) -> tuple[Ended, Recording]:
        name = str(tmp_path / "r")
        ended = on_stub(
            *("-m", "vmmprof", "sweep", "--output", name, *SHORT, *arguments), **settings
        )
        return ended, load(name)

    return run


def counts(samples: pd.DataFrame) -> dict[str, int]:
    return samples["variant"].astype(str).value_counts().to_dict()


def test_chunks_make_one_range_of_many_allocations(sweep: Sweep) -> None:
    ended, recording = sweep(
        *("--sizes", "2M,8M", "--placement", "domain:1", "--variant", "chunks:2M")
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    # Two placements; of 2 MiB there are no two chunks of 2 MiB.
    assert counts(recording.samples) == {"": 12, "chunks:2M": 6}
    assert "chunks:2M is left out at 2 MiB" in " ".join(ended.stdout.split())
    assert ended.ledger.calls["cuMemCreate"] == 12 + 6 * 4
    assert ended.ledger.calls["cuMemSetAccess"] == ended.ledger.calls["cuMemUnmap"] == 18
    assert (recording.samples["flags"] == 0).all()


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemUnmap"])
def test_a_failing_chunk_gives_back_the_chunks_before_it(sweep: Sweep, call: str) -> None:
    ended, recording = sweep(
        *("--sizes", "8M", "--placement", "device", "--variant", "chunks:2M"),
        fail=f"{call}:4:CUDA_ERROR_OUT_OF_MEMORY",
    )
    assert ended.returncode == 4, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    failed = recording.samples["flags"] & int(Flag.FAILED) != 0
    assert failed.sum() == 1


def test_one_wrong_chunk_of_many_discards_the_cycle(sweep: Sweep) -> None:
    _, recording = sweep(
        *("--sizes", "8M", "--placement", "domain:1", "--variant", "chunks:2M"),
        wrong_ordinal=10,
    )
    chunks = recording.samples[recording.samples["variant"] == "chunks:2M"]
    assert (chunks["flags"] & int(Flag.WRONG_ORDINAL) != 0).any()


def test_access_is_granted_to_peers_in_one_call_or_in_many(sweep: Sweep) -> None:
    ended, recording = sweep(
        *("--sizes", "2M", "--placement", "device"),
        *("--variant", "peers:3", "--variant", "peers:3:calls"),
        devices=3,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    assert counts(recording.samples) == {"": 3, "peers:3": 3, "peers:3:calls": 3}
    assert ended.ledger.calls["cuMemSetAccess"] == 3 + 3 + 9


def test_more_peers_than_devices_cannot_be_measured(sweep: Sweep) -> None:
    ended, recording = sweep(*("--sizes", "2M", "--placement", "device", "--variant", "peers:4"))
    assert ended.returncode == 4
    assert "variant peers:4: this machine has 1 CUDA device(s)" in ended.stderr
    assert counts(recording.samples) == {"": 3}


def test_pools_are_measured_cold_and_warm_with_their_ordinal_read_back(sweep: Sweep) -> None:
    ended, recording = sweep(
        *("--api", "pool", "--sizes", "2M,4M", "--placement", "domain:1"),
        *("--threads", "1,2", "--burst", "5"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    assert recording.operation.name == "pool_cycle"
    assert set(counts(recording.samples)) == {"pool:cold", "pool:warm"}
    # Two sizes, two placements, cold and warm.
    assert ended.ledger.calls["cuMemPoolCreate"] == 8
    inside = recording.samples[recording.samples["flags"] == 0]
    assert (
        inside["total_ns"]
        == inside[["alloc_ns", "alloc_sync_ns", "free_ns", "free_sync_ns"]].sum(axis=1)
    ).all()


def test_pool_memory_on_the_wrong_domain_is_discarded(sweep: Sweep) -> None:
    _, recording = sweep(
        *("--api", "pool", "--sizes", "2M", "--placement", "domain:1"), wrong_ordinal=4
    )
    assert (recording.samples["flags"] & int(Flag.WRONG_ORDINAL) != 0).sum() == 3


@pytest.mark.parametrize("call", ["cuMemAllocFromPoolAsync", "cuMemFreeAsync"])
def test_a_failing_pool_cycle_gives_its_memory_and_the_pools_back(sweep: Sweep, call: str) -> None:
    ended, _ = sweep(
        *("--api", "pool", "--sizes", "2M", "--placement", "device"),
        fail=f"{call}:2:CUDA_ERROR_OUT_OF_MEMORY",
    )
    assert ended.returncode == 4, ended.stderr
    assert f"{call} failed: CUDA_ERROR_OUT_OF_MEMORY" in ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []


def test_what_a_pool_cannot_be_asked_for_is_said(sweep: Sweep) -> None:
    ended, _ = sweep(
        *("--api", "pool", "--sizes", "2M", "--placement", "compressible"),
    )
    assert ended.returncode == 4
    assert "a memory pool cannot be asked for such memory" in ended.stderr


def test_green_contexts_are_made_for_each_thread_and_given_back(sweep: Sweep) -> None:
    ended, recording = sweep(
        *("--sizes", "2M", "--placement", "device", "--threads", "1,3", "--burst", "4"),
        *("--green-context", "16", "--green-context", "domain:1", "--green-context", "domains"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    assert set(counts(recording.samples)) == {"", "green:16", "green:domain1", "green:domains"}
    assert ended.ledger.calls["cuGreenCtxCreate"] == 3 * 3
    # Whether it can be had is asked first: 16 SMs once for each of two domains.
    assert ended.ledger.calls["cuDevSmResourceSplitByCount"] == 3 + 2


def test_a_green_context_in_worker_processes_is_given_back_too(sweep: Sweep) -> None:
    ended, _ = sweep(
        *("--sizes", "2M", "--placement", "device", "--processes", "2", "--burst", "4"),
        *("--green-context", "16"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []


@pytest.mark.parametrize(
    ("which", "domains", "reason"),
    [
        ("domain:2", 2, "device 0 has 2 known locality domain(s); name a number of SMs"),
        ("domain:0", 0, "device 0 has 0 known locality domain(s); name a number of SMs"),
        ("100000", 2, "variant green:100000: device 0 has 144 SMs"),
    ],
)
def test_a_green_context_that_cannot_be_had_is_said(
    sweep: Sweep, which: str, domains: int, reason: str
) -> None:
    ended, recording = sweep(
        *("--sizes", "2M", "--placement", "device", "--green-context", which), domains=domains
    )
    assert ended.returncode == 4
    assert reason in ended.stderr
    assert counts(recording.samples) == {"": 3}


def test_a_kernel_that_does_not_stay_in_flight_voids_the_burst(sweep: Sweep) -> None:
    # The stub's kernels are over at once, which must never pass for a busy GPU.
    ended, recording = sweep(*("--sizes", "2M", "--placement", "device", "--variant", "busy"))
    assert ended.returncode == 4
    assert "the kernel in flight: did not run throughout the burst" in ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    busy = recording.samples[recording.samples["variant"] == "busy"]
    assert len(busy) and (busy["flags"] & int(Flag.OUTSIDE_WINDOW) != 0).all()
    assert (recording.samples["flags"] == 0).any()
