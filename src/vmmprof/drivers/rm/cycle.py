# SPDX-License-Identifier: MIT
"""One timed cycle: allocate video memory, free it. Everything else is prepared outside."""

from __future__ import annotations

import ctypes
import statistics
import time
from dataclasses import dataclass

from vmmprof.drivers.protocol import NO_FAILED_CALL, NO_TIME_NS
from vmmprof.kernel.rm import RmClient, granted_compression
from vmmprof.kernel.rm.client import ESC_ALLOC, ESC_FREE
from vmmprof.kernel.rm.memory import CLASS_LOCAL_MEMORY
from vmmprof.kernel.rm.structs import AllocParameters, FreeParameters, MemoryAllocationParams

ALLOC, FREE = 0, 1
_CALIBRATION_ROUNDS = 1000


@dataclass(frozen=True)
class CycleTimes:
    """Times in ns of CLOCK_MONOTONIC; ``status`` is NV_STATUS, or minus an errno."""

    start_ns: int
    alloc_ns: int
    free_ns: int
    status: int
    failed_call: int
    compressible: bool


class Cycle:
    """Allocates and frees one kind of memory, with all arguments built beforehand."""

    def __init__(self, client: RmClient, params: MemoryAllocationParams) -> None:
        self._transport = client.transport
        self._fd = client.control_fd
        # The resource manager writes what it granted into the arguments.
        self._template = bytes(params)
        self._params = MemoryAllocationParams()
        # One handle serves all cycles: it is free again when a cycle has ended.
        handle = client.new_handle()
        self._alloc = AllocParameters(
            hRoot=client.handle,
            hObjectParent=client.device,
            hObjectNew=handle,
            hClass=CLASS_LOCAL_MEMORY,
            pAllocParms=ctypes.addressof(self._params),
            paramsSize=ctypes.sizeof(self._params),
        )
        self._free = FreeParameters(
            hRoot=client.handle, hObjectParent=client.device, hObjectOld=handle
        )

    def run(self) -> CycleTimes:
        """One cycle. When the free fails the memory is still held."""
        ctypes.memmove(ctypes.addressof(self._params), self._template, len(self._template))
        start_ns, alloc_ns, status = self._timed(ESC_ALLOC, self._alloc)
        if status != 0:
            return CycleTimes(start_ns, NO_TIME_NS, NO_TIME_NS, status, ALLOC, False)
        _, free_ns, status = self._timed(ESC_FREE, self._free)
        if status != 0:
            return CycleTimes(start_ns, alloc_ns, NO_TIME_NS, status, FREE, False)
        return CycleTimes(
            start_ns, alloc_ns, free_ns, 0, NO_FAILED_CALL, granted_compression(self._params)
        )

    def _timed(
        self, number: int, arguments: AllocParameters | FreeParameters
    ) -> tuple[int, int, int]:
        """Start, duration and status of one ioctl."""
        clock, ioctl, fd = time.clock_gettime_ns, self._transport.ioctl, self._fd
        start_ns = clock(time.CLOCK_MONOTONIC)
        try:
            ioctl(fd, number, arguments)
        except OSError as error:
            return start_ns, NO_TIME_NS, -(error.errno or 1)
        end_ns = clock(time.CLOCK_MONOTONIC)
        return start_ns, end_ns - start_ns, int(arguments.status)


def empty_call_ns(client: RmClient) -> float:
    """Median cost in ns of timing an ioctl that the driver never sees.

    FIOCLEX (the file is close-on-exec already) goes through the same wrapper and
    the same copies, and ends before the driver: what a timed call reads too long.
    """
    arguments = AllocParameters()
    times = []
    for _ in range(_CALIBRATION_ROUNDS):
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        client.transport.empty_ioctl(client.control_fd, arguments)
        times.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC) - start_ns)
    return statistics.median(times)
