# SPDX-License-Identifier: MIT
"""Worker processes of a burst: started once, given orders, restarted when one dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from vmmprof.drivers.cuda import _cycle
from vmmprof.drivers.cuda.team import Order, WorkerRows, burst_memory
from vmmprof.drivers.protocol import WorkerFailure
from vmmprof.drivers.window import WorkerTimes
from vmmprof.errors import NothingMeasuredError
from vmmprof.placement import Condition

_WORKER_MODULE = "vmmprof.drivers.cuda.worker"
# Loading CUDA and making a context takes a second or two on a busy machine.
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Death:
    """A process that ended in a burst, and when its workers are known to have run."""

    failure: WorkerFailure
    times: tuple[WorkerTimes, ...]


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self, number: int, arguments: Sequence[int], memory_fd: int) -> None:
        self.number = number
        here, there = socket.socketpair()
        with there:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    _WORKER_MODULE,
                    *map(str, (there.fileno(), memory_fd, number, *arguments)),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(there.fileno(), memory_fd),
            )
        self.connection: Connection[Any, Any] = Connection(here.detach())

    def require_ready(self) -> None:
        """NothingMeasuredError when the process did not come up."""
        word: object = "no answer"
        if self.connection.poll(_START_TIMEOUT_S):
            try:
                word = self.connection.recv()
            except (EOFError, OSError):
                word = self.death()
        if word != "ready":
            raise NothingMeasuredError(f"worker process {self.number} did not start: {word}")

    def death(self) -> str:
        """How the process ended, once its socket has closed."""
        try:
            code = self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its socket and did not end"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def close(self) -> None:
        """Let the process leave; one that does not is killed, and its memory goes with it."""
        self.connection.close()
        try:
            self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Processes:
    """``count`` worker processes on ``devices``. Use as a context manager."""

    def __init__(
        self, count: int, devices: Sequence[int], domain_count: int | None, pools: bool
    ) -> None:
        self._count = count
        self._arguments = (-1 if domain_count is None else domain_count, int(pools), *devices)
        self._workers: list[_Worker | None] = [None] * count
        self._conditions: list[Condition] = []
        self._stop_requested = False
        self._memory_fd = os.memfd_create("vmmprof-burst")
        os.ftruncate(self._memory_fd, _cycle.BURST_CONTROL_BYTES)
        self._control = burst_memory(self._memory_fd)

    def __enter__(self) -> Processes:
        try:
            self._start_missing(self._count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.close()
        self._workers = [None] * self._count
        os.close(self._memory_fd)

    def prepare(self, conditions: Sequence[Condition]) -> None:
        """Take the conditions that orders will index."""
        self._conditions = list(conditions)
        self._stop_requested = False
        for worker in self._workers:
            if worker is not None:
                self._prepare_one(worker)

    def request_stop(self) -> None:
        """End the running burst after each worker's current cycle; safe in a signal handler."""
        self._stop_requested = True
        _cycle.halt_burst(self._control)

    def run(
        self, order: Order, processes: int, before_start: Callable[[memoryview], None]
    ) -> tuple[list[WorkerRows], list[Death]]:
        """One burst in the first ``processes`` of them; rows of those that live, deaths of others.

        ``before_start`` is given the memory that they meet in, before they are told
        to start. A process that died is started anew by the next burst that needs it.
        """
        self._start_missing(processes)
        _cycle.reset_burst(self._control)
        if self._stop_requested:
            _cycle.halt_burst(self._control)
        before_start(self._control)
        waiting: dict[Connection[Any, Any], _Worker] = {}
        rows: list[WorkerRows] = []
        dead: list[_Worker] = []
        for worker in self._workers[:processes]:
            assert worker is not None
            try:
                worker.connection.send(("run", order))
                waiting[worker.connection] = worker
            except OSError:
                dead.append(self._bury(worker))
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                worker = waiting.pop(connection)
                try:
                    rows += connection.recv()
                except (EOFError, OSError):
                    dead.append(self._bury(worker))
        # The traces are read when nobody runs any more.
        deaths = [self._death(worker, order) for worker in dead]
        return sorted(rows, key=lambda r: (r.process, r.thread)), deaths

    def _death(self, worker: _Worker, order: Order) -> Death:
        workers_each = len(order.devices) * order.threads
        traces = [
            _cycle.worker_trace(self._control, worker.number * workers_each + i)
            for i in range(workers_each)
        ]
        times = tuple(
            # Cycle 0 ran before the common start; what is known are the first and last behind it.
            WorkerTimes(
                np.array([0, first_ns] if first_ns else [0]),
                np.array([0, last_ns] if first_ns else [0]),
            )
            for first_ns, last_ns in traces
        )
        return Death(WorkerFailure(f"process {worker.number}", worker.death()), times)

    def _bury(self, worker: _Worker) -> _Worker:
        """Note a dead process; the others must not wait for it."""
        _cycle.halt_burst(self._control)
        self._workers[worker.number] = None
        worker.connection.close()
        return worker

    def _start_missing(self, processes: int) -> None:
        missing = [n for n in range(processes) if self._workers[n] is None]
        for number in missing:
            self._workers[number] = _Worker(number, self._arguments, self._memory_fd)
        for number in missing:
            worker = self._workers[number]
            assert worker is not None
            worker.require_ready()
            if self._conditions:
                self._prepare_one(worker)

    def _prepare_one(self, worker: _Worker) -> None:
        try:
            worker.connection.send(("prepare", self._conditions))
            word = worker.connection.recv()
        except (EOFError, OSError):
            word = worker.death()
        if word != "prepared":
            raise NothingMeasuredError(f"worker process {worker.number}: {word}")
