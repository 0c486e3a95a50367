# SPDX-License-Identifier: MIT
"""The workers of one process: threads of the core, each in the context of its device."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import _cycle, api
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.errors import NothingMeasuredError
from vmmprof.placement import Condition


@dataclass(frozen=True)
class WorkerRows:
    """What one worker of a burst did; ``table`` has the columns of CycleCore.run_burst."""

    process: int
    thread: int
    device: int
    table: npt.NDArray[np.int64]
    context_status: int
    leaked: bool

    @property
    def name(self) -> str:
        return f"process {self.process} thread {self.thread} on device {self.device}"


@dataclass(frozen=True)
class Order:
    """A burst as one process is told of it; ``worker_count`` is that of all processes."""

    condition: int
    devices: tuple[int, ...]
    threads: int
    worker_count: int
    samples: int


@contextmanager
def primary_contexts(devices: Sequence[int]) -> Iterator[dict[int, Any]]:
    """Hold the primary context of each device while inside; the first one becomes current."""
    contexts: dict[int, Any] = {}
    try:
        for device in devices:
            contexts[device] = api.call("cuDevicePrimaryCtxRetain", api.call("cuDeviceGet", device))
        api.call("cuCtxSetCurrent", contexts[devices[0]])
        yield contexts
    except BaseException:
        # The error that led here says more; a context that stays goes with this process.
        with suppress(api.CudaError):
            _release(contexts)
        raise
    _release(contexts)


def _release(contexts: dict[int, Any]) -> None:
    """Release all that can be, then say what could not."""
    failed: api.CudaError | None = None
    while contexts:
        device, _ = contexts.popitem()
        try:
            api.call("cuDevicePrimaryCtxRelease", api.call("cuDeviceGet", device))
        except api.CudaError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def make_core(knows_locality_domains: bool) -> _cycle.CycleCore:
    """The timing core; NothingMeasuredError when the driver lacks an entry point."""
    try:
        return _cycle.CycleCore(knows_locality_domains=knows_locality_domains)
    except _cycle.MissingSymbolError as error:
        raise NothingMeasuredError(f"this CUDA driver has no {error}; the cycle needs it") from None
    except RuntimeError as error:
        # The bindings' own error where the driver is too old to resolve symbols for them.
        raise NothingMeasuredError(f"this CUDA driver is older than CUDA 12.0: {error}") from None


def core_conditions(
    conditions: Sequence[Condition], devices: Sequence[int]
) -> list[tuple[int, int, int, bool, bool]]:
    """Every condition on every device as CycleCore.prepare takes them, device by device."""
    return [
        (
            device,
            condition.size_bytes,
            -1 if condition.placement.domain is None else condition.placement.domain,
            condition.placement.compressible,
            condition.placement.rdma,
        )
        for device in devices
        for condition in conditions
    ]


class Team:
    """Runs this process's part of bursts; ``devices`` are those it was prepared for."""

    def __init__(self, core: _cycle.CycleCore, contexts: dict[int, Any], process: int = 0) -> None:
        self._core = core
        self._contexts = {device: int(context) for device, context in contexts.items()}
        self._offsets = {device: i for i, device in enumerate(contexts)}
        self._process = process
        self._condition_count = 0

    def prepare(self, conditions: Sequence[Condition]) -> None:
        """Take the conditions that orders will index."""
        self._condition_count = len(conditions)
        self._core.prepare(core_conditions(conditions, list(self._contexts)))

    def run(self, order: Order, control: memoryview) -> list[WorkerRows]:
        """Run one burst's workers of this process and wait for them."""
        devices = [device for device in order.devices for _ in range(order.threads)]
        rows = self._core.run_burst(
            [
                (
                    self._contexts[device],
                    self._offsets[device] * self._condition_count + order.condition,
                )
                for device in devices
            ],
            control,
            self._process * len(devices),
            order.worker_count,
            order.samples,
        )
        return [
            WorkerRows(self._process, thread, device, *row)
            for thread, (device, row) in enumerate(zip(devices, rows, strict=True))
        ]


def burst_memory(memory_fd: int = -1) -> memoryview:
    """Memory for a burst to meet in: this process's own, or what a memfd shares."""
    return memoryview(mmap.mmap(memory_fd, _cycle.BURST_CONTROL_BYTES))


def require_devices(devices: Sequence[int]) -> None:
    """PlacementUnavailableError for a device without virtual memory management."""
    for device in devices:
        handle = api.call("cuDeviceGet", device)
        if not api.attribute(handle, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"):
            raise PlacementUnavailableError(
                f"device {device} has no virtual memory management; leave it out of --devices"
            )
