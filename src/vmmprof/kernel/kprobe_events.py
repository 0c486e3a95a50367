# SPDX-License-Identifier: MIT
"""Counting by kprobe events: bcc alone, on functions that have ftrace pads."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from vmmprof.errors import NothingMeasuredError
from vmmprof.kernel.bcc import load_bcc
from vmmprof.kernel.counting import Calibration, CountingProbe
from vmmprof.kernel.update_path import Part

METHOD = "kprobe"
# Threads that may be inside a probed function at once; the kernel's own default loses returns
# without a word when more wait inside.
MAX_ACTIVE = 512
ENTRY, RETURN = 0, 1
# A system call that does next to nothing: what a probe costs is measured on it.
EMPTY_FUNCTION = b"__x64_sys_getppid"
CALIBRATION_CALLS = 5000

TRACEFS = Path("/sys/kernel/tracing")
EVENT_PREFIX = "vmmprof_"


class KprobeEvents(CountingProbe):
    """Kprobe and kretprobe events on the four functions."""

    method = METHOD

    def _open(self) -> None:
        self._events: list[tuple[bytes, int]] = []
        super()._open()

    def attach(self) -> None:
        for part, symbols in self._path.symbols.items():
            for number, symbol in enumerate(symbols):
                self._attach(part, symbol.qualified_name, f"{part.name.lower()}{number}")

    def _attach(self, part: Part, function: str, name: str) -> None:
        # The return first: probes of one place run newest first, and the entry program reads the
        # return address from the stack, where a return probe puts its own.
        self._attach_one(RETURN, f"leave_{part.value}", function, f"{name}_return")
        self._attach_one(ENTRY, f"enter_{part.value}", function, f"{name}_enter")

    def _attach_one(self, kind: int, program: str, function: str, name: str) -> None:
        bcc = load_bcc()
        loaded = self._bpf.load_func(program.encode(), bcc.BPF.KPROBE)
        event = f"{EVENT_PREFIX}{name}".encode()
        descriptor = bcc.lib.bpf_attach_kprobe(
            loaded.fd, kind, event, function.encode(), 0, MAX_ACTIVE if kind == RETURN else 0
        )
        if descriptor < 0:
            raise NothingMeasuredError(
                f"kprobe events refuse {function}: it has no ftrace pad, and this kernel lacks "
                "CONFIG_KPROBE_EVENTS_ON_NOTRACE; --method module can probe it"
            )
        self._events.append((event, descriptor))

    def detach(self) -> None:
        self._detach_from(0)

    def _detach_from(self, first: int) -> None:
        library = load_bcc().lib
        while len(self._events) > first:
            event, descriptor = self._events.pop()
            library.bpf_close_perf_event_fd(descriptor)
            library.bpf_detach_kprobe(event)

    def missed(self) -> int:
        """From kprobe_profile: name, hits, missed."""
        total = 0
        for line in (TRACEFS / "kprobe_profile").read_text().splitlines():
            words = line.split()
            if (
                len(words) == 3
                and words[0].startswith(EVENT_PREFIX)
                and words[0].endswith(f"_bcc_{os.getpid()}")
            ):
                total += int(words[2])
        return total

    def calibrate(self) -> Calibration:
        """Probe getppid as if it were a part of an update call of this thread."""
        without_ns = _fastest_ns()
        leaf_ns, call = self._calibrate_as(Part.INVALIDATE)
        map_ns, _ = self._calibrate_as(Part.MAP)
        return Calibration(
            self_ns=call.tlb_ns / call.invalidates,
            leaf_ns=max(0.0, leaf_ns - without_ns),
            map_ns=max(0.0, map_ns - without_ns),
        )

    def _calibrate_as(self, part: Part) -> tuple[float, Any]:
        """Time of a getppid that is probed as ``part``, and what the program counted of it."""
        count = len(self._events)
        self._attach(part, EMPTY_FUNCTION.decode(), "calibration")
        try:
            calls: Any = self._bpf[b"calls"]
            tid = ctypes.c_uint32(os.getpid())
            calls[tid] = calls.Leaf()
            took_ns = _fastest_ns()
            call = calls[tid]
            del calls[tid]
        finally:
            self._detach_from(count)
        return took_ns, call


def _fastest_ns() -> float:
    """Time of one getppid in the fastest of some batches."""
    fastest = float("inf")
    for _ in range(10):
        start_ns = time.monotonic_ns()
        for _ in range(CALIBRATION_CALLS // 10):
            os.getppid()
        fastest = min(fastest, (time.monotonic_ns() - start_ns) / (CALIBRATION_CALLS // 10))
    return fastest


def forget_dead() -> list[str]:
    """Remove event definitions that killed processes left; their probes are already off."""
    gone = []
    listing = TRACEFS / "kprobe_events"
    for line in listing.read_text().splitlines():
        event = line.split()[0].partition(":")[2]
        name = event.rpartition("/")[2]
        pid = name.rpartition("_bcc_")[2]
        if name.startswith(EVENT_PREFIX) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            with listing.open("a") as control:
                control.write(f"-:{event}\n")
            gone.append(name)
    return gone
