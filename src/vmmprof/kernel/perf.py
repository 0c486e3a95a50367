# SPDX-License-Identifier: MIT
"""perf_event_open without a library: software cpu-clock samples with kernel call chains.

The layout of the structures and records is that of linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYS_PERF_EVENT_OPEN_X86_64 = 298
PERF_TYPE_SOFTWARE = 1
PERF_COUNT_SW_CPU_CLOCK = 0
PERF_FLAG_FD_CLOEXEC = 8
CLOCK_MONOTONIC = 1

SAMPLE_IP, SAMPLE_TID, SAMPLE_TIME, SAMPLE_CALLCHAIN, SAMPLE_CPU = 1, 2, 4, 32, 128
RECORD_LOST, RECORD_THROTTLE, RECORD_SAMPLE, RECORD_LOST_SAMPLES = 2, 5, 9, 13

# Bits of the flag word of perf_event_attr.
FLAG_DISABLED = 1 << 0
FLAG_INHERIT = 1 << 1
FLAG_EXCLUDE_HV = 1 << 6
FLAG_ENABLE_ON_EXEC = 1 << 12
FLAG_EXCLUDE_CALLCHAIN_USER = 1 << 22
FLAG_USE_CLOCKID = 1 << 25

IOC_ENABLE, IOC_DISABLE = 0x2400, 0x2401

# Marks inside a call chain ("kernel part follows") are the top 4096 addresses.
CONTEXT_MARKS = (1 << 64) - 4096
# Offsets of data_head and data_tail in the control page.
HEAD_OFFSET, TAIL_OFFSET = 1024, 1032

_libc = ctypes.CDLL(None, use_errno=True)


class _Attr(ctypes.Structure):
    """struct perf_event_attr up to the fields that are set here (PERF_ATTR_SIZE_VER5)."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
    )


@dataclass(frozen=True)
class Sample:
    """One sample. ``chain`` has kernel addresses, innermost first; empty in user space."""

    time_ns: int
    pid: int
    tid: int
    cpu: int
    chain: tuple[int, ...]


@dataclass
class Losses:
    """What did not arrive: samples the ring had no room for, times the kernel held back."""

    lost_samples: int = 0
    throttled: int = 0


class SampleRing:
    """One cpu-clock event and its ring buffer. Close gives both back."""

    def __init__(
        self,
        *,
        pid: int,
        cpu: int,
        period_ns: int,
        inherit: bool = False,
        on_exec: bool = False,
        pages: int,
    ) -> None:
        """``pid`` -1 is every task of a CPU, ``cpu`` -1 is one task on every CPU."""
        page = mmap.PAGESIZE
        self._data_offset = page
        self._data_bytes = pages * page
        attr = _Attr(
            type=PERF_TYPE_SOFTWARE,
            size=ctypes.sizeof(_Attr),
            config=PERF_COUNT_SW_CPU_CLOCK,
            sample_period=period_ns,
            sample_type=SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CALLCHAIN | SAMPLE_CPU,
            flags=FLAG_DISABLED
            | FLAG_EXCLUDE_HV
            | FLAG_EXCLUDE_CALLCHAIN_USER
            | FLAG_USE_CLOCKID
            | (FLAG_INHERIT if inherit else 0)
            | (FLAG_ENABLE_ON_EXEC if on_exec else 0),
            clockid=CLOCK_MONOTONIC,
        )
        self.fd = _libc.syscall(
            SYS_PERF_EVENT_OPEN_X86_64,
            ctypes.byref(attr),
            ctypes.c_int(pid),
            ctypes.c_int(cpu),
            ctypes.c_int(-1),
            ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC),
        )
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            self._ring = mmap.mmap(self.fd, self._data_offset + self._data_bytes)
        except OSError:
            os.close(self.fd)
            raise
        self.losses = Losses()

    def enable(self) -> None:
        self._ioctl(IOC_ENABLE)

    def disable(self) -> None:
        self._ioctl(IOC_DISABLE)

    def close(self) -> None:
        self._ring.close()
        os.close(self.fd)

    def drain(self) -> Iterator[Sample]:
        """Take out what has arrived."""
        (head,) = struct.unpack_from("Q", self._ring, HEAD_OFFSET)
        (tail,) = struct.unpack_from("Q", self._ring, TAIL_OFFSET)
        while tail < head:
            kind, _misc, size = struct.unpack("IHH", self._bytes(tail, 8))
            body = self._bytes(tail + 8, size - 8)
            tail += size
            if kind == RECORD_SAMPLE:
                yield _parse_sample(body)
            elif kind == RECORD_LOST:
                self.losses.lost_samples += struct.unpack_from("QQ", body)[1]
            elif kind == RECORD_LOST_SAMPLES:
                self.losses.lost_samples += struct.unpack_from("Q", body)[0]
            elif kind == RECORD_THROTTLE:
                self.losses.throttled += 1
        struct.pack_into("Q", self._ring, TAIL_OFFSET, tail)

    def _bytes(self, position: int, length: int) -> bytes:
        start = position % self._data_bytes
        first = self._ring[self._data_offset + start : self._data_offset + start + length]
        if start + length <= self._data_bytes:
            return first
        first = self._ring[self._data_offset + start : self._data_offset + self._data_bytes]
        return first + self._ring[self._data_offset : self._data_offset + length - len(first)]

    def _ioctl(self, request: int) -> None:
        if _libc.ioctl(self.fd, ctypes.c_ulong(request), ctypes.c_ulong(0)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _parse_sample(body: bytes) -> Sample:
    _, pid, tid, time_ns, cpu, _, count = struct.unpack_from("QIIQIIQ", body)
    chain = struct.unpack_from(f"{count}Q", body, 40)
    kernel = tuple(address for address in chain if address < CONTEXT_MARKS and address >> 63)
    return Sample(time_ns, pid, tid, cpu, kernel)


def explain_refusal(error: OSError) -> str:
    """Why perf_event_open was refused and what would change it."""
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
    return (
        f"perf_event_open refused ({error.strerror}); it needs root or CAP_PERFMON, or "
        f"kernel.perf_event_paranoid below 2 (it is {paranoid})"
    )


def open_rings(
    *,
    pid: int,
    cpus: list[int],
    period_ns: int,
    inherit: bool,
    pages: int,
    on_exec: bool = False,
) -> list[SampleRing]:
    """One ring a CPU, all or none; OSError when the kernel refuses."""
    rings: list[SampleRing] = []
    try:
        for cpu in cpus:
            rings.append(
                SampleRing(
                    pid=pid,
                    cpu=cpu,
                    period_ns=period_ns,
                    inherit=inherit,
                    on_exec=on_exec,
                    pages=pages,
                )
            )
    except OSError:
        for ring in rings:
            ring.close()
        raise
    return rings
