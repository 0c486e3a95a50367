# SPDX-License-Identifier: MIT
"""RmDriver: the protocol of drivers/protocol.py on the resource manager itself.

A plain ``device`` placement is contiguous memory, ``noncontiguous`` and
``compressible`` are what they say. With static BAR1 on, memory that is both
runs the per-page update loop, with no CUDA and without scattering the card: the
shortest reproduction of it on a Turing or later GPU.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.protocol import (
    NO_FAILED_CALL,
    NO_TIME_NS,
    Batch,
    LeakError,
    PlacementUnavailableError,
)
from vmmprof.drivers.rm.cycle import Cycle, CycleTimes, empty_call_ns
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel.rm import (
    PAGE_BYTES,
    GpuNode,
    Physicality,
    RmClient,
    RmError,
    RmStatus,
    Transport,
    allocate,
    allocation_params,
    find_gpu,
    framebuffer,
    gpu_name,
    localization_supported,
    static_bar1,
    status_name,
)
from vmmprof.kernel.rm.structs import MemoryAllocationParams
from vmmprof.operations import RM_ALLOC
from vmmprof.placement import Condition, Placement
from vmmprof.recording.schema import Flag

# NVOS32_ATTR2_ENABLE_LOCALIZED_MEMORY knows these two.
_LOCALITY_DOMAINS = 2

_STICKY_STATUS = frozenset(
    {RmStatus.NV_ERR_GPU_IS_LOST, RmStatus.NV_ERR_RESET_REQUIRED, RmStatus.NV_ERR_FATAL_ERROR}
)


class RmDriver:
    """Allocates and frees video memory of /dev/nvidia``device``.

    UsageError when there is no such GPU; NothingMeasuredError when its resource
    manager cannot be reached.
    """

    name = "rm"
    operation = RM_ALLOC
    is_model = False
    headline = "total"
    clock = "CLOCK_MONOTONIC"

    def __init__(self, device: int = 0, transport: Transport | None = None) -> None:
        self.device = device
        self._transport = transport
        self._gpu = self._find(device)
        self._conditions: list[Condition] = []
        self._cycles: list[Cycle] = []
        self._layouts: dict[str, object] = {}
        self._stop_requested = False
        # What a sweep needs to know before it starts is asked with a client of its own.
        with self._client_or_nothing() as client:
            supported = localization_supported(client)
            self.domain_count = None if supported is None else _LOCALITY_DOMAINS * supported
            self.total_memory_bytes = framebuffer(client).usable_bytes
        self._client: RmClient | None = None
        self._undo = ExitStack()

    def __enter__(self) -> RmDriver:
        self._client = self._undo.enter_context(self._client_or_nothing())
        return self

    def __exit__(self, *exc: object) -> None:
        self._client = None
        self._undo.close()

    def granularity_bytes(self, placement: Placement) -> int:
        if placement.rdma:
            raise UsageError(f"placement {placement}: --driver rm has no rdma; use --driver cuda")
        if placement.domain is not None and not self.domain_count:
            raise PlacementUnavailableError(
                f"placement {placement}: the resource manager says that this GPU has no "
                "localized memory"
            )
        return PAGE_BYTES

    def prepare(self, conditions: Sequence[Condition]) -> None:
        client = self._opened()
        self._conditions = list(conditions)
        self._stop_requested = False
        self._cycles = [Cycle(client, _params(condition)) for condition in conditions]
        self._wanted_compression = np.array(
            [condition.placement.compressible for condition in conditions], bool
        )
        self._layouts = {
            str(condition): _layout(client, condition) for condition in self._conditions
        }

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        rows: list[CycleTimes] = []
        for visit in visits.tolist():
            if self._stop_requested:
                break
            rows.append(self._cycles[visit].run())
            if rows[-1].status != 0:
                break
        batch = self._batch(rows, visits[: len(rows)])
        if rows and rows[-1].failed_call == self.operation.calls.index("free"):
            raise LeakError(
                f"NV_ESC_RM_FREE failed ({self.status_name(rows[-1].status)}) and the memory is "
                "still held; it goes with this process",
                batch,
            )
        return batch

    def request_stop(self) -> None:
        self._stop_requested = True

    def scattered(self) -> AbstractContextManager[None]:
        raise UsageError(
            "--scatter needs --driver cuda: on a scattered card the resource manager has no "
            "contiguous memory for the control; ask for --placement noncontiguous instead"
        )

    def require_alone(self) -> None:
        """Nothing here fills the card, so others may use it."""

    def status_name(self, status: int) -> str:
        if status < 0:
            return errno.errorcode.get(-status, f"errno {-status}")
        return status_name(status)

    def is_sticky(self, status: int) -> bool:
        return status in _STICKY_STATUS or status == -errno.EIO

    def environment(self) -> dict[str, object]:
        client = self._opened()
        bar1 = static_bar1(client)
        sizes = framebuffer(client)
        return {
            "device": self.device,
            "name": _name(client),
            "device_path": self._gpu.path,
            "pci_bus_id": self._gpu.pci_address,
            "driver_version": client.driver_version(),
            "total_memory_mib": self.total_memory_bytes >> 20,
            "free_memory_mib": sizes.free_bytes >> 20,
            "bar1_total_mib": sizes.bar1_bytes >> 20,
            "bar1_free_mib": sizes.bar1_free_bytes >> 20,
            "static_bar1": {
                "enabled": bar1.enabled,
                "start_offset": bar1.start_offset,
                "size_mib": bar1.size_bytes >> 20,
                "write_combined": bar1.write_combined,
            },
            "locality_domains": self.domain_count,
            "empty_ioctl_ns": round(empty_call_ns(client), 1),
            "layouts": self._layouts,
        }

    def _batch(self, rows: list[CycleTimes], visits: npt.NDArray[np.int32]) -> Batch:
        calls_ns = np.array([(row.alloc_ns, row.free_ns) for row in rows], np.int64).reshape(-1, 2)
        failed_call = np.array([row.failed_call for row in rows], np.int8)
        ok = failed_call == NO_FAILED_CALL
        flags = np.zeros(len(rows), np.uint16)
        flags[~ok] |= np.uint16(Flag.FAILED)
        granted = np.array([row.compressible for row in rows], bool)
        flags[ok & (granted != self._wanted_compression[visits])] |= np.uint16(
            Flag.WRONG_COMPRESSION
        )
        return Batch(
            visit=np.arange(len(rows), dtype=np.int32),
            start_ns=np.array([row.start_ns for row in rows], np.int64),
            calls_ns=calls_ns,
            total_ns=np.where(ok, calls_ns.sum(axis=1), NO_TIME_NS),
            status=np.array([row.status for row in rows], np.int32),
            failed_call=failed_call,
            flags=flags,
        )

    def _find(self, device: int) -> GpuNode:
        try:
            return find_gpu(minor=device, transport=self._transport)
        except RmError as error:
            raise UsageError(f"device {device}: {error}") from error

    def _client_or_nothing(self) -> RmClient:
        try:
            return RmClient(self._gpu, self._transport)
        except RmError as error:
            raise NothingMeasuredError(str(error)) from error

    def _opened(self) -> RmClient:
        if self._client is None:
            raise ValueError("the driver is used outside its with statement")
        return self._client


def _params(condition: Condition) -> MemoryAllocationParams:
    placement = condition.placement
    return allocation_params(
        condition.size_bytes,
        compressible=placement.compressible,
        physicality=(
            Physicality.NONCONTIGUOUS if placement.noncontiguous else Physicality.CONTIGUOUS
        ),
        domain=placement.domain,
    )


def _layout(client: RmClient, condition: Condition) -> object:
    """How such memory lies: it decides whether and how often the update loop runs."""
    try:
        with allocate(client, _params(condition)) as memory:
            layout = memory.physical_layout()
    except RmError as error:
        return f"unknown: {error}"
    return {
        "kind": layout.kind,
        "contiguous": layout.contiguous,
        "pages": len(layout.pages),
        "physical_runs": len(layout.runs),
    }


def _name(client: RmClient) -> str:
    """The GPU's name; a driver that does not tell it must not keep memory from being timed."""
    try:
        return gpu_name(client)
    except RmError as error:
        return f"unknown: {error}"
