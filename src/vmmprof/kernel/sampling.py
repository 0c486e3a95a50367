# SPDX-License-Identifier: MIT
"""The sampling method: cpu-clock samples of a target, attributed to phases.

Works wherever perf may sample the kernel, also with kprobes off and under
lockdown. It gives shares of time, no counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vmmprof.errors import NothingMeasuredError
from vmmprof.kernel.attribution import Attribution, attribute
from vmmprof.kernel.perf import Losses, SampleRing, explain_refusal, open_rings
from vmmprof.kernel.symbols import SymbolTable, module_identity
from vmmprof.kernel.update_path import DRIVER_MODULE
from vmmprof.recording.events import SAMPLE, events_table

METHOD = "sampling"
# On a virtual machine each sample was seen to cost 15 us: at 20 us a call took four times as long.
DEFAULT_PERIOD_NS = 100_000
# Memory that all ring buffers together may take; each gets a power of two of pages of it.
RING_MEMORY_BYTES = 64 << 20
MIN_RING_PAGES, MAX_RING_PAGES = 16, 1024
EVERY_PROCESS = -1


@dataclass(frozen=True)
class SampleSet:
    """Samples taken so far: parallel lists, one entry a sample; stacks are shared."""

    time_ns: list[int]
    pid: list[int]
    tid: list[int]
    stack: list[int]
    """Index into ``stacks``."""
    stacks: list[tuple[str, ...]]
    """Function names, innermost first."""
    attributions: list[Attribution]
    """One for each of ``stacks``."""
    losses: Losses
    period_ns: int
    module: str
    reloaded: bool
    """Whether the driver was reloaded meanwhile: later samples may name wrong functions."""

    def events(self) -> pa.Table:
        """The samples as rows of events.parquet."""
        folded = [";".join(reversed(names)) for names in self.stacks]
        phases = [found.phase.value for found in self.attributions]
        directions = [
            None if found.direction is None else found.direction.value
            for found in self.attributions
        ]
        columns = {
            "kind": [SAMPLE] * len(self.time_ns),
            "time_ns": self.time_ns,
            "pid": self.pid,
            "tid": self.tid,
            "direction": [directions[index] for index in self.stack],
            "phase": [phases[index] for index in self.stack],
            "stack": [folded[index] for index in self.stack],
        }
        return events_table(columns, self.facts())

    def facts(self) -> dict[str, object]:
        return {
            "method": METHOD,
            "module": self.module,
            "period_ns": self.period_ns,
            "lost_samples": self.losses.lost_samples,
            "throttled": self.losses.throttled,
            "driver_reloaded": self.reloaded,
        }


class Sampler:
    """Samples one process, all of a process tree, or everything. Use as a context manager.

    Sampling is off until :meth:`start`; what arrives must be taken out by
    :meth:`poll` before the rings are full (a ring holds about 3000 samples).
    """

    def __init__(
        self,
        pid: int,
        *,
        on_exec: bool = False,
        period_ns: int = DEFAULT_PERIOD_NS,
        module: str = DRIVER_MODULE,
    ) -> None:
        """``pid`` may be EVERY_PROCESS; its threads of now and later are sampled.

        ``on_exec`` starts the sampling when the process calls exec.
        """
        self._pid = pid
        self._on_exec = on_exec
        self._period_ns = period_ns
        self._module = module
        self._rings: list[SampleRing] = []
        self._time_ns: list[int] = []
        self._pids: list[int] = []
        self._tids: list[int] = []
        self._stack: list[int] = []
        self._chains: dict[tuple[int, ...], int] = {}

    def __enter__(self) -> Sampler:
        self._table = SymbolTable.read()
        if not self._table.has_addresses:
            raise NothingMeasuredError(
                "/proc/kallsyms hides its addresses; run as root or with CAP_SYSLOG and "
                "kernel.kptr_restrict below 2"
            )
        self._identity = module_identity(self._module)
        cpus = sorted(os.sched_getaffinity(0) | set(_online_cpus()))
        if self._pid == EVERY_PROCESS:
            self._open(EVERY_PROCESS, cpus, inherit=False, ring_count=len(cpus))
        else:
            tasks = _threads(self._pid)
            for task in tasks:
                self._open(task, cpus, inherit=True, ring_count=len(cpus) * len(tasks))
        return self

    def _open(self, pid: int, cpus: list[int], *, inherit: bool, ring_count: int) -> None:
        try:
            self._rings += open_rings(
                pid=pid,
                cpus=cpus,
                period_ns=self._period_ns,
                inherit=inherit,
                on_exec=self._on_exec,
                pages=_ring_pages(ring_count),
            )
        except OSError as error:
            self._close()
            raise NothingMeasuredError(explain_refusal(error)) from None

    def __exit__(self, *exc: object) -> None:
        self._close()

    def _close(self) -> None:
        while self._rings:
            self._rings.pop().close()

    def start(self) -> None:
        for ring in self._rings:
            ring.enable()

    def stop(self) -> None:
        for ring in self._rings:
            ring.disable()

    def poll(self) -> None:
        """Take out what has arrived."""
        for ring in self._rings:
            for sample in ring.drain():
                if sample.pid == 0:
                    continue  # the idle task, when everything is sampled
                self._time_ns.append(sample.time_ns)
                self._pids.append(sample.pid)
                self._tids.append(sample.tid)
                self._stack.append(self._chains.setdefault(sample.chain, len(self._chains)))

    def result(self) -> SampleSet:
        """Everything polled so far, resolved and attributed."""
        stacks = [self._names(chain) for chain in self._chains]
        losses = Losses()
        for ring in self._rings:
            losses.lost_samples += ring.losses.lost_samples
            losses.throttled += ring.losses.throttled
        return SampleSet(
            self._time_ns,
            self._pids,
            self._tids,
            self._stack,
            stacks,
            [attribute(names) for names in stacks],
            losses,
            self._period_ns,
            self._module,
            module_identity(self._module) != self._identity,
        )

    def _names(self, chain: Sequence[int]) -> tuple[str, ...]:
        """Names of a chain, innermost first. Callers are return addresses: one byte back is
        still in the calling function, also when the call was its last instruction."""
        found = [
            self._table.at(address - (1 if depth else 0)) for depth, address in enumerate(chain)
        ]
        return tuple("[unknown]" if symbol is None else symbol.name for symbol in found)


def _threads(pid: int) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        raise NothingMeasuredError(f"process {pid} is gone; nothing to sample") from None


def _online_cpus() -> list[int]:
    """CPUs of /sys/devices/system/cpu/online, such as ``0-3,8``."""
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _ring_pages(ring_count: int) -> int:
    pages = RING_MEMORY_BYTES // 4096 // ring_count
    return max(MIN_RING_PAGES, min(MAX_RING_PAGES, 1 << (max(1, pages).bit_length() - 1)))
