# SPDX-License-Identifier: MIT
"""Counting by kprobe events: bcc alone, on functions that have ftrace pads."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from vmmprof.errors import NothingMeasuredError
from vmmprof.kernel.bcc import load_bcc
from vmmprof.kernel.counting import CALIBRATION_RUNS, Calibration, CountingProbe
from vmmprof.kernel.update_path import Part

METHOD = "kprobe"
# Threads that may be inside a probed function at once; the kernel's own default loses returns
# without a word when more wait inside.
MAX_ACTIVE = 512
ENTRY, RETURN = 0, 1
# A system call that does next to nothing: what a probe costs is measured on it.
EMPTY_FUNCTION = b"__x64_sys_getppid"
CALIBRATION_CALLS = 2000

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
        """Probe getppid as if it were an invalidate inside an update call of this thread."""
        without_ns = _fastest_ns()
        count = len(self._events)
        self._attach(Part.INVALIDATE, EMPTY_FUNCTION.decode(), "calibration")
        try:
            tid = ctypes.c_uint32(os.getpid())
            readings, with_ns = [], []
            for _ in range(CALIBRATION_RUNS):
                calls: Any = self._bpf[b"calls"]
                calls[tid] = calls.Leaf()
                with_ns.append(_fastest_ns())
                call = calls[tid]
                readings.append(call.tlb_ns / call.invalidates)
                del calls[tid]
        finally:
            self._detach_from(count)
        return Calibration(self_ns=median(readings), pair_ns=max(0.0, min(with_ns) - without_ns))


def _fastest_ns() -> float:
    """Time of one getppid in the fastest of some batches."""
    fastest = float("inf")
    for _ in range(5):
        start_ns = time.monotonic_ns()
        for _ in range(CALIBRATION_CALLS // 5):
            os.getppid()
        fastest = min(fastest, (time.monotonic_ns() - start_ns) / (CALIBRATION_CALLS // 5))
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
