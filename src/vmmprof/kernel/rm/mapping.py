# SPDX-License-Identifier: MIT
"""Looking at a memory object through BAR1."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from vmmprof.kernel.rm.client import RmClient, raise_on_status
from vmmprof.kernel.rm.errors import RmError, Step
from vmmprof.kernel.rm.memory import PAGE_BYTES, Memory, PhysicalLayout
from vmmprof.kernel.rm.queries import Bar1Region, StaticBar1
from vmmprof.kernel.rm.structs import MapMemoryParameters, UnmapMemoryParameters
from vmmprof.kernel.rm.transport import ReadableMapping
from vmmprof.sizes import format_size

ESC_MAP_MEMORY = 0x4E
ESC_UNMAP_MEMORY = 0x4F

# Any access but read-write changes the DMA flags, and with them static BAR1 is not used. What
# keeps static mappings from being written is that they are mapped without PROT_WRITE.
_ACCESS_READ_WRITE = 0
_ACCESS_READ_ONLY = 1


class Bar1Mapping:
    """A BAR1 mapping of ``[offset, offset + length)`` of a memory object, for reading.

    Of one object never map the same offset twice at a time: the resource
    manager finds a mapping by its bus address. ``own_entries`` asks for page
    table entries of its own in dynamic BAR1 instead of static BAR1. Without
    ``readable`` only the bus address is had. A context manager.
    """

    def __init__(
        self,
        memory: Memory,
        offset: int = 0,
        length: int | None = None,
        *,
        own_entries: bool = False,
        readable: bool = True,
    ) -> None:
        self.length = memory.size_bytes - offset if length is None else length
        self._memory = memory
        self._reading: ReadableMapping | None = None
        client = memory.client
        with ExitStack() as undo:
            # One mapping a file: the driver never clears a file's mapping context.
            fd = undo.enter_context(client.device_file())
            self.bus_address = self._map(client, fd, offset, own_entries)
            undo.callback(self._unmap, client)
            if readable:
                self._reading = self._mmap(client, fd)
                undo.callback(self._reading.close)
            self._undo = undo.pop_all()

    def __enter__(self) -> Bar1Mapping:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Undo in the order mmap, mapping, file. May be repeated."""
        self._undo.close()
        self._reading = None

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The 64-bit words at byte offsets from the mapping's start, multiples of 8."""
        return self._readable().words(offsets)

    def word(self, offset: int) -> int:
        """The 64-bit word at any byte offset."""
        return self._readable().word(offset)

    def _readable(self) -> ReadableMapping:
        if self._reading is None:
            raise ValueError("the mapping is closed, or was made for its address only")
        return self._reading

    def _map(self, client: RmClient, fd: int, offset: int, own_entries: bool) -> int:
        arguments = MapMemoryParameters(
            hClient=client.handle,
            hDevice=client.device,
            hMemory=self._memory.handle,
            offset=offset,
            length=self.length,
            flags=_ACCESS_READ_ONLY if own_entries else _ACCESS_READ_WRITE,
            fd=fd,
        )
        detail = f"{format_size(self.length)} from offset 0x{offset:X}"
        client.call(ESC_MAP_MEMORY, arguments, Step.MAP, detail)
        raise_on_status(arguments.status, Step.MAP, detail)
        return int(arguments.pLinearAddress)

    def _unmap(self, client: RmClient) -> None:
        arguments = UnmapMemoryParameters(
            hClient=client.handle,
            hDevice=client.device,
            hMemory=self._memory.handle,
            pLinearAddress=self.bus_address,
        )
        detail = f"bus address 0x{self.bus_address:X}"
        client.call(ESC_UNMAP_MEMORY, arguments, Step.UNMAP, detail)
        raise_on_status(arguments.status, Step.UNMAP, detail)

    def _mmap(self, client: RmClient, fd: int) -> ReadableMapping:
        try:
            return client.transport.map_readable(fd, self.length)
        except OSError as error:
            raise RmError(Step.MMAP, format_size(self.length), errno=error.errno) from error


def lies_in_static_bar1(bus_address: int, bar1: Bar1Region, static: StaticBar1) -> bool:
    """Whether a mapping's bus address falls into static BAR1."""
    offset = bus_address - bar1.base - static.start_offset
    return static.enabled and 0 <= offset < static.size_bytes


def framebuffer_address(bus_address: int, bar1: Bar1Region, static: StaticBar1) -> int:
    """Physical framebuffer address behind a static BAR1 bus address."""
    return bus_address - bar1.base - static.start_offset


def layout_from_bus_addresses(
    memory: Memory, first: Bar1Mapping, bar1: Bar1Region, static: StaticBar1
) -> PhysicalLayout:
    """Physical pages learnt by mapping each page alone; needs no root.

    ``first`` is the live mapping of the whole object, whose address serves for
    page 0. RmError when a page is not shown by static BAR1.
    """
    addresses = [first.bus_address]
    for offset in range(PAGE_BYTES, memory.size_bytes, PAGE_BYTES):
        with Bar1Mapping(memory, offset, PAGE_BYTES, readable=False) as page:
            addresses.append(page.bus_address)
    for index, address in enumerate(addresses):
        if not lies_in_static_bar1(address, bar1, static):
            raise RmError(
                Step.MAP, f"page {index} at bus address 0x{address:X} is not in static BAR1"
            )
    return PhysicalLayout(tuple(framebuffer_address(a, bar1, static) for a in addresses))
