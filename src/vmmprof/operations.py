# SPDX-License-Identifier: MIT
"""What one timed cycle consists of: an operation and its calls, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """A sequence of calls that is timed call by call.

    ``calls`` are the short names that become the columns ``<call>_ns`` of a
    recording; ``api_names`` are the functions behind them, in the same order.
    """

    name: str
    calls: tuple[str, ...]
    api_names: tuple[str, ...]

    def api_name(self, call: str) -> str:
        """The API function behind a short call name."""
        return self.api_names[self.calls.index(call)]


VMM_CYCLE = Operation(
    "vmm_cycle",
    ("reserve", "create", "map", "set_access", "unmap", "release", "free"),
    (
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressFree",
    ),
)

# Memory of a pool is there when the stream has been waited for; only then a pool
# that keeps nothing gives it back. Both waits are calls of their own.
POOL_CYCLE = Operation(
    "pool_cycle",
    ("alloc", "alloc_sync", "free", "free_sync"),
    (
        "cuMemAllocFromPoolAsync",
        "cuStreamSynchronize",
        "cuMemFreeAsync",
        "cuStreamSynchronize",
    ),
)

RM_ALLOC = Operation("rm_alloc", ("alloc", "free"), ("NV_ESC_RM_ALLOC", "NV_ESC_RM_FREE"))

OPERATIONS = {operation.name: operation for operation in (VMM_CYCLE, POOL_CYCLE, RM_ALLOC)}
