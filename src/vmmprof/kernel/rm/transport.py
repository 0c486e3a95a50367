# SPDX-License-Identifier: MIT
"""The system calls that the resource-manager client is made of.

Everything above this file speaks to a :class:`Transport`, so that tests put a
simulated resource manager and BAR1 in its place.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

_PROC_GPUS = Path("/proc/driver/nvidia/gpus")
_IOCTL_MAGIC = ord("F")


@dataclass(frozen=True)
class GpuNode:
    """A GPU's device file number and PCI address; the address is None when not known."""

    minor: int
    pci_address: str | None

    @property
    def path(self) -> str:
        return f"/dev/nvidia{self.minor}"


class ReadableMapping(Protocol):
    """A mapping of device memory that can only be read. Offsets are bytes from its start."""

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The 64-bit little-endian words at the given offsets, multiples of 8."""
        ...

    def word(self, offset: int) -> int:
        """The 64-bit little-endian word at any offset, aligned or not."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """How the client reaches the driver. Failures are OSError, as the system gives them."""

    def open(self, path: str) -> int: ...

    def close(self, fd: int) -> None: ...

    def ioctl(self, fd: int, number: int, argument: ctypes.Structure) -> None: ...

    def empty_ioctl(self, fd: int, argument: ctypes.Structure) -> None:
        """An ioctl of the same shape that ends before the driver: what calling one costs."""
        ...

    def map_readable(self, fd: int, length: int) -> ReadableMapping: ...

    def gpus(self) -> Sequence[GpuNode]:
        """GPUs that the system lists; empty when it does not list them."""
        ...


def ioctl_request(number: int, size: int) -> int:
    """_IOWR('F', number, size)."""
    return (3 << 30) | (size << 16) | (_IOCTL_MAGIC << 8) | number


class MmapReading:
    """A PROT_READ mmap of a device file: a stray write is a fault, not a corruption."""

    def __init__(self, fd: int, length: int) -> None:
        self._map = mmap.mmap(fd, length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        self._words: npt.NDArray[np.uint64] | None = np.frombuffer(self._map, dtype="<u8")

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        assert self._words is not None, "the mapping is closed"
        selected: npt.NDArray[np.uint64] = self._words[offsets >> 3]
        return selected

    def word(self, offset: int) -> int:
        return int.from_bytes(self._map[offset : offset + 8], "little")

    def close(self) -> None:
        # mmap refuses to close while a view of it is alive.
        self._words = None
        self._map.close()


def _ioctl(fd: int, request: int, argument: ctypes.Structure) -> None:
    while True:
        try:
            fcntl.ioctl(fd, request, argument)
            return
        except OSError as error:
            # The driver hands out EAGAIN where it wants to be asked again.
            if error.errno not in (errno.EINTR, errno.EAGAIN):
                raise


class KernelTransport:
    """The loaded driver."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def ioctl(self, fd: int, number: int, argument: ctypes.Structure) -> None:
        _ioctl(fd, ioctl_request(number, ctypes.sizeof(argument)), argument)

    def empty_ioctl(self, fd: int, argument: ctypes.Structure) -> None:
        # The request is made up as in ioctl(), for what that costs. Files are opened
        # close-on-exec, so setting that again changes nothing.
        ioctl_request(0, ctypes.sizeof(argument))
        _ioctl(fd, termios.FIOCLEX, argument)

    def map_readable(self, fd: int, length: int) -> ReadableMapping:
        return MmapReading(fd, length)

    def gpus(self) -> Sequence[GpuNode]:
        nodes = []
        try:
            for folder in sorted(_PROC_GPUS.iterdir()):
                minor = _minor_in((folder / "information").read_text())
                if minor is not None:
                    nodes.append(GpuNode(minor, folder.name.lower()))
        except OSError:
            # A container may hide /proc/driver/nvidia; the client then goes by the minor alone.
            return []
        return nodes


def _minor_in(information: str) -> int | None:
    for line in information.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Device Minor" and value.strip().isdecimal():
            return int(value)
    return None
