# SPDX-License-Identifier: MIT
"""CudaDriver: the protocol of drivers/protocol.py on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import _cycle, api, nvml
from vmmprof.drivers.cuda.scatter import scattered as scattered_card
from vmmprof.drivers.protocol import Batch, LeakError, PlacementUnavailableError
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import Condition, Placement
from vmmprof.recording.schema import Flag

# Memory in use on a GPU where nobody runs anything; more than that is somebody's.
_IDLE_USED_BYTES = 1 << 30


def _domain_code(placement: Placement) -> int:
    return -1 if placement.domain is None else placement.domain


class CudaDriver:
    """Runs VMM cycles on device ``device`` in its primary context.

    UsageError when there is no such device; NothingMeasuredError when no CUDA
    driver can be used or the device has no virtual memory management.
    """

    name = "cuda"
    operation = VMM_CYCLE
    is_model = False
    headline = "total"
    clock = "CLOCK_MONOTONIC"

    def __init__(self, device: int = 0) -> None:
        count = api.device_count()
        if count == 0:
            raise NothingMeasuredError("the CUDA driver reports no device")
        if not 0 <= device < count:
            raise UsageError(f"device {device}: this machine has CUDA devices 0 to {count - 1}")
        self.device = device
        self._device = api.call("cuDeviceGet", device)
        if not api.attribute(self._device, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"):
            raise NothingMeasuredError(
                f"device {device} has no virtual memory management; the seven calls need it"
            )
        self.domain_count = api.attribute(self._device, "LOCALITY_DOMAIN_COUNT")
        self.total_memory_bytes = int(api.call("cuDeviceTotalMem", self._device))
        self.pci_bus_id = api.call("cuDeviceGetPCIBusId", 32, self._device).split(b"\0")[0].decode()
        # Read before the context takes its own memory.
        self.usage_before = nvml.usage(self.pci_bus_id)
        self._core = _core(self.domain_count)
        self._conditions: list[Condition] = []
        self._stop_requested = False
        self._retained = False

    def __enter__(self) -> CudaDriver:
        context = api.call("cuDevicePrimaryCtxRetain", self._device)
        self._retained = True
        try:
            api.call("cuCtxSetCurrent", context)
        except BaseException as error:
            # What was not entered is not left.
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._retained:
            return
        self._retained = False
        try:
            api.call("cuDevicePrimaryCtxRelease", self._device)
        except api.CudaError:
            # The error that led here says more; the context goes with this process.
            if not any(exc):
                raise

    def granularity_bytes(self, placement: Placement) -> int:
        if placement.noncontiguous:
            raise UsageError(
                f"placement {placement}: CUDA cannot ask for non-contiguous memory; "
                "use --scatter, or --driver rm"
            )
        self._refuse_unsupported(placement)
        status, granularity_bytes = self._core.granularity(
            self.device, _domain_code(placement), placement.compressible, placement.rdma
        )
        if status != 0:
            raise PlacementUnavailableError(
                f"placement {placement}: cuMemGetAllocationGranularity failed: "
                f"{api.status_name(status)}"
            )
        return int(granularity_bytes)

    def _refuse_unsupported(self, placement: Placement) -> None:
        needs = []
        if placement.compressible:
            needs.append("GENERIC_COMPRESSION_SUPPORTED")
        if placement.rdma:
            needs.append("GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED")
        if placement.rdma and placement.domain is not None:
            needs.append("GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED")
        for need in needs:
            if not api.attribute(self._device, need):
                raise PlacementUnavailableError(
                    f"placement {placement}: device {self.device} reports "
                    f"CU_DEVICE_ATTRIBUTE_{need} = 0"
                )

    def prepare(self, conditions: Sequence[Condition]) -> None:
        self._conditions = list(conditions)
        self._stop_requested = False
        self._core.prepare(
            [
                (
                    self.device,
                    condition.size_bytes,
                    _domain_code(condition.placement),
                    condition.placement.compressible,
                    condition.placement.rdma,
                )
                for condition in conditions
            ]
        )
        self._wanted_ordinal = np.array(
            [self._wanted_ordinal_of(condition.placement) for condition in conditions], np.int32
        )
        self._wanted_compression = np.array(
            [int(condition.placement.compressible) for condition in conditions], np.int32
        )

    def _wanted_ordinal_of(self, placement: Placement) -> int:
        """What the ordinal reads back as: -1 unless the device has several domains to be on."""
        if placement.domain is None or self.domain_count == 1:
            return -1
        return placement.domain

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        start_ns, calls_ns, status, failed_call, ordinal, compression, leaked = self._core.run(
            np.ascontiguousarray(visits, np.int32)
        )
        ran = visits[: len(status)]
        ok = status == 0
        flags = np.zeros(len(status), np.uint16)
        flags[~ok] |= np.uint16(Flag.FAILED)
        if self.domain_count is not None:
            flags[ok & (ordinal != self._wanted_ordinal[ran])] |= np.uint16(Flag.WRONG_ORDINAL)
        flags[ok & (compression != self._wanted_compression[ran])] |= np.uint16(
            Flag.WRONG_COMPRESSION
        )
        batch = Batch(
            visit=np.arange(len(status), dtype=np.int32),
            start_ns=start_ns,
            calls_ns=calls_ns,
            total_ns=np.where(ok, calls_ns.sum(axis=1), -1),
            status=status,
            failed_call=failed_call,
            flags=flags,
        )
        if leaked:
            call = self.operation.calls[int(failed_call[-1])]
            raise LeakError(
                f"{self.operation.api_name(call)} failed ({api.status_name(int(status[-1]))}) and "
                "the cycle's memory could not be given back; it goes with this process",
                batch,
            )
        return batch

    def request_stop(self) -> None:
        self._stop_requested = True
        self._core.request_stop()

    @contextmanager
    def scattered(self) -> Iterator[None]:
        need_bytes = max(condition.size_bytes for condition in self._conditions)
        with scattered_card(self.device, need_bytes, lambda: self._stop_requested):
            yield

    def require_alone(self) -> None:
        """PlacementUnavailableError when others use the GPU, or when nobody can tell."""
        pids, used_bytes = self.usage_before.other_pids, self.usage_before.used_bytes
        if pids is None or used_bytes is None:
            raise PlacementUnavailableError(
                "scattered memory fills the card, and NVML cannot tell whether others use it"
            )
        if pids:
            listed = ", ".join(str(pid) for pid in pids)
            raise PlacementUnavailableError(
                f"scattered memory fills the card, and others use it: PID {listed}"
            )
        if used_bytes > _IDLE_USED_BYTES:
            raise PlacementUnavailableError(
                f"scattered memory fills the card, and {used_bytes >> 20} MiB of it are in use by "
                "processes that cannot be seen from here"
            )

    def status_name(self, status: int) -> str:
        return api.status_name(status)

    def is_sticky(self, status: int) -> bool:
        return api.is_sticky(status)

    def environment(self) -> dict[str, object]:
        free_bytes, _ = api.call("cuMemGetInfo")
        others = self.usage_before.other_pids
        return {
            "device": self.device,
            "name": _text(api.call("cuDeviceGetName", 128, self._device)),
            "pci_bus_id": self.pci_bus_id,
            "uuid": _uuid(api.call("cuDeviceGetUuid", self._device)),
            "compute_capability": f"{self._capability('MAJOR')}.{self._capability('MINOR')}",
            "total_memory_mib": self.total_memory_bytes >> 20,
            "free_memory_mib": free_bytes >> 20,
            "locality_domains": self.domain_count,
            "compression_supported": api.attribute(self._device, "GENERIC_COMPRESSION_SUPPORTED"),
            "other_pids": "unknown" if others is None else list(others),
            "cuda_driver_version": int(api.call("cuDriverGetVersion")),
            "cuda_bindings_version": version("cuda-bindings"),
            "empty_interval_ns": round(_cycle.empty_interval_cost_ns(), 2),
            **nvml.readings(self.pci_bus_id),
        }

    def _capability(self, part: str) -> int | None:
        return api.attribute(self._device, f"COMPUTE_CAPABILITY_{part}")


def _core(domain_count: int | None) -> _cycle.CycleCore:
    try:
        return _cycle.CycleCore(knows_locality_domains=domain_count is not None)
    except _cycle.MissingSymbolError as error:
        raise NothingMeasuredError(f"this CUDA driver has no {error}; the cycle needs it") from None
    except RuntimeError as error:
        # The bindings' own error where the driver is too old to resolve symbols for them.
        raise NothingMeasuredError(f"this CUDA driver is older than CUDA 12.0: {error}") from None


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")


def _uuid(raw: Any) -> str:
    digits = bytes(raw.bytes).hex()
    return "GPU-" + "-".join(
        (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
    )
