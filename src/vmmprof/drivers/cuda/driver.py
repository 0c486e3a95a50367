# SPDX-License-Identifier: MIT
"""CudaDriver: the protocol of drivers/protocol.py on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import _cycle, api, nvml
from vmmprof.drivers.cuda.bursts import burst_window, read_back_flags, to_burst
from vmmprof.drivers.cuda.green import domain_of, sm_count
from vmmprof.drivers.cuda.processes import Death, Processes
from vmmprof.drivers.cuda.scatter import scattered as scattered_card
from vmmprof.drivers.cuda.team import (
    Order,
    Team,
    WorkerRows,
    burst_memory,
    make_core,
    peer_devices,
    primary_contexts,
    require_devices,
)
from vmmprof.drivers.cuda.victim import Victim, prepared_victim
from vmmprof.drivers.protocol import (
    Batch,
    Burst,
    LeakError,
    PlacementUnavailableError,
    VictimRequest,
    WorkerFailure,
)
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.operations import POOL_CYCLE, VMM_CYCLE
from vmmprof.placement import NOBODY, Condition, Level, Placement
from vmmprof.variant import Variant

# Memory in use on a GPU where nobody runs anything; more than that is somebody's.
_IDLE_USED_BYTES = 1 << 30


def _domain_code(placement: Placement) -> int:
    return -1 if placement.domain is None else placement.domain


class CudaDriver:
    """Runs VMM cycles on device ``device`` in its primary context.

    Levels run as threads in this process, or in processes of their own where a
    level has several; those are started by the first prepare() that needs them.

    UsageError when there is no such device; NothingMeasuredError when no CUDA
    driver can be used or the device has no virtual memory management.
    """

    name = "cuda"
    is_model = False
    clock = "CLOCK_MONOTONIC"

    def __init__(self, device: int = 0) -> None:
        self.device_count = api.device_count()
        if self.device_count == 0:
            raise NothingMeasuredError("the CUDA driver reports no device")
        self._require_device(device)
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
        self.operation = VMM_CYCLE
        self.headline = "total"
        self._spacing_ns = 0
        self._nvtx = False
        self._core = make_core(self.domain_count is not None)
        self._conditions: list[Condition] = []
        self._stop_requested = False
        self._device_sets: dict[int, tuple[int, ...]] = {1: (device,)}
        self._undo = ExitStack()
        self._team: Team | None = None
        self._processes: Processes | None = None
        self._victim_request: VictimRequest | None = None
        self._victim: Victim | None = None
        self._control = burst_memory()

    def use_devices(self, devices: Sequence[tuple[int, ...]]) -> None:
        for device in sorted({device for group in devices for device in group}):
            self._require_device(device)
        self._device_sets = {len(group): group for group in devices}
        require_devices(self._all_devices)

    def use_api(self, name: str) -> None:
        if name == "vmm":
            return
        if not api.attribute(self._device, "MEMORY_POOLS_SUPPORTED"):
            raise UsageError(f"--api {name}: device {self.device} has no memory pools")
        self.operation = POOL_CYCLE
        self._core = make_core(self.domain_count is not None, pools=True, nvtx=self._nvtx)

    def mark_calls(self) -> None:
        """Put an NVTX range around every call, for a profiler attached to this process."""
        if not _cycle.HAS_NVTX:
            raise UsageError(
                "--nvtx: this vmmprof was built without NVTX's header; build it where the wheel "
                "nvidia-nvtx 13 is installed"
            )
        self._nvtx = True
        self._core = make_core(self.domain_count is not None, nvtx=True)

    def require_variant(self, placement: Placement, variant: Variant) -> None:
        if variant.pool and (placement.compressible or placement.rdma):
            raise PlacementUnavailableError(
                f"placement {placement}: a memory pool cannot be asked for such memory"
            )
        if variant.peers > self.device_count:
            raise PlacementUnavailableError(
                f"variant {variant}: this machine has {self.device_count} CUDA device(s)"
            )
        if variant.green:
            self._require_green(variant)
        for device in self._all_devices if variant.peers > 1 else ():
            for peer in peer_devices(device, variant.peers):
                if not api.call("cuDeviceCanAccessPeer", device, peer):
                    raise PlacementUnavailableError(
                        f"variant {variant}: device {device} cannot access device {peer}"
                    )

    def _require_green(self, variant: Variant) -> None:
        sms = api.attribute(self._device, "MULTIPROCESSOR_COUNT") or 0
        if variant.green.isdecimal() and int(variant.green) > sms:
            raise PlacementUnavailableError(
                f"variant {variant}: device {self.device} has {sms} SMs"
            )
        for worker in range(self.domain_count or 1):
            domain = domain_of(variant.green, worker, self.domain_count or 1)
            if domain is not None and domain >= (self.domain_count or 0):
                raise PlacementUnavailableError(
                    f"variant {variant}: device {self.device} has {self.domain_count or 0} known "
                    "locality domain(s); name a number of SMs instead"
                )
            try:
                sm_count(self.device, variant.green, domain)
            except (api.CudaError, NothingMeasuredError) as error:
                raise PlacementUnavailableError(f"variant {variant}: {error}") from None

    def use_rate(self, cycles_per_s: float) -> None:
        self._spacing_ns = round(1e9 / cycles_per_s)
        self.headline = "latency"

    def use_victim(self, victim: VictimRequest) -> None:
        self._require_device(victim.device)
        self._victim_request = victim

    def _require_device(self, device: int) -> None:
        if not 0 <= device < self.device_count:
            raise UsageError(
                f"device {device}: this machine has CUDA devices 0 to {self.device_count - 1}"
            )

    @property
    def _all_devices(self) -> list[int]:
        """The main device first: single cycles run on it."""
        used = {device for group in self._device_sets.values() for device in group}
        if self._victim_request is not None:
            used.add(self._victim_request.device)
        return [self.device, *sorted(used - {self.device})]

    def __enter__(self) -> CudaDriver:
        self._contexts = self._undo.enter_context(primary_contexts(self._all_devices))
        self._team = self._undo.enter_context(Team(self._core, self._contexts, self.domain_count))
        if self._victim_request is not None:
            self._victim = self._undo.enter_context(
                prepared_victim(
                    self._victim_request,
                    self._contexts[self._victim_request.device],
                    self._contexts[self.device],
                )
            )
        return self

    def __exit__(self, *exc: Any) -> None:
        self._team = self._processes = self._victim = None
        # The contexts look at the error that led here, if one did.
        self._undo.__exit__(*(exc or (None, None, None)))

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
        for device in self._all_devices:
            handle = api.call("cuDeviceGet", device)
            for need in needs:
                if not api.attribute(handle, need):
                    raise PlacementUnavailableError(
                        f"placement {placement}: device {device} reports "
                        f"CU_DEVICE_ATTRIBUTE_{need} = 0"
                    )

    def prepare(self, conditions: Sequence[Condition]) -> None:
        self._conditions = list(conditions)
        self._stop_requested = False
        assert self._team is not None, "the driver is used outside its with statement"
        self._team.prepare(conditions)
        self._prepare_processes(max((c.level.processes for c in conditions), default=1))
        self._wanted_ordinal = np.array(
            [self._wanted_ordinal_of(condition.placement) for condition in conditions], np.int32
        )
        self._wanted_compression = np.array(
            [int(condition.placement.compressible) for condition in conditions], np.int32
        )

    def _prepare_processes(self, count: int) -> None:
        if count > 1 and self._processes is None:
            self._processes = self._undo.enter_context(
                Processes(
                    count,
                    self._all_devices,
                    self.domain_count,
                    pools=self.operation is POOL_CYCLE,
                )
            )
        if self._processes is not None:
            self._processes.prepare(self._conditions)

    def _wanted_ordinal_of(self, placement: Placement) -> int:
        """What the ordinal reads back as: -1 unless the device has several domains to be on."""
        if placement.domain is None or self.domain_count == 1:
            return -1
        return placement.domain

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        start_ns, calls_ns, status, failed_call, ordinal, compression, cpu, leaked = self._core.run(
            np.ascontiguousarray(visits, np.int32)
        )
        calls_ns = np.ascontiguousarray(calls_ns[:, : len(self.operation.calls)])
        ran = visits[: len(status)]
        ok = status == 0
        flags = read_back_flags(
            ok,
            None if self.domain_count is None else ordinal == self._wanted_ordinal[ran],
            compression == self._wanted_compression[ran],
        )
        batch = Batch(
            visit=np.arange(len(status), dtype=np.int32),
            start_ns=start_ns,
            calls_ns=calls_ns,
            total_ns=np.where(ok, calls_ns.sum(axis=1), -1),
            status=status,
            failed_call=failed_call,
            flags=flags,
            cpu=cpu,
        )
        if leaked:
            call = self.operation.calls[int(failed_call[-1])]
            raise LeakError(
                f"{self.operation.api_name(call)} failed ({api.status_name(int(status[-1]))}) and "
                "the cycle's memory could not be given back; it goes with this process",
                batch,
            )
        return batch

    def run_burst(self, condition: int, samples: int) -> Burst:
        assert self._team is not None
        level = self._conditions[condition].level
        order = Order(
            condition=condition,
            devices=self._device_sets[level.devices] if level.workers else (),
            threads=level.threads,
            worker_count=level.workers,
            samples=samples,
            spacing_ns=self._spacing_ns,
        )
        workers, deaths = self._run_workers(order, level)
        burst = to_burst(
            workers,
            deaths,
            order,
            self.operation,
            wanted_ordinal=(
                None if self.domain_count is None else int(self._wanted_ordinal[condition])
            ),
            wanted_compression=int(self._wanted_compression[condition]),
        )
        if self._victim is None:
            return burst
        victim, failure = self._victim.finish(
            burst_window(workers, deaths, order), alone=level == NOBODY
        )
        failures = burst.failures if failure is None else (*burst.failures, failure)
        return replace(burst, victim=victim, failures=failures)

    def _run_workers(self, order: Order, level: Level) -> tuple[list[WorkerRows], list[Death]]:
        """All workers of a burst, with the victim started before them if there is one."""
        assert self._team is not None

        def start_victim(control: memoryview) -> None:
            if self._victim is not None:
                self._victim.start(control, level.workers)

        if level.processes == 1:
            _cycle.reset_burst(self._control)
            start_victim(self._control)
            return (self._team.run(order, self._control) if level.workers else []), []
        assert self._processes is not None
        try:
            return self._processes.run(order, level.processes, start_victim)
        except NothingMeasuredError as error:
            failure = WorkerFailure("a worker process", str(error), ends_run=True)
            return [], [Death(failure, ())]

    def request_stop(self) -> None:
        self._stop_requested = True
        self._core.request_stop()
        if self._processes is not None:
            self._processes.request_stop()

    @contextmanager
    def scattered(self) -> Iterator[None]:
        need_bytes = max(c.size_bytes * c.level.workers_a_device for c in self._conditions)
        with ExitStack() as stack:
            # What is free is asked of the current context's device.
            stack.callback(api.call, "cuCtxSetCurrent", self._contexts[self.device])
            for device, context in self._contexts.items():
                api.call("cuCtxSetCurrent", context)
                stack.enter_context(
                    scattered_card(device, need_bytes, lambda: self._stop_requested)
                )
            api.call("cuCtxSetCurrent", self._contexts[self.device])
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
            "device_sets": [list(group) for group in self._device_sets.values()],
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
            "nvtx_ranges": self._nvtx,
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
