# SPDX-License-Identifier: MIT
"""One trace: a target, a method, and the events it gave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from vmmprof.errors import UsageError
from vmmprof.kernel import kprobe_events, probe_module, sampling
from vmmprof.kernel.privileges import CAP_SYS_PTRACE, only
from vmmprof.kernel.symbols import SymbolTable, resolve_path
from vmmprof.kernel.update_path import DRIVER_MODULE

POLL_S = 0.05
# Attached probes are read from mapped rings; other users' processes may be hidden (hidepid).
NEEDED_TO_FOLLOW = frozenset({CAP_SYS_PTRACE})

# What the held child runs: wait for a byte, then become the command. Its process ID stays.
_HELD = """
import os, sys
gate, command = int(sys.argv[1]), sys.argv[2:]
if not os.read(gate, 1):
    os._exit(127)
os.close(gate)
try:
    os.execvp(command[0], command)
except OSError as error:
    os.write(2, f"vmmprof: {command[0]}: {error.strerror}\\n".encode())
    os._exit(127)
"""


@dataclass(frozen=True)
class Target:
    """What to trace: a command to run, a process with its future children, or everything."""

    command: tuple[str, ...] = ()
    pid: int | None = None

    def __str__(self) -> str:
        if self.command:
            return " ".join(self.command)
        return "every process" if self.pid is None else f"process {self.pid}"


@dataclass(frozen=True)
class Trace:
    """What a trace gave. ``exit_status`` is the command's, None for other targets."""

    target: Target
    events: pa.Table
    exit_status: int | None
    interrupted: bool
    seconds: float


class _Events(Protocol):
    def events(self) -> pa.Table: ...


class Probe(Protocol):
    """What a method's context manager gives. A command's sampling starts by itself, at exec."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def poll(self) -> None: ...

    def result(self) -> _Events: ...


def trace(
    method: str,
    target: Target,
    *,
    module: str = DRIVER_MODULE,
    period_ns: int = sampling.DEFAULT_PERIOD_NS,
    max_time_s: float | None = None,
) -> Trace:
    """Trace until the target ends, the time is up, or SIGINT or SIGTERM comes.

    ``method`` must be one that works here. An interrupted command is asked to
    end by SIGTERM; what was seen until then is in the result.
    """
    child = _Child(target.command) if target.command else None
    pid = child.pid if child is not None else target.pid
    if pid is not None and not Path(f"/proc/{pid}").exists():
        raise UsageError(f"process {pid} does not exist")
    interrupted = False
    try:
        with open_probe(
            method, pid, on_exec=child is not None, module=module, period_ns=period_ns
        ) as probe:
            started_s = time.monotonic()
            try:
                if child is None:
                    probe.start()
                # The command was started before and keeps all that its user has.
                with only(NEEDED_TO_FOLLOW):
                    if child is not None:
                        child.release()
                    _follow(probe, child, pid, max_time_s)
            except KeyboardInterrupt:
                interrupted = True
            if child is not None:
                child.end()
            probe.poll()
            seconds = time.monotonic() - started_s
            events = probe.result().events()
    finally:
        if child is not None:
            child.end()
    return Trace(target, events, None if child is None else child.exit_status, interrupted, seconds)


def open_probe(
    method: str,
    pid: int | None,
    *,
    on_exec: bool = False,
    module: str = DRIVER_MODULE,
    period_ns: int = sampling.DEFAULT_PERIOD_NS,
) -> AbstractContextManager[Probe]:
    """The probe of a method that works here, on a process or (None) on all of them."""
    if method == sampling.METHOD:
        return sampling.Sampler(
            sampling.EVERY_PROCESS if pid is None else pid,
            on_exec=on_exec,
            period_ns=period_ns,
            module=module,
        )
    table = SymbolTable.read()
    kinds = {
        kprobe_events.METHOD: kprobe_events.KprobeEvents,
        probe_module.METHOD: probe_module.ModuleProbes,
    }
    return kinds[method](resolve_path(table, module), table, pid)


def _follow(probe: Probe, child: _Child | None, pid: int | None, max_time_s: float | None) -> None:
    deadline_s = None if max_time_s is None else time.monotonic() + max_time_s
    while deadline_s is None or time.monotonic() < deadline_s:
        probe.poll()
        if child is not None and child.has_ended():
            return
        if child is None and pid is not None and not Path(f"/proc/{pid}").exists():
            return
        time.sleep(POLL_S)


class _Child:
    """A command that is held before its first instruction until :meth:`release`."""

    def __init__(self, command: Sequence[str]) -> None:
        gate_read, gate_write = os.pipe()
        self._gate: int | None = gate_write
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _HELD, str(gate_read), *command],
                pass_fds=(gate_read,),
            )
        except BaseException:
            self._close_gate()
            raise
        finally:
            os.close(gate_read)
        self.pid = self._process.pid

    @property
    def exit_status(self) -> int | None:
        """As a shell has it: 128 and the signal's number for a command that a signal ended."""
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    def release(self) -> None:
        assert self._gate is not None
        os.write(self._gate, b"\0")
        self._close_gate()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Ask it to end and wait; nothing when it has."""
        # A gate that closes without having been opened ends the held child by itself.
        self._close_gate()
        if not self.has_ended():
            self._process.terminate()
            self._process.wait()

    def _close_gate(self) -> None:
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None
