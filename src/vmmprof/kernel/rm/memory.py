# SPDX-License-Identifier: MIT
"""Video memory objects: allocated, imported or duplicated; exported; described."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum

from vmmprof.kernel.rm.client import RmClient, raise_on_status
from vmmprof.kernel.rm.errors import RmError, Step
from vmmprof.kernel.rm.status import RmStatus
from vmmprof.kernel.rm.structs import (
    DupObjectParameters,
    ExportObjectToFdParams,
    GetExportObjectInfoParams,
    GetSurfaceInfoParams,
    GetSurfacePhysAttrParams,
    ImportObjectFromFdParams,
    InfoEntry,
    MemoryAllocationParams,
)
from vmmprof.sizes import KIB, MIB, format_size

PAGE_BYTES = 2 * MIB
"""The page size that the static BAR1 update loop works in."""

CLASS_LOCAL_MEMORY = 0x40
ESC_DUP_OBJECT = 0x34

CMD_EXPORT_OBJECT_TO_FD = 0x3D05
CMD_IMPORT_OBJECT_FROM_FD = 0x3D06
CMD_GET_EXPORT_OBJECT_INFO = 0x3D08
CMD_GET_SURFACE_PHYS_ATTR = 0x410103
CMD_GET_SURFACE_INFO = 0x410110

GENERIC_KIND = 0x6
"""The default page kind; only memory of another kind, or localized memory, runs the loop."""

_OWNER = 0x766D6D70
_ATTR_COMPR_SHIFT = 12
_ATTR_COMPR_REQUIRED = 1
_ATTR_PAGE_SIZE_HUGE = 3 << 23
_ATTR_PHYSICALITY_SHIFT = 27
_ATTR2_PAGE_SIZE_HUGE_2MB = 1 << 20
_ATTR2_LOCALIZED_SHIFT = 29
_OBJECT_TYPE_RM = 1
_SURFACE_PHYS_SIZE = 7
_PHYS_SIZE_UNIT = 4 * KIB


class Physicality(IntEnum):
    """NVOS32_ATTR_PHYSICALITY: whether the physical pages must be one run."""

    NONCONTIGUOUS = 1
    CONTIGUOUS = 2


def allocation_params(
    size_bytes: int,
    *,
    compressible: bool = False,
    physicality: Physicality = Physicality.CONTIGUOUS,
    domain: int | None = None,
) -> MemoryAllocationParams:
    """Arguments for video memory in 2 MiB pages; ``domain`` is a locality domain's ordinal."""
    attr = _ATTR_PAGE_SIZE_HUGE | physicality << _ATTR_PHYSICALITY_SHIFT
    if compressible:
        attr |= _ATTR_COMPR_REQUIRED << _ATTR_COMPR_SHIFT
    attr2 = _ATTR2_PAGE_SIZE_HUGE_2MB
    if domain is not None:
        attr2 |= (domain + 1) << _ATTR2_LOCALIZED_SHIFT
    return MemoryAllocationParams(owner=_OWNER, size=size_bytes, attr=attr, attr2=attr2)


def granted_compression(params: MemoryAllocationParams) -> bool:
    """Whether the allocation that updated ``params`` is compressible."""
    return bool((params.attr >> _ATTR_COMPR_SHIFT) & 3 == _ATTR_COMPR_REQUIRED)


@dataclass(frozen=True)
class PhysicalLayout:
    """Where memory lies: one address for each 2 MiB page, in virtual order.

    ``kind`` is the page kind and ``contiguous`` the memory descriptor's own word
    for it (it decides how often the loop runs); both are None where only bus
    addresses are known.
    """

    pages: tuple[int, ...]
    kind: int | None = None
    contiguous: bool | None = None

    @property
    def runs(self) -> tuple[int, ...]:
        """Lengths in pages of the physically contiguous ascending runs."""
        lengths: list[int] = []
        for index, address in enumerate(self.pages):
            if index and address == self.pages[index - 1] + PAGE_BYTES:
                lengths[-1] += 1
            else:
                lengths.append(1)
        return tuple(lengths)


class Memory:
    """A memory object of our client; a context manager that frees it."""

    def __init__(self, client: RmClient, parent: int, handle: int, size_bytes: int) -> None:
        self.client = client
        self.handle = handle
        self.size_bytes = size_bytes
        self._parent = parent
        self._alive = True

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    def free(self) -> None:
        """Give the object back. May be repeated."""
        if self._alive:
            self._alive = False
            self.client.free(self._parent, self.handle)

    def duplicate(self) -> Memory:
        """A second object for the same memory, as an importing client would get."""
        arguments = DupObjectParameters(
            hClient=self.client.handle,
            hParent=self.client.device,
            hObject=self.client.new_handle(),
            hClientSrc=self.client.handle,
            hObjectSrc=self.handle,
        )
        detail = f"object 0x{self.handle:X}"
        self.client.call(ESC_DUP_OBJECT, arguments, Step.DUPLICATE, detail)
        raise_on_status(arguments.status, Step.DUPLICATE, detail)
        return Memory(self.client, self.client.device, arguments.hObject, self.size_bytes)

    @contextmanager
    def exported(self) -> Iterator[int]:
        """A file that CUDA and other clients can import; closed on leaving."""
        with self.client.control_file() as fd:
            params = ExportObjectToFdParams(
                type=_OBJECT_TYPE_RM,
                hDevice=self.client.device,
                hParent=self._parent,
                hObject=self.handle,
                fd=fd,
            )
            self.client.control(self.client.handle, CMD_EXPORT_OBJECT_TO_FD, params, Step.EXPORT)
            yield fd

    def physical_layout(self) -> PhysicalLayout:
        """Physical pages from the memory descriptor. Needs root."""
        first = self._physical_attributes(0)
        pages = [int(first.memOffset)]
        for offset in range(PAGE_BYTES, self.size_bytes, PAGE_BYTES):
            pages.append(int(self._physical_attributes(offset).memOffset))
        return PhysicalLayout(
            tuple(pages), int(first.memFormat), first.contigSegmentSize == self.size_bytes
        )

    def _physical_attributes(self, offset: int) -> GetSurfacePhysAttrParams:
        params = GetSurfacePhysAttrParams(memOffset=offset)
        self.client.control(
            self.handle,
            CMD_GET_SURFACE_PHYS_ATTR,
            params,
            Step.PHYSICAL,
            f"page {offset // PAGE_BYTES}",
        )
        return params


def allocate(client: RmClient, params: MemoryAllocationParams) -> Memory:
    """Allocate video memory; ``params`` come back with what was granted."""
    size_bytes = int(params.size)
    handle = client.alloc(
        client.device, CLASS_LOCAL_MEMORY, params, Step.ALLOC_MEMORY, format_size(size_bytes)
    )
    return Memory(client, client.device, handle, size_bytes)


def import_memory(client: RmClient, fd: int) -> Memory:
    """A memory object of our own for what another client exported into ``fd``."""
    info = GetExportObjectInfoParams(fd=fd)
    client.control(client.handle, CMD_GET_EXPORT_OBJECT_INFO, info, Step.EXPORT_INFO)
    if info.deviceInstance != client.device_instance:
        raise RmError(
            Step.IMPORT,
            f"the file holds memory of device {info.deviceInstance}, "
            f"{client.gpu.path} is device {client.device_instance}",
        )
    with ExitStack() as undo:
        parent, handle = _import_under_device_or_subdevice(client, fd)
        undo.callback(client.free, parent, handle)
        size_bytes = _surface_size(client, handle)
        undo.pop_all()
    return Memory(client, parent, handle, size_bytes)


def _import_under_device_or_subdevice(client: RmClient, fd: int) -> tuple[int, int]:
    # An object keeps the kind of parent that it was exported from, and the file does not say which.
    for parent in (client.device, client.subdevice):
        params = ImportObjectFromFdParams(
            fd=fd,
            type=_OBJECT_TYPE_RM,
            hDevice=client.device,
            hParent=parent,
            hObject=client.new_handle(),
        )
        try:
            client.control(client.handle, CMD_IMPORT_OBJECT_FROM_FD, params, Step.IMPORT)
        except RmError as error:
            wrong_parent = error.status == RmStatus.NV_ERR_INVALID_OBJECT_PARENT
            if parent == client.device and wrong_parent:
                continue
            raise
        return parent, int(params.hObject)
    raise AssertionError("the loop returns or raises")


def _surface_size(client: RmClient, handle: int) -> int:
    entry = (InfoEntry * 1)(InfoEntry(index=_SURFACE_PHYS_SIZE))
    params = GetSurfaceInfoParams(surfaceInfoListSize=1, surfaceInfoList=ctypes.addressof(entry))
    client.control(handle, CMD_GET_SURFACE_INFO, params, Step.SURFACE_INFO)
    return int(entry[0].data) * _PHYS_SIZE_UNIT
