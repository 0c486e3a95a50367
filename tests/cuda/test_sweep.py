# SPDX-License-Identifier: MIT
"""``vmmprof sweep`` on the stub: what it asks of the driver, and what it makes of the answers."""

from __future__ import annotations

import pytest

from tests.cuda.conftest import Ended, Run, assert_clean
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.schema import Flag

MIB = 1 << 20


def placements(ended: Ended) -> set[str]:
    return set(ended.recording.samples["placement"].astype(str))


def test_plain_and_every_domain_are_measured_by_default(sweep: Run) -> None:
    ended = sweep()
    assert_clean(ended)
    assert (ended.returncode, ended.errors) == (0, [])
    samples = ended.recording.samples
    assert len(samples) == 2 * 3 * (1 + 3)
    assert placements(ended) == {"device", "domain:0", "domain:1"}
    assert (samples["flags"].isin([0, Flag.WARMUP])).all()
    calls = [f"{call}_ns" for call in VMM_CYCLE.calls]
    assert (samples[calls] > 0).all(axis=None)
    assert (samples[calls].sum(axis=1) == samples["total_ns"]).all()
    # One cycle is the seven calls and two read-backs, nothing else.
    for function in (
        *VMM_CYCLE.api_names,
        "cuMemGetAllocationPropertiesFromHandle",
        "cuPointerGetAttribute",
    ):
        assert ended.ledger.calls[function] == len(samples)


@pytest.mark.parametrize(
    ("domains", "expected"),
    [(0, {"device"}), (1, {"device"}), (2, {"device", "domain:0", "domain:1"})],
)
def test_unknown_one_and_two_domains(sweep: Run, domains: int, expected: set[str]) -> None:
    ended = sweep(domains=domains)
    assert_clean(ended)
    assert ended.returncode == 0
    assert placements(ended) == expected
    known = None if domains == 0 else domains
    assert ended.recording.environment["gpu"]["locality_domains"] == known
    asked = ended.ledger.calls["cuPointerGetAttribute"] > 0
    assert asked == (domains > 0)


def test_the_only_domain_of_a_device_reads_back_as_not_localized(sweep: Run) -> None:
    ended = sweep("--placement", "domain:0", domains=1)
    assert_clean(ended)
    assert ended.returncode == 0
    assert placements(ended) == {"device", "domain:0"}
    assert (ended.recording.samples["flags"].isin([0, Flag.WARMUP])).all()


def test_every_combination_of_placements_is_created_as_asked(sweep: Run) -> None:
    ended = sweep(
        *("--placement", "compressible"),
        *("--placement", "rdma+domain:all"),
        *("--placement", "compressible+rdma+domain:1"),
    )
    assert_clean(ended)
    assert ended.returncode == 0
    assert placements(ended) == {
        "device",
        "compressible",
        "domain:0+rdma",
        "domain:1+rdma",
        "domain:1+compressible+rdma",
    }
    assert (ended.recording.samples["flags"].isin([0, Flag.WARMUP])).all()


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        (["--placement", "domain:0"], {"domains": 0}, "does not know locality domains"),
        (
            ["--placement", "compressible"],
            {"compression": "unsupported"},
            "CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED = 0",
        ),
        (["--placement", "compressible"], {"compression": "refuse"}, "discarded: none of 4"),
        (["--placement", "rdma"], {"rdma": 0}, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 0"),
        (
            ["--placement", "rdma+domain:1"],
            {"rdma_localized": 0},
            "GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED = 0",
        ),
        # A domain has half of the 64 MiB.
        (["--sizes", "2M,64M"], {"memory": 64 * MIB}, "CUDA_ERROR_OUT_OF_MEMORY"),
    ],
    ids=["domain", "no compression", "refused", "no rdma", "no localized rdma", "out of memory"],
)
def test_what_cannot_be_had_is_said_and_the_rest_is_measured(
    sweep: Run, arguments: list[str], settings: dict[str, object], reason: str
) -> None:
    ended = sweep(*arguments, **settings)
    assert_clean(ended)
    assert ended.returncode == 4
    assert any(reason in line for line in ended.errors)
    samples = ended.recording.samples
    usable = samples[samples["flags"] == 0]
    assert (usable["placement"] == "device").sum() >= 3


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        (["--placement", "domain:2"], {}, "the device has 2 locality domain(s)"),
        (["--device", "2"], {"devices": 2}, "this machine has CUDA devices 0 to 1"),
        (["--sizes", "128M"], {"memory": 64 * MIB}, "larger than the device's memory of 64 MiB"),
        (["--output", "/proc/nowhere"], {}, "cannot write /proc/nowhere"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_allocated(
    sweep: Run, arguments: list[str], settings: dict[str, object], reason: str
) -> None:
    ended = sweep(*arguments, **settings)
    assert_clean(ended)
    assert ended.returncode == 2
    (line,) = ended.errors
    assert line.startswith("vmmprof: error: ") and reason in line
    assert ended.ledger.calls["cuMemCreate"] == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"devices": 0}, "cuInit failed: CUDA_ERROR_NO_DEVICE"),
        ({"driver_version": 11000, "domains": 0}, "older than CUDA 12.0"),
        ({"fail": "cuInit:1+:CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, "SYSTEM_DRIVER_MISMATCH"),
    ],
)
def test_without_a_usable_device_cuda_is_refused_and_auto_models(
    sweep: Run, settings: dict[str, object], reason: str
) -> None:
    ended = sweep(**settings)
    assert ended.returncode == 3
    (line,) = ended.errors
    assert reason in line
    modelled = sweep(driver="auto", **settings)
    assert modelled.returncode == 0
    assert reason in modelled.stderr
    assert "MODEL" in modelled.stderr and "MODEL" in modelled.stdout


def test_auto_takes_cuda_where_there_is_a_device(sweep: Run) -> None:
    ended = sweep(driver="auto")
    assert_clean(ended)
    assert ended.returncode == 0
    assert not ended.recording.is_model
    assert "MODEL" not in ended.stdout


def test_the_second_device_is_measured_on_its_own(sweep: Run) -> None:
    ended = sweep("--device", "1", devices=2)
    assert_clean(ended)
    assert ended.returncode == 0
    assert ended.recording.environment["gpu"]["name"] == "Stub GPU 1"
    assert (ended.recording.samples["device"] == 1).all()


def test_sizes_are_rounded_to_the_granularity_and_measured_once(sweep: Run) -> None:
    ended = sweep("--sizes", "1K,2M,4M,6M", granularity=4 * MIB)
    assert_clean(ended)
    assert ended.returncode == 0
    assert set(ended.recording.samples["size_bytes"]) == {4 * MIB, 8 * MIB}
    assert len(ended.recording.samples) == 2 * 3 * 4
    assert ended.stdout.count("rounded up to the granularity of 4 MiB") == 1


def test_memory_in_the_wrong_place_is_discarded_counted_and_shown(sweep: Run) -> None:
    ended = sweep(wrong_ordinal=5)
    assert_clean(ended)
    samples = ended.recording.samples
    wrong = samples[(samples["flags"].to_numpy() & Flag.WRONG_ORDINAL) != 0]
    # Every fifth map of 24; maps and rows come in the same order.
    assert list(wrong.index) == [4, 9, 14, 19]
    shown = wrong[(wrong["flags"].to_numpy() & Flag.WARMUP) == 0]
    counts = [
        int(count)
        for line in ended.stdout.splitlines()
        if line.startswith("discarded, wrong memory read back: ")
        for count in line.replace(",", " ").split()
        if count.isdecimal()
    ]
    # Sizes stand in the line, too: "2 MiB 1, 4 MiB 2".
    assert sum(counts[1::2]) == len(shown)


def test_compression_that_is_not_granted_is_discarded(sweep: Run) -> None:
    ended = sweep("--placement", "compressible", wrong_compression=4)
    assert_clean(ended)
    samples = ended.recording.samples
    wrong = (samples["flags"].to_numpy() & Flag.WRONG_COMPRESSION) != 0
    # 8 compressible allocations, every fourth of them.
    assert wrong.sum() == 2
    assert (samples["placement"][wrong] == "compressible").all()


def test_only_wrong_memory_means_that_nothing_was_measured(sweep: Run) -> None:
    ended = sweep(wrong_ordinal=1)
    assert_clean(ended)
    assert ended.returncode == 3
    assert any("none of 4 allocations read back" in line for line in ended.errors)
    assert len(ended.recording.samples) == 24


def test_a_read_back_that_fails_is_a_discarded_sample(sweep: Run) -> None:
    fail = "cuMemGetAllocationPropertiesFromHandle:9:CUDA_ERROR_UNKNOWN"
    ended = sweep(fail=fail)
    assert_clean(ended)
    samples = ended.recording.samples
    assert list(samples.index[(samples["flags"].to_numpy() & Flag.WRONG_COMPRESSION) != 0]) == [8]


def test_time_is_booked_to_the_call_size_and_placement_that_took_it(sweep: Run) -> None:
    ended = sweep(
        *("--sizes", "30M:36M:2M", "--repeats", "8", "--placement", "domain:1"),
        latency="cuMemCreate:5000000:100000:localized:32",
    )
    assert_clean(ended)
    assert ended.returncode == 0
    samples = ended.recording.samples
    slow = (samples["placement"] == "domain:1") & (samples["size_bytes"] > 32 * MIB)
    # Never less than what the driver spent: 5 ms and 0.1 ms for each MiB over 32.
    spent_ns = 5_000_000 + 100_000 * (samples["size_bytes"] / MIB - 32)
    assert (samples["create_ns"] >= spent_ns)[slow].all()
    # The others' best of eight, and the best of the other calls, are nowhere near.
    others = samples[~slow].groupby(["placement", "size_bytes"], observed=True)
    assert (others["create_ns"].min() < 5_000_000).all()
    calls = [f"{call}_ns" for call in VMM_CYCLE.calls if call != "create"]
    assert (samples[slow][calls].min() < 5_000_000).all()
