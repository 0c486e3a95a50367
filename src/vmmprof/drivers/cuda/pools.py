# SPDX-License-Identifier: MIT
"""Memory pools of conditions: cold ones that keep nothing, warm ones that keep everything."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api
from vmmprof.placement import Condition, Placement

_KEEP_NOTHING, _KEEP_EVERYTHING = 0, (1 << 64) - 1


def _properties(device: int, placement: Placement) -> Any:
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    if placement.domain is None:
        properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = device
    else:
        # The location is a union, so id is left alone.
        properties.location.type = (
            cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
        )
        properties.location.localized.deviceId = device
        properties.location.localized.localityDomainId = placement.domain
    return properties


class Pools:
    """A pool for each kind, placement and size; :meth:`close` destroys them all."""

    def __init__(self) -> None:
        self._pools: dict[tuple[int, Placement, int, str], Any] = {}

    def of(self, device: int, condition: Condition) -> int:
        """Address of the pool for the condition on a device; 0 when it asks for none.

        Levels share it: they are never measured at the same time.
        """
        kind = condition.variant.pool
        if not kind:
            return 0
        key = (device, condition.placement, condition.size_bytes, kind)
        if key in self._pools:
            return int(self._pools[key])
        pool = api.call("cuMemPoolCreate", _properties(device, condition.placement))
        self._pools[key] = pool
        threshold = cuda.cuuint64_t(_KEEP_EVERYTHING if kind == "warm" else _KEEP_NOTHING)
        api.call(
            "cuMemPoolSetAttribute",
            pool,
            cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            threshold,
        )
        return int(pool)

    def close(self) -> None:
        """Destroy all pools, then say what could not be destroyed."""
        failed: api.CudaError | None = None
        while self._pools:
            try:
                api.call("cuMemPoolDestroy", self._pools.popitem()[1])
            except api.CudaError as error:
                failed = failed or error
        if failed is not None:
            raise failed
