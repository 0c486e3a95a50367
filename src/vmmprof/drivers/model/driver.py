# SPDX-License-Identifier: MIT
"""ModelDriver: the protocol of drivers/protocol.py on a modelled GPU, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.model.bursts import burst_of
from vmmprof.drivers.model.costs import Work
from vmmprof.drivers.model.gpus import TOTAL, ModelledGpu
from vmmprof.drivers.model.locks import SOURCE as LOCKS_SOURCE
from vmmprof.drivers.model.pma import PAGE_BYTES, PhysicalMemory
from vmmprof.drivers.model.update_loop import parse_patch
from vmmprof.drivers.protocol import (
    NO_FAILED_CALL,
    NO_TIME_NS,
    Batch,
    Burst,
    PlacementUnavailableError,
    VictimRequest,
    WorkerFailure,
)
from vmmprof.errors import UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import Condition, Placement
from vmmprof.recording.schema import Flag
from vmmprof.sizes import format_size
from vmmprof.variant import STANDARD, Variant

_SUCCESS = 0
_OUT_OF_MEMORY = 2
_STATUS_NAMES = {_SUCCESS: "CUDA_SUCCESS", _OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY"}

_CALLS = VMM_CYCLE.calls
_CREATE = _CALLS.index("create")


@dataclass(frozen=True)
class _Cycle:
    """What one visit to a condition gives; times in ns, NO_TIME_NS where not modelled."""

    calls_ns: tuple[int, ...]
    total_ns: int
    status: int = _SUCCESS

    @property
    def duration_ns(self) -> int:
        """How far the virtual clock moves: the total, else the calls that are known."""
        if self.total_ns != NO_TIME_NS:
            return self.total_ns
        return sum(ns for ns in self.calls_ns if ns != NO_TIME_NS)


_OUT_OF_MEMORY_CYCLE = _Cycle((NO_TIME_NS,) * len(_CALLS), NO_TIME_NS, _OUT_OF_MEMORY)


class ModelDriver:
    """Runs VMM cycles on a modelled GPU with a modelled patch.

    Every visit to a condition takes the same virtual time, to the nanosecond:
    there is no noise, so an interval over repeats has no width.
    """

    operation = VMM_CYCLE
    device_count = 1
    is_model = True
    clock = "virtual"

    def __init__(self, gpu: ModelledGpu, patch: str) -> None:
        self.name = f"model:{gpu.name}"
        self.gpu = gpu
        self.domain_count: int | None = gpu.domain_count
        self.total_memory_bytes = gpu.total_memory_bytes
        self.headline = gpu.headline
        self._patch_name = patch
        self._patch = parse_patch(patch)
        self._memory = PhysicalMemory(gpu.total_memory_bytes, gpu.domain_count)
        self._conditions: list[Condition] = []
        self._cycles: dict[int, _Cycle] = {}
        self._now_ns = 0
        self._stop_requested = False

    def __enter__(self) -> ModelDriver:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held between cycles."""

    def granularity_bytes(self, placement: Placement) -> int:
        wanted = (
            ("compressible", placement.compressible, self.gpu.compressible),
            ("noncontiguous", placement.noncontiguous, self.gpu.noncontiguous),
            ("rdma", placement.rdma, False),
        )
        for word, asked_for, has_source in wanted:
            if asked_for and not has_source:
                raise PlacementUnavailableError(
                    f"placement {placement}: {self.name} has no source for the times of "
                    f"{word} memory"
                )
        if placement.domain is not None and placement.domain >= self.gpu.domain_count:
            raise UsageError(
                f"placement {placement}: {self.name} has {self.gpu.domain_count} locality domain(s)"
            )
        return PAGE_BYTES

    def prepare(self, conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            if condition.size_bytes % self.granularity_bytes(condition.placement):
                raise UsageError(
                    f"size {format_size(condition.size_bytes)} is not a multiple of the "
                    f"granularity, {format_size(PAGE_BYTES)}"
                )
        self._conditions = list(conditions)
        self._cycles.clear()
        self._stop_requested = False

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        cycles = []
        for visit in visits:
            if self._stop_requested:
                break
            cycles.append(self._cycle(int(visit)))
            if cycles[-1].status != _SUCCESS:
                break
        return self._batch(cycles)

    # -- several at once ----------------------------------------------------

    def use_devices(self, devices: Sequence[tuple[int, ...]]) -> None:
        if any(group != (0,) for group in devices):
            raise UsageError(f"--devices: {self.name} has one device, 0")

    def use_api(self, name: str) -> None:
        if name != "vmm":
            raise UsageError(f"--api {name}: {self.name} has no source for its times")

    def use_rate(self, cycles_per_s: float) -> None:
        raise UsageError(f"--rate: {self.name} models a closed loop alone; leave it out")

    def use_victim(self, victim: VictimRequest) -> None:
        raise UsageError(f"--victim {victim.kind}: {self.name} has no source for its times")

    def require_variant(self, placement: Placement, variant: Variant) -> None:
        if variant != STANDARD:
            raise PlacementUnavailableError(
                f"variant {variant}: {self.name} has no source for its times"
            )

    def run_burst(self, condition: int, samples: int) -> Burst:
        cycle = self._cycle(condition)
        level = self._conditions[condition].level
        if cycle.status != _SUCCESS:
            return Burst(self._batch([]), (WorkerFailure("every worker", "out of memory"),))
        burst = burst_of(cycle.calls_ns, cycle.total_ns, level, samples, self._now_ns)
        self._now_ns = int((burst.batch.start_ns + burst.batch.total_ns.clip(0)).max())
        return burst

    def request_stop(self) -> None:
        self._stop_requested = True

    def require_alone(self) -> None:
        """UsageError when no source says what a scattered card costs; nobody else is here."""
        if not self.gpu.noncontiguous:
            raise UsageError(
                f"--scatter: {self.name} has no source for the times on a scattered card; "
                "model:h200 has"
            )

    @contextmanager
    def scattered(self) -> Iterator[None]:
        self.require_alone()
        self._cycles.clear()
        try:
            with self._memory.scattered():
                yield
        finally:
            self._cycles.clear()

    def status_name(self, status: int) -> str:
        return _STATUS_NAMES.get(status, f"CUDA error {status}")

    def is_sticky(self, status: int) -> bool:
        return False

    def environment(self) -> dict[str, object]:
        return {
            "name": f"MODEL of one {self.gpu.name.upper()}",
            "patch": self._patch_name,
            "total_memory_mib": self.total_memory_bytes >> 20,
            "total_memory_source": self.gpu.total_memory_source,
            "locality_domains": self.domain_count,
            "modelled_columns": list(self.gpu.columns),
            "locks": LOCKS_SOURCE,
            "not_modelled": list(self.gpu.not_modelled),
            "parameters": [asdict(p) for p in self.gpu.parameters.parameters],
        }

    def work(self, condition: Condition) -> Work | None:
        """What one pass over the condition's memory does; None when memory is out.

        The memory is taken and given back, so that the next call does the same.
        """
        placement = condition.placement
        memory = self._memory.allocate(
            condition.size_bytes // PAGE_BYTES,
            placement.domain if self.gpu.localizes(placement) else None,
            contiguous=not placement.noncontiguous,
        )
        if memory is None:
            return None
        self._memory.free(memory)
        return self.gpu.work(memory, placement, self._patch)

    def _cycle(self, visit: int) -> _Cycle:
        if visit not in self._cycles:
            self._cycles[visit] = self._modelled(self._conditions[visit])
        return self._cycles[visit]

    def _modelled(self, condition: Condition) -> _Cycle:
        work = self.work(condition)
        if work is None:
            return _OUT_OF_MEMORY_CYCLE
        times_us = self.gpu.times_us(work)
        times_ns = {name: round(us * 1000) for name, us in times_us.items()}
        return _Cycle(
            tuple(times_ns.get(call, NO_TIME_NS) for call in _CALLS),
            times_ns.get(TOTAL, NO_TIME_NS),
        )

    def _batch(self, cycles: Sequence[_Cycle]) -> Batch:
        durations_ns = np.array([cycle.duration_ns for cycle in cycles], np.int64)
        ends_ns = self._now_ns + np.cumsum(durations_ns)
        if cycles:
            self._now_ns = int(ends_ns[-1])
        status = np.array([cycle.status for cycle in cycles], np.int32)
        failed = status != _SUCCESS
        return Batch(
            visit=np.arange(len(cycles), dtype=np.int32),
            start_ns=ends_ns - durations_ns,
            calls_ns=np.array([cycle.calls_ns for cycle in cycles], np.int64).reshape(
                -1, len(_CALLS)
            ),
            total_ns=np.array([cycle.total_ns for cycle in cycles], np.int64),
            status=status,
            failed_call=np.where(failed, _CREATE, NO_FAILED_CALL).astype(np.int8),
            flags=np.where(failed, Flag.FAILED, 0).astype(np.uint16),
        )
