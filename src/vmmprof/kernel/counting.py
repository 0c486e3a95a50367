# SPDX-License-Identifier: MIT
"""What the counting methods share: the BPF program, its records, the correction.

A counting method probes entry and return of the update path's four functions
and gives one record an update call, with exact counts. What its probes cost is
measured on empty functions and taken out; the raw times are kept.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from vmmprof.kernel.bcc import load_bcc
from vmmprof.kernel.symbols import ResolvedPath, SymbolTable, module_identity
from vmmprof.kernel.update_path import BARRIER_FLAGS, base_name, direction_of
from vmmprof.recording.events import UPDATE, events_table

PROGRAM = Path(__file__).parent / "nesting.bpf.c"
CALIBRATION_ITERATIONS = 512
CALIBRATION_RUNS = 7


class _Record(ctypes.Structure):
    """struct call of nesting.bpf.c."""

    _fields_ = (
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("pid_tid", ctypes.c_uint64),
        ("caller", ctypes.c_uint64),
        ("maps", ctypes.c_uint64),
        ("map_ns", ctypes.c_uint64),
        ("runs", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
        ("barrier_ns", ctypes.c_uint64),
        ("invalidates", ctypes.c_uint64),
        ("tlb_ns", ctypes.c_uint64),
        ("page_flushes", ctypes.c_uint64),
        ("page_flush_ns", ctypes.c_uint64),
        ("syncs_in_map", ctypes.c_uint64),
        ("sync_in_map_ns", ctypes.c_uint64),
        ("leaves", ctypes.c_uint64),
        ("leaves_in_map", ctypes.c_uint64),
        ("failed_iteration", ctypes.c_uint64),
        ("failed_status", ctypes.c_uint32),
        ("status", ctypes.c_uint32),
        ("map_start_ns", ctypes.c_uint64),
        ("leaf_start_ns", ctypes.c_uint64),
        ("next_va", ctypes.c_uint64),
        ("leaf", ctypes.c_uint32),
        ("leaf_depth", ctypes.c_uint32),
        ("in_map", ctypes.c_uint32),
        ("failed", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class UpdateCall:
    """One update call as counted, times raw, in ns. ``bytes`` and ``runs`` count BAR1 addresses,
    which are physical addresses shifted by a constant."""

    start_ns: int
    duration_ns: int
    pid: int
    tid: int
    caller: int
    maps: int
    map_ns: int
    runs: int
    bytes: int
    barriers: int
    barrier_ns: int
    invalidates: int
    tlb_ns: int
    page_flushes: int
    page_flush_ns: int
    syncs_in_map: int
    sync_in_map_ns: int
    leaves: int
    leaves_in_map: int
    status: int
    failed_iteration: int | None
    failed_status: int | None

    @property
    def pte_ns(self) -> int:
        """Mapping calls without barrier and TLB invalidate."""
        return self.map_ns - self.sync_in_map_ns


def _call_of(record: _Record) -> UpdateCall:
    given = {f.name for f in fields(UpdateCall)} & {name for name, _ in _Record._fields_}
    values: dict[str, Any] = {name: int(getattr(record, name)) for name in given}
    if not record.failed:
        values |= {"failed_iteration": None, "failed_status": None}
    return UpdateCall(
        **values,
        duration_ns=record.end_ns - record.start_ns,
        pid=record.pid_tid >> 32,
        tid=record.pid_tid & 0xFFFFFFFF,
    )


@dataclass(frozen=True)
class Calibration:
    """What a probed entry and return cost, in ns, measured on empty functions.

    ``self_ns`` is what an empty probed function reads as; ``leaf_ns`` is what
    one probed flush or invalidate adds to a probed function around it, and
    ``map_ns`` what a mapping call does, without those inside of it.
    """

    self_ns: float
    leaf_ns: float
    map_ns: float

    def corrected(self, call: UpdateCall) -> dict[str, int]:
        """Times of a call without the probes' own cost, never below 0."""
        sync_in_map = call.sync_in_map_ns - call.syncs_in_map * self.self_ns
        mapping = call.map_ns - call.maps * self.self_ns - call.leaves_in_map * self.leaf_ns
        probes = call.maps * self.map_ns + call.leaves * self.leaf_ns
        whole = call.duration_ns - self.self_ns - probes
        times = {
            "duration_ns": whole,
            "pte_ns": mapping - sync_in_map,
            "barrier_ns": call.barrier_ns - call.barriers * self.self_ns,
            "tlb_ns": call.tlb_ns - call.invalidates * self.self_ns,
            "page_flush_ns": call.page_flush_ns - call.page_flushes * self.self_ns,
        }
        return {name: max(0, round(time)) for name, time in times.items()}


@dataclass
class CountingLosses:
    """What went missing, each counted; anything but 0 makes the counts lower bounds."""

    records_lost: int = 0
    """Update calls that the ring buffer had no room for."""
    returns_missed: int = 0
    entries_missed: int = 0
    table_full: int = 0
    probes_missed: int = 0
    """Hits that the kernel itself dropped: no free return instance, or recursion."""

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@dataclass
class CountingResult:
    """Update calls of a trace with all that is needed to read them."""

    method: str
    path: ResolvedPath
    calls: Sequence[UpdateCall]
    calibration: Calibration
    losses: CountingLosses
    reloaded: bool
    directions: dict[int, str | None] = field(default_factory=dict)
    """By caller address."""

    def events(self) -> pa.Table:
        """The calls as rows of events.parquet."""
        corrected = [self.calibration.corrected(call) for call in self.calls]
        columns: dict[str, Any] = {
            "kind": [UPDATE] * len(self.calls),
            "time_ns": [call.start_ns for call in self.calls],
            "direction": [self.directions.get(call.caller) for call in self.calls],
            "iterations": [call.maps for call in self.calls],
            "duration_raw_ns": [call.duration_ns for call in self.calls],
        }
        same = "pid tid runs bytes barriers invalidates page_flushes status".split()  # noqa: SIM905
        for name in [*same, "failed_iteration", "failed_status"]:
            columns[name] = [getattr(call, name) for call in self.calls]
        for name in ("pte", "barrier", "tlb", "page_flush"):
            columns[f"{name}_raw_ns"] = [getattr(call, f"{name}_ns") for call in self.calls]
        for name in ("duration_ns", "pte_ns", "barrier_ns", "tlb_ns", "page_flush_ns"):
            columns[name] = [times[name] for times in corrected]
        return events_table(columns, self.facts())

    def facts(self) -> dict[str, object]:
        return {
            "method": self.method,
            "module": self.path.module,
            "functions": {
                part.name.lower(): [symbol.name for symbol in symbols]
                for part, symbols in self.path.symbols.items()
            },
            "calibration": vars(self.calibration),
            "losses": vars(self.losses),
            "driver_reloaded": self.reloaded,
        }


class CountingProbe(ABC):
    """A counting method attached to the update path. Use as a context manager.

    ``pid`` limits it to one process and the children it starts from then on;
    None is every process.
    """

    method: str

    def __init__(self, path: ResolvedPath, table: SymbolTable, pid: int | None) -> None:
        self._path = path
        self._table = table
        self._pid = pid
        self._calls: list[UpdateCall] = []
        self._bpf: Any = None

        self._attached = False
        self._missed = 0

    def __enter__(self) -> CountingProbe:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def _open(self) -> None:
        self._compile()
        self.start()
        self.calibration = self.calibrate()
        self.poll()
        self._calls.clear()
        for index in range(len(self._bpf[b"losses"])):
            self._bpf[b"losses"][ctypes.c_int(index)] = ctypes.c_uint64(0)
        if self._pid is not None:
            self.watch(self._pid)

    def _compile(self) -> None:
        bcc = load_bcc()
        flags = [
            f"-DFILTER={int(self._pid is not None)}",
            f"-DBARRIER_FLAGS={BARRIER_FLAGS}",
            f"-DFROM_MODULE={int(self.method == 'module')}",
            # The kernel's own headers warn under clang; errors still show.
            "-w",
        ]
        self._bpf = bcc.BPF(text=PROGRAM.read_text().encode(), cflags=flags)
        self._bpf[b"updates"].open_ring_buffer(self._take)

    def _take(self, _context: Any, data: int, _size: int) -> None:
        self._calls.append(_call_of(_Record.from_address(data)))

    def start(self) -> None:
        """Attach; entering the context does that as well. Nothing when attached."""
        if not self._attached:
            self._attached = True
            self.attach()

    def stop(self) -> None:
        """Detach, so that nothing is probed until :meth:`start`. Nothing when detached."""
        if self._attached:
            self._missed += self.missed()
            self._attached = False
            self.detach()

    @abstractmethod
    def attach(self) -> None:
        """Attach to the update path; the BPF program is loaded."""

    @abstractmethod
    def detach(self) -> None:
        """Take away what attach() attached; also called after a failed attach()."""

    @abstractmethod
    def calibrate(self) -> Calibration:
        """Measure the probes' own cost."""

    @abstractmethod
    def missed(self) -> int:
        """Hits that the kernel dropped since attach()."""

    def watch(self, pid: int) -> None:
        """Count this process's calls, and those of its children from now on."""
        self._bpf[b"watched"][ctypes.c_uint32(pid)] = ctypes.c_uint8(1)

    def unwatch(self, pid: int) -> None:
        del self._bpf[b"watched"][ctypes.c_uint32(pid)]

    def poll(self) -> None:
        """Take out what has arrived."""
        self._bpf.ring_buffer_consume()

    def result(self) -> CountingResult:
        """Everything polled so far."""
        missed = self._missed + (self.missed() if self._attached else 0)
        lost = [int(self._bpf[b"losses"][ctypes.c_int(index)].value) for index in range(4)]
        return CountingResult(
            self.method,
            self._path,
            list(self._calls),
            self.calibration,
            CountingLosses(lost[0], lost[1], lost[2], lost[3], missed),
            module_identity(self._path.module) != self._path.load_identity,
            {call.caller: self._direction(call.caller) for call in self._calls},
        )

    def _direction(self, caller: int) -> str | None:
        symbol = self._table.at(caller - 1)
        found = None if symbol is None else direction_of([base_name(symbol.name)])
        return None if found is None else found.value

    def _close(self) -> None:
        if self._bpf is not None:
            if self._attached:
                self._attached = False
                self.detach()
            self._bpf.cleanup()
            self._bpf = None
