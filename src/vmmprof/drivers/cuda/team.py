# SPDX-License-Identifier: MIT
"""The workers of one process: threads of the core, each in the context of its device."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import _cycle, api
from vmmprof.drivers.cuda.busy import BusyKernel, busy_kernel
from vmmprof.drivers.cuda.green import domain_of, green_context
from vmmprof.drivers.cuda.pools import Pools
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.errors import NothingMeasuredError
from vmmprof.placement import Condition
from vmmprof.variant import Variant


@dataclass(frozen=True)
class WorkerRows:
    """What one worker of a burst did; ``table`` has the columns of CycleCore.run_burst."""

    process: int
    thread: int
    device: int
    table: npt.NDArray[np.int64]
    context_status: int
    leaked: bool
    kernel_ended: bool = False
    """Whether a kernel that was to be in flight was not, or no more at the end."""

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


def make_core(
    knows_locality_domains: bool, pools: bool = False, nvtx: bool = False
) -> _cycle.CycleCore:
    """The timing core; NothingMeasuredError when the driver lacks an entry point."""
    try:
        return _cycle.CycleCore(
            knows_locality_domains=knows_locality_domains, pools=pools, nvtx=nvtx
        )
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

    def __init__(
        self,
        core: _cycle.CycleCore,
        contexts: dict[int, Any],
        domain_count: int | None,
        process: int = 0,
    ) -> None:
        self._core = core
        self._domain_count = domain_count or 1
        self._contexts = contexts
        self._offsets = {device: i for i, device in enumerate(contexts)}
        self._process = process
        self._conditions: list[Condition] = []
        self._pools = Pools()
        self._undo = ExitStack()
        self._green: dict[tuple[int, str, int], Any] = {}
        self._busy: dict[int, BusyKernel] = {}

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
            self._give_back()

    def _give_back(self) -> None:
        try:
            self._pools.close()
        finally:
            self._green.clear()
            self._busy.clear()
            self._undo.close()

    def prepare(self, conditions: Sequence[Condition]) -> None:
        """Take the conditions that orders will index, every one on every device."""
        self._give_back()
        self._conditions = list(conditions)
        for condition in conditions:
            self._prepare_variant(condition)
        api.call("cuCtxSetCurrent", next(iter(self._contexts.values())))
        self._core.prepare(
            [
                self._core_condition(device, condition)
                for device in self._contexts
                for condition in conditions
            ]
        )

    def _prepare_variant(self, condition: Condition) -> None:
        """Make the green contexts and kernels that a condition's variant asks for.

        A green context can be current to one thread at a time, so that each
        thread has its own.
        """
        variant = condition.variant
        for device, context in self._contexts.items():
            if variant.busy and device not in self._busy:
                self._busy[device] = self._undo.enter_context(busy_kernel(context))
            for thread in range(condition.level.threads if variant.green else 0):
                key = (device, variant.green, thread)
                if key not in self._green:
                    domain = domain_of(variant.green, thread, self._domain_count)
                    self._green[key] = self._undo.enter_context(
                        green_context(device, variant.green, domain)
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
        variant = self._conditions[order.condition].variant
        places = [(device, thread) for device in order.devices for thread in range(order.threads)]
        kernels = [self._busy[device] for device in order.devices if variant.busy]
        in_flight = [kernel.start() for kernel in kernels]
        try:
            rows = self._core.run_burst(
                [
                    (
                        int(self._context(device, variant, thread)),
                        self._offsets[device] * len(self._conditions) + order.condition,
                    )
                    for device, thread in places
                ],
                control,
                self._process * len(places),
                order.worker_count,
                order.samples,
                order.spacing_ns,
            )
        finally:
            in_flight += [kernel.end() for kernel in kernels]
        return [
            WorkerRows(self._process, i, device, *row, kernel_ended=not all(in_flight))
            for i, ((device, _), row) in enumerate(zip(places, rows, strict=True))
        ]

    def _context(self, device: int, variant: Variant, thread: int) -> Any:
        if variant.green:
            return self._green[device, variant.green, thread]
        return self._contexts[device]


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
