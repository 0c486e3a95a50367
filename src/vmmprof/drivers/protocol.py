# SPDX-License-Identifier: MIT
"""The protocol between the experiment and whatever runs a cycle.

A driver is given conditions once and then visits, indices into those
conditions. It runs one cycle a visit, in the order given, and returns one row
a cycle. It never prints, never chooses an order and never drops a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vmmprof.errors import PartialError
from vmmprof.operations import Operation
from vmmprof.placement import Condition, Placement
from vmmprof.variant import Variant

# A call that was not reached, or that a model has no source for. Stored as null.
NO_TIME_NS = -1
NO_FAILED_CALL = -1


@dataclass(frozen=True)
class Workers:
    """Who ran each row of a burst, as arrays of length ``n`` beside a batch's.

    repeat: number of the cycle within the worker's burst; 0 ran before the
    common start.
    """

    process: npt.NDArray[np.int16]
    thread: npt.NDArray[np.int16]
    device: npt.NDArray[np.int16]
    repeat: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """What ``n`` visits gave, as arrays of length ``n`` in visit order.

    A batch is shorter than the visits asked for when a cycle failed (then its
    last row is the failed one, and what the cycle held is given back) or when
    a stop was requested.

    visit: index into the visits given. start_ns: CLOCK_MONOTONIC at the first
    call (virtual for models). calls_ns: (n, calls of the operation), or
    NO_TIME_NS. total_ns: sum of the calls; a model may know it where it does
    not know every call, and the reverse. status: the driver's error code of
    the failed call, 0 = success. failed_call: its index, or NO_FAILED_CALL.
    flags: bits of recording.schema.Flag set by read-backs. cpu: that the cycle
    ran on, None where a driver does not say. latency_ns: from the intended start
    to the end of the calls in an open loop, None in a closed one. workers: None
    for one cycle a visit.
    """

    visit: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    calls_ns: npt.NDArray[np.int64]
    total_ns: npt.NDArray[np.int64]
    status: npt.NDArray[np.int32]
    failed_call: npt.NDArray[np.int8]
    flags: npt.NDArray[np.uint16]
    cpu: npt.NDArray[np.int32] | None = None
    latency_ns: npt.NDArray[np.int64] | None = None
    workers: Workers | None = None

    def __len__(self) -> int:
        return len(self.visit)


@dataclass(frozen=True)
class WorkerFailure:
    """A worker that did not get through a burst, and why, for the user.

    ``ends_run``: its context or the card is not what it was, so nothing more
    can be measured.
    """

    worker: str
    reason: str
    ends_run: bool = False

    def __str__(self) -> str:
        return f"{self.worker}: {self.reason}"


@dataclass(frozen=True)
class VictimRows:
    """What a victim met beside one burst, as arrays of length ``n`` in the order done.

    counts: whether the operation ran beside all workers of the burst.
    """

    start_ns: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int32]
    counts: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class VictimRequest:
    """A thread that does one small thing again and again while others allocate.

    ``kind``: ``query`` (cuMemGetInfo), ``alloc`` (cuMemCreate and cuMemRelease
    of 2 MiB) or ``launch`` (an empty kernel, waited for). ``pause_ns`` lies
    between two operations.
    """

    kind: str
    device: int
    pause_ns: int = 50_000


@dataclass(frozen=True)
class Burst:
    """What one visit of a level gave: the rows of all workers, worker by worker.

    ``batch.visit`` is 0 throughout. Rows that were not begun and ended while
    all workers were running have Flag.OUTSIDE_WINDOW. A burst with failures
    ended early; what the failed workers held is given back unless a failure
    says otherwise.
    """

    batch: Batch
    failures: tuple[WorkerFailure, ...] = ()
    victim: VictimRows | None = None


class PlacementUnavailableError(PartialError):
    """The device or driver cannot give memory of this placement; the text says why."""


class LeakError(PartialError):
    """A failed cycle still holds memory: the card is not what it was, so the run ends."""

    def __init__(self, message: str, batch: Batch) -> None:
        super().__init__(message)
        self.batch = batch


class Driver(Protocol):
    """Runs cycles. Use as a context manager: leaving it gives everything back."""

    name: str
    """As in ``--driver``: ``cuda``, ``rm``, ``model:b300``."""
    operation: Operation
    is_model: bool
    """Whether the times are modelled; then MODEL is written wherever they appear."""
    domain_count: int | None
    """Locality domains of the device; None when the driver does not know the attribute."""
    total_memory_bytes: int
    headline: str
    """What a cycle is summed up by: ``total``, or the one call that a model knows."""
    clock: str
    """``CLOCK_MONOTONIC`` or ``virtual``."""

    def __enter__(self) -> Driver: ...

    def __exit__(self, *exc: object) -> None: ...

    def granularity_bytes(self, placement: Placement) -> int:
        """Allocation granularity; PlacementUnavailableError when it cannot be had here."""
        ...

    def prepare(self, conditions: Sequence[Condition]) -> None:
        """Take the conditions that visits will index. May be called again."""
        ...

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        """One cycle a visit, in order; stops after the first failed cycle.

        LeakError when a failed cycle could not give back what it held.
        """
        ...

    def request_stop(self) -> None:
        """End the running batch after its current cycle; safe in a signal handler."""
        ...

    def require_alone(self) -> None:
        """PlacementUnavailableError when filling the memory would disturb others."""
        ...

    def scattered(self) -> AbstractContextManager[None]:
        """Hold every other 2 MiB piece of free memory while inside."""
        ...

    def status_name(self, status: int) -> str:
        """Name of an error code, such as ``CUDA_ERROR_OUT_OF_MEMORY``."""
        ...

    def is_sticky(self, status: int) -> bool:
        """Whether the code means that nothing more can be run in this process."""
        ...

    def environment(self) -> Mapping[str, object]:
        """JSON-ready facts about device and driver for the recording."""
        ...


@runtime_checkable
class ConcurrentDriver(Driver, Protocol):
    """A driver that can run several workers at once; entered like any other."""

    device_count: int
    """Devices of this machine, 0 to ``device_count`` - 1."""

    def use_devices(self, devices: Sequence[tuple[int, ...]]) -> None:
        """Devices that levels will ask for; before entering.

        A level with k devices runs on the set of length k. UsageError when a
        device is not there.
        """
        ...

    def use_api(self, name: str) -> None:
        """``vmm`` (the usual), or ``pool``: the operation of every cycle; before entering."""
        ...

    def require_variant(self, placement: Placement, variant: Variant) -> None:
        """PlacementUnavailableError when the placement cannot be measured so here."""
        ...

    def use_rate(self, cycles_per_s: float) -> None:
        """Let each worker of a burst start cycles at this rate, however long they take.

        ``latency`` becomes the headline.
        """
        ...

    def use_victim(self, victim: VictimRequest) -> None:
        """Let a victim run beside every burst; before entering."""
        ...

    def run_burst(self, condition: int, samples: int) -> Burst:
        """One burst of a condition at its level, ``samples`` cycles a worker or more.

        At the level NOBODY the victim runs alone. Returns early after a failure or request_stop().
        """
        ...
