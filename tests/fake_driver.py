# SPDX-License-Identifier: MIT
"""A driver without a device: times from a function, failures and signals on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.protocol import Batch, LeakError, PlacementUnavailableError
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import Condition, Placement
from vmmprof.recording.schema import Flag
from vmmprof.sizes import MIB

CREATE = VMM_CYCLE.calls.index("create")
OUT_OF_MEMORY = 2
STICKY = 719


class FakeDriver:
    """``time_ns(condition, n)`` is what create takes in the n-th cycle; others 1000 ns."""

    name = "fake"
    operation = VMM_CYCLE
    is_model = False
    headline = "total"
    clock = "CLOCK_MONOTONIC"
    total_memory_bytes = 1 << 40

    def __init__(
        self,
        time_ns: Callable[[Condition, int], int] = lambda condition, n: 10_000,
        domain_count: int | None = 2,
    ) -> None:
        self.domain_count = domain_count
        self.time_ns = time_ns
        self.visited: list[Condition] = []
        self.states: list[bool] = []
        self.is_scattered = False
        self.stop = False
        self.entered = 0
        self.fail: dict[tuple[Condition, int], int] = {}
        self.leak = False
        self.alone = True
        self.refuse: set[Placement] = set()
        self.flags: dict[Condition, Flag] = {}
        self.before_cycle: Callable[[int], None] = lambda n: None

    def __enter__(self) -> FakeDriver:
        self.entered += 1
        return self

    def __exit__(self, *exc: object) -> None:
        self.entered -= 1

    def granularity_bytes(self, placement: Placement) -> int:
        if placement in self.refuse:
            raise PlacementUnavailableError(f"placement {placement}: refused here")
        return 2 * MIB

    def prepare(self, conditions: Sequence[Condition]) -> None:
        self.conditions = list(conditions)
        self.stop = False

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        rows: list[tuple[int, int, int, int]] = []
        for visit in visits:
            if self.stop:
                break
            condition = self.conditions[visit]
            self.before_cycle(len(self.visited))
            nth = self.visited.count(condition)
            self.visited.append(condition)
            self.states.append(self.is_scattered)
            status = self.fail.get((condition, nth), 0)
            rows.append((len(rows), self.time_ns(condition, nth), status, int(visit)))
            if status:
                break
        batch = self._batch(rows)
        if rows and rows[-1][2] and self.leak:
            raise LeakError("cuMemCreate failed and memory is left", batch)
        return batch

    def _batch(self, rows: list[tuple[int, int, int, int]]) -> Batch:
        n = len(rows)
        calls = np.full((n, len(VMM_CYCLE.calls)), 1000, np.int64)
        flags = np.zeros(n, np.uint16)
        status = np.array([row[2] for row in rows], np.int32)
        failed = np.full(n, -1, np.int8)
        for i, (_, time_ns, code, visit) in enumerate(rows):
            calls[i, CREATE] = time_ns
            flags[i] |= self.flags.get(self.conditions[visit], Flag(0))
            if code:
                calls[i, CREATE:] = -1
                failed[i] = CREATE
                flags[i] |= np.uint16(Flag.FAILED)
        total = np.where(status == 0, calls.sum(axis=1), -1)
        position = np.arange(n, dtype=np.int32)
        return Batch(position, position.astype(np.int64), calls, total, status, failed, flags)

    def request_stop(self) -> None:
        self.stop = True

    def require_alone(self) -> None:
        if not self.alone:
            raise PlacementUnavailableError("others use the card: PID 1")

    @contextmanager
    def scattered(self) -> Iterator[None]:
        self.is_scattered = True
        try:
            yield
        finally:
            self.is_scattered = False

    def status_name(self, status: int) -> str:
        return {OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY", STICKY: "CUDA_ERROR_LAUNCH_FAILED"}[
            status
        ]

    def is_sticky(self, status: int) -> bool:
        return status == STICKY

    def environment(self) -> dict[str, object]:
        return {"name": "fake"}
