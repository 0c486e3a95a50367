# SPDX-License-Identifier: MIT
"""The rm driver behind drivers/protocol.py, on the simulated resource manager."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from tests.simulated.card import PAGE, Card, Fault
from tests.simulated.rm import SimulatedRm
from vmmprof.drivers.protocol import (
    NO_FAILED_CALL,
    NO_TIME_NS,
    LeakError,
    PlacementUnavailableError,
)
from vmmprof.drivers.rm import RmDriver
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel.rm import RmStatus
from vmmprof.kernel.rm.client import ESC_ALLOC, ESC_FREE
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.recording.schema import Flag

COMPRESSIBLE = Placement(compressible=True)
SCATTERED_PAGES = Placement(compressible=True, noncontiguous=True)


@pytest.fixture
def rm() -> SimulatedRm:
    return SimulatedRm(Card(16))


def prepared(rm: SimulatedRm, *conditions: Condition) -> RmDriver:
    driver = RmDriver(0, rm)
    driver.__enter__()
    driver.prepare(conditions or (Condition(PLAIN, PAGE), Condition(COMPRESSIBLE, 4 * PAGE)))
    return driver


def visits(*indices: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(indices, np.int32)


def test_cycles_run_in_the_order_given_and_leave_nothing(rm: SimulatedRm) -> None:
    driver = prepared(rm)
    batch = driver.run(visits(1, 0, 1))
    assert batch.visit.tolist() == [0, 1, 2]
    assert batch.status.tolist() == [0, 0, 0]
    assert batch.failed_call.tolist() == [NO_FAILED_CALL] * 3
    assert batch.flags.tolist() == [0, 0, 0]
    assert (batch.calls_ns > 0).all()
    assert (batch.total_ns == batch.calls_ns.sum(axis=1)).all()
    assert (np.diff(batch.start_ns) > 0).all()
    assert rm.card.free_bytes == 16 * PAGE
    driver.__exit__()
    assert not rm.objects
    assert not rm.files


def test_each_condition_allocates_its_own_kind_of_memory(rm: SimulatedRm) -> None:
    seen = []
    allocate = rm.card.allocate

    def record(size: int, **kind: Any) -> object:
        seen.append((size // PAGE, kind["compressible"], kind["noncontiguous"]))
        return allocate(size, **kind)

    driver = prepared(rm, Condition(PLAIN, PAGE), Condition(SCATTERED_PAGES, 2 * PAGE))
    rm.card.allocate = record  # type: ignore[assignment,method-assign]
    driver.run(visits(0, 1, 0))
    assert seen == [(1, False, False), (2, True, True), (1, False, False)]


def test_what_came_back_does_not_leak_into_the_next_cycle(rm: SimulatedRm) -> None:
    """The RM writes its answer into the arguments; the next cycle asks afresh."""
    driver = prepared(rm, Condition(COMPRESSIBLE, PAGE))
    rm.card.faults.add(Fault.COMPRESSION_IGNORED)
    assert driver.run(visits(0)).flags.tolist() == [Flag.WRONG_COMPRESSION]
    rm.card.faults.clear()
    assert driver.run(visits(0)).flags.tolist() == [0]


def test_running_out_of_memory_ends_the_batch_with_that_row(rm: SimulatedRm) -> None:
    driver = prepared(rm, Condition(PLAIN, PAGE), Condition(PLAIN, 32 * PAGE))
    batch = driver.run(visits(0, 1, 0))
    assert len(batch) == 2
    assert batch.status[1] == RmStatus.NV_ERR_NO_MEMORY
    assert batch.failed_call[1] == 0
    assert batch.calls_ns[1].tolist() == [NO_TIME_NS, NO_TIME_NS]
    assert batch.total_ns[1] == NO_TIME_NS
    assert batch.flags[1] == Flag.FAILED
    assert driver.status_name(int(batch.status[1])) == "NV_ERR_NO_MEMORY"
    assert not driver.is_sticky(int(batch.status[1]))


def test_memory_that_cannot_be_freed_is_a_leak(rm: SimulatedRm) -> None:
    driver = prepared(rm)
    rm.refuse["free"] = RmStatus.NV_ERR_GPU_IS_LOST
    with pytest.raises(LeakError, match=r"NV_ESC_RM_FREE failed \(NV_ERR_GPU_IS_LOST") as caught:
        driver.run(visits(0, 0))
    batch = caught.value.batch
    assert batch.failed_call.tolist() == [1]
    assert batch.calls_ns[0, 0] > 0
    assert batch.calls_ns[0, 1] == NO_TIME_NS
    assert driver.is_sticky(int(batch.status[0]))


@pytest.mark.parametrize(("number", "call"), [(ESC_ALLOC, 0), (ESC_FREE, 1)])
def test_a_system_error_is_named_too(rm: SimulatedRm, number: int, call: int) -> None:
    driver = prepared(rm)
    ioctl = rm.ioctl

    def refuse(fd: int, asked: int, argument: Any) -> None:
        if asked == number:
            raise OSError(errno.EIO, "refused")
        ioctl(fd, asked, argument)

    rm.ioctl = refuse  # type: ignore[method-assign]
    if call == 1:
        with pytest.raises(LeakError, match="EIO") as caught:
            driver.run(visits(0))
        batch = caught.value.batch
    else:
        batch = driver.run(visits(0))
    assert batch.failed_call.tolist() == [call]
    assert driver.status_name(int(batch.status[0])) == "EIO"
    assert driver.is_sticky(int(batch.status[0]))


def test_a_requested_stop_ends_the_batch_after_its_cycle(rm: SimulatedRm) -> None:
    driver = prepared(rm)
    allocate = rm.card.allocate

    def stop_then_allocate(size: int, **kind: Any) -> object:
        driver.request_stop()
        return allocate(size, **kind)

    rm.card.allocate = stop_then_allocate  # type: ignore[assignment,method-assign]
    assert len(driver.run(visits(0, 0, 0))) == 1
    rm.card.allocate = allocate  # type: ignore[method-assign]
    driver.prepare([Condition(PLAIN, PAGE)])
    assert len(driver.run(visits(0, 0, 0))) == 3


def test_what_was_not_asked_of_this_driver_is_bad_input(rm: SimulatedRm) -> None:
    driver = RmDriver(0, rm)
    assert driver.granularity_bytes(SCATTERED_PAGES) == PAGE
    with pytest.raises(UsageError, match="--driver rm has no rdma"):
        driver.granularity_bytes(Placement(rdma=True))
    with pytest.raises(PlacementUnavailableError, match="has no localized memory"):
        driver.granularity_bytes(Placement(domain=0))
    with pytest.raises(UsageError, match="--scatter needs --driver cuda"), driver.scattered():
        pass
    with pytest.raises(UsageError, match=r"device 7: .*\(no /dev/nvidia7;"):
        RmDriver(7, rm)


def test_without_a_driver_nothing_can_be_measured(rm: SimulatedRm) -> None:
    def refuse(path: str) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    rm.open = refuse  # type: ignore[method-assign]
    with pytest.raises(NothingMeasuredError, match="no NVIDIA driver is loaded"):
        RmDriver(0, rm)


def test_the_environment_says_how_the_memory_lies(rm: SimulatedRm) -> None:
    rm.card.free_pages = [0, 1, 3, 4, 8, 9, 10, 11]
    driver = prepared(rm, Condition(PLAIN, 4 * PAGE), Condition(SCATTERED_PAGES, 4 * PAGE))
    environment = driver.environment()
    assert environment["name"] == "Simulated H200"
    layouts: Any = environment["layouts"]
    assert layouts["device 8 MiB"] == {
        "kind": 6,
        "contiguous": True,
        "pages": 4,
        "physical_runs": 1,
    }
    assert layouts["compressible+noncontiguous 8 MiB"]["physical_runs"] == 2
    assert environment["static_bar1"]["enabled"] is True  # type: ignore[index]
    assert environment["empty_ioctl_ns"] >= 0  # type: ignore[operator]


def test_an_unprivileged_layout_is_unknown_not_absent(rm: SimulatedRm) -> None:
    rm.card.faults.add(Fault.NOT_ROOT)
    driver = prepared(rm, Condition(PLAIN, PAGE))
    layouts: Any = driver.environment()["layouts"]
    assert layouts["device 2 MiB"].startswith("unknown: resource manager: could not ask for phys")
