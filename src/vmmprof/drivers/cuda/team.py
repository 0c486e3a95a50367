# SPDX-License-Identifier: MIT
"""The workers of one process: threads of the core, each in the context of its device."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import _cycle, api
from vmmprof.drivers.cuda.pools import Pools
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
    spacing_ns: int = 0


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


def make_core(knows_locality_domains: bool, pools: bool = False) -> _cycle.CycleCore:
    """The timing core; NothingMeasuredError when the driver lacks an entry point."""
    try:
        return _cycle.CycleCore(knows_locality_domains=knows_locality_domains, pools=pools)
    except _cycle.MissingSymbolError as error:
        raise NothingMeasuredError(f"this CUDA driver has no {error}; the cycle needs it") from None
    except RuntimeError as error:
        # The bindings' own error where the driver is too old to resolve symbols for them.
        raise NothingMeasuredError(f"this CUDA driver is older than CUDA 12.0: {error}") from None


def peer_devices(device: int, count: int) -> tuple[int, ...]:
    """The others of ``count`` devices that access is granted to, the own one counted."""
    others = [other for other in range(api.device_count()) if other != device]
    return tuple(others[: max(0, count - 1)])


class Team:
    """Runs this process's part of bursts. Use as a context manager, inside the contexts."""

    def __init__(self, core: _cycle.CycleCore, contexts: dict[int, Any], process: int = 0) -> None:
        self._core = core
        self._contexts = {device: int(context) for device, context in contexts.items()}
        self._offsets = {device: i for i, device in enumerate(contexts)}
        self._process = process
        self._condition_count = 0
        self._pools = Pools()

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The error that led here says more than what it keeps from being given back.
        with suppress(api.CudaError) if error is not None else nullcontext():
            self._pools.close()

    def prepare(self, conditions: Sequence[Condition]) -> None:
        """Take the conditions that orders will index, every one on every device."""
        self._pools.close()
        self._condition_count = len(conditions)
        self._core.prepare(
            [
                self._core_condition(device, condition)
                for device in self._contexts
                for condition in conditions
            ]
        )

    def _core_condition(self, device: int, condition: Condition) -> _cycle.CoreCondition:
        """A condition on a device as CycleCore.prepare takes it."""
        placement, variant = condition.placement, condition.variant
        return (
            device,
            condition.size_bytes,
            -1 if placement.domain is None else placement.domain,
            placement.compressible,
            placement.rdma,
            variant.chunk_bytes,
            peer_devices(device, variant.peers),
            variant.call_a_peer,
            self._pools.of(device, condition),
        )

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
            order.spacing_ns,
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
