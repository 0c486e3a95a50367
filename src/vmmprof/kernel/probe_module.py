# SPDX-License-Identifier: MIT
"""Counting by our own kernel module: raw kprobes, which need no ftrace pads.

The module (kernel/module/, built by DKMS or by hand) turns them into a
tracepoint that the BPF program reads. It probes only while its control file is
held open: the death of this process, however it comes, disarms it.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from statistics import median

from vmmprof.errors import NothingMeasuredError, VmmprofError
from vmmprof.kernel.counting import (
    CALIBRATION_ITERATIONS,
    CALIBRATION_RUNS,
    Calibration,
    CountingProbe,
)

METHOD = "module"
MODULE = "vmmprof_probe"
CONTROL = Path("/dev/vmmprof_probe")
SOURCES = Path(__file__).parent / "module"
# The kernel replaces a breakpoint by a jump a few ticks after it was set, where it can.
OPTIMISED_AFTER_S = 0.3


def is_loaded() -> bool:
    return (Path("/sys/module") / MODULE).is_dir()


def load() -> None:
    """Load the module; NothingMeasuredError with the reason when it cannot be."""
    if is_loaded():
        return
    done = subprocess.run(["modprobe", MODULE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        raise NothingMeasuredError(
            f"module {MODULE} cannot be loaded ({reason}); docs/probing.md says how to build it"
        )


def unload() -> bool:
    """Take the module out; False when it was not loaded."""
    if not is_loaded():
        return False
    done = subprocess.run(["rmmod", MODULE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise VmmprofError(f"module {MODULE} stays loaded: {done.stderr.strip()}")
    return True


class ModuleProbes(CountingProbe):
    """Raw kprobes of our module on the four functions."""

    method = METHOD
    _control: int | None = None

    def _open(self) -> None:
        load()
        try:
            self._control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            hint = "another vmmprof trace holds it" if error.errno == errno.EBUSY else "be root"
            raise NothingMeasuredError(f"cannot open {CONTROL}: {error.strerror}; {hint}") from None
        super()._open()

    def attach(self) -> None:
        for part, symbols in self._path.symbols.items():
            for symbol in symbols:
                self._command(f"arm {part.value} {symbol.qualified_name}")
        time.sleep(OPTIMISED_AFTER_S)

    def _command(self, text: str) -> None:
        assert self._control is not None
        try:
            os.write(self._control, text.encode())
        except OSError as error:
            raise NothingMeasuredError(f"{MODULE} refuses '{text}': {error.strerror}") from None

    def _probes(self) -> list[tuple[str, int, int, bool]]:
        """Function, hits, missed hits, whether it is a jump; one entry a probe."""
        assert self._control is not None
        text = os.pread(self._control, 1 << 16, 0).decode()
        rows = (line.split() for line in text.splitlines())
        return [(row[1], int(row[2]), int(row[3]), row[4] == "1") for row in rows]

    def missed(self) -> int:
        return sum(missed for _, _, missed, _ in self._probes())

    def calibrate(self) -> Calibration:
        """On the module's own empty path, with probes of the kind that the driver got."""
        jump = all(optimised for _, _, _, optimised in self._probes())
        first = len(self._calls)
        if self._pid is not None:
            self.watch(os.getpid())
        for _ in range(CALIBRATION_RUNS):
            self._command(f"calibrate {CALIBRATION_ITERATIONS} {int(jump)}")
        self.poll()
        if self._pid is not None:
            self.unwatch(os.getpid())
        ours = [call for call in self._calls[first:] if call.pid == os.getpid()]
        if len(ours) < CALIBRATION_RUNS:
            raise NothingMeasuredError(
                f"calibration gave {len(ours)} of {CALIBRATION_RUNS} records; "
                "the probes do not reach the BPF program"
            )
        own = median((call.barrier_ns + call.tlb_ns) / call.leaves for call in ours)
        # An empty mapping call reads as itself and two leaves, an update call as itself and its
        # mapping calls.
        mapping = median(call.map_ns / call.maps for call in ours)
        leaf = max(0.0, (mapping - own) / 2)
        whole = median((call.duration_ns - own) / call.maps for call in ours)
        return Calibration(self_ns=own, leaf_ns=leaf, map_ns=max(0.0, whole - 2 * leaf))

    def detach(self) -> None:
        if self._control is not None:
            self._command("disarm")

    def _close(self) -> None:
        # Closing it disarms whatever is still armed.
        if self._control is not None:
            os.close(self._control)
            self._control = None
        super()._close()
