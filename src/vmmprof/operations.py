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

RM_ALLOC = Operation("rm_alloc", ("alloc", "free"), ("NV_ESC_RM_ALLOC", "NV_ESC_RM_FREE"))

OPERATIONS = {operation.name: operation for operation in (VMM_CYCLE, RM_ALLOC)}
