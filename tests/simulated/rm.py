# SPDX-License-Identifier: MIT
"""A resource manager that speaks the driver's ioctls, in memory."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.simulated.card import BAR1_BASE, PAGE, START_OFFSET, Backing, Card, Entry, Fault
from vmmprof.kernel.rm import GpuNode, RmStatus
from vmmprof.kernel.rm import client as rm_client
from vmmprof.kernel.rm import mapping as rm_mapping
from vmmprof.kernel.rm import memory as rm_memory
from vmmprof.kernel.rm import queries as rm_queries
from vmmprof.kernel.rm.structs import (
    FbInfo57,
    FbInfo128,
    GpuInfo65,
    GpuInfo70,
    GpuNameAscii,
    GpuNameUnion,
    InfoEntry,
    MemoryAllocationParams,
    StaticBar1Info,
    StaticBar1InfoNoOffset,
)

OK = RmStatus.NV_OK
GPU_ID = 0x1B00
DYNAMIC_BASE = BAR1_BASE + (1 << 40)
PCI_ADDRESS = "0000:1b:00.0"


# A client and a handle: every client numbers its own objects.
Key = tuple[int, int]


@dataclass
class Object:
    """An RM object; ``backing`` is set for memory."""

    parent: Key
    class_id: int
    backing: Backing | None = None
    maps: dict[int, Any] = field(default_factory=dict)


@dataclass
class File:
    path: str
    mapping: Any = None
    exported: Backing | None = None


@dataclass(eq=False)
class View:
    """What a mapping shows, page by page."""

    card: Card
    backing: Backing
    first_page: int
    length: int
    own_entries: bool
    frozen: npt.NDArray[np.uint64] | None = None

    def entry(self, page: int) -> Entry:
        physical = self.backing.pages[self.first_page + page]
        if self.own_entries:
            return Entry(physical, self.backing.kind)
        return self.card.static[physical]

    def word_at(self, index: int) -> int:
        return int(self.words(np.array([index * 8], np.int64))[0])

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        pages, within = offsets // PAGE, (offsets % PAGE) // 8
        out = np.empty(len(offsets), np.uint64)
        for page in np.unique(pages).tolist():
            chosen = pages == page
            if self.frozen is not None:
                out[chosen] = self.frozen[page][within[chosen]]
            else:
                out[chosen] = self.card.read_entry(self.entry(page), within[chosen])
        return out

    def word(self, offset: int) -> int:
        first, shift = divmod(offset, 8)
        low = self.word_at(first).to_bytes(8, "little")
        if shift == 0:
            return int.from_bytes(low, "little")
        high = self.word_at(first + 1).to_bytes(8, "little")
        return int.from_bytes((low + high)[shift : shift + 8], "little")

    def close(self) -> None:
        pass


class SimulatedRm:
    """A Transport. ``open_files`` and ``objects`` are the ledger that tests look at."""

    def __init__(
        self, card: Card | None = None, *, old_layouts: bool = False, listed: bool = True
    ) -> None:
        self.card = card or Card()
        self.old_layouts = old_layouts
        self.listed = listed
        self.files: dict[int, File] = {}
        self.objects: dict[Key, Object] = {}
        self.log: list[str] = []
        self._next_fd = 100
        self._next_client = 0xC1D00001
        self._next_dynamic = DYNAMIC_BASE
        self.refuse: dict[str, int] = {}

    # ---- Transport

    def open(self, path: str) -> int:
        if path not in ("/dev/nvidiactl", "/dev/nvidia0"):
            raise OSError(errno.ENOENT, "No such file or directory")
        fd = self._next_fd
        self._next_fd += 1
        self.files[fd] = File(path)
        if path == "/dev/nvidia0" and self.card.has(Fault.FILE_REUSED):
            self.files[fd].mapping = "left by another"
        return fd

    def close(self, fd: int) -> None:
        self.log.append("close")
        file = self.files.pop(fd)
        if file.exported is not None:
            self._drop_reference(file.exported, decrement=True)

    def ioctl(self, fd: int, number: int, argument: ctypes.Structure) -> None:
        handlers = {
            rm_client.ESC_ALLOC: self._alloc,
            rm_client.ESC_FREE: self._free,
            rm_client.ESC_CONTROL: self._control,
            rm_client.ESC_CHECK_VERSION: self._version,
            rm_memory.ESC_DUP_OBJECT: self._dup,
            rm_mapping.ESC_MAP_MEMORY: self._map,
            rm_mapping.ESC_UNMAP_MEMORY: self._unmap,
        }
        assert self.files[fd].path == "/dev/nvidiactl"
        handlers[number](argument)

    def empty_ioctl(self, fd: int, argument: ctypes.Structure) -> None:
        assert fd in self.files

    def map_readable(self, fd: int, length: int) -> View:
        view = self.files[fd].mapping
        if view is None:
            raise OSError(errno.EINVAL, "Invalid argument")
        if length != view.length:
            raise OSError(errno.ENXIO, "No such device or address")
        return view

    def gpus(self) -> Sequence[GpuNode]:
        return [GpuNode(0, PCI_ADDRESS)] if self.listed else []

    # ---- objects

    def _alloc(self, a: Any) -> None:
        if self._refused("alloc", a):
            return
        if a.hClass == rm_client.CLASS_CLIENT:
            a.hObjectNew = self._next_client
            self._next_client += 1
            key = (a.hObjectNew, a.hObjectNew)
            self.objects[key] = Object((0, 0), a.hClass)
            return
        key, parent = (a.hRoot, a.hObjectNew), (a.hRoot, a.hObjectParent)
        if key in self.objects or parent not in self.objects:
            a.status = RmStatus.NV_ERR_INVALID_OBJECT_HANDLE
            return
        if a.hClass == rm_client.CLASS_DEVICE and not self._device_file_open():
            a.status = RmStatus.NV_ERR_INVALID_DEVICE
            return
        made = Object(parent, a.hClass)
        if a.hClass == rm_memory.CLASS_LOCAL_MEMORY:
            params = MemoryAllocationParams.from_address(a.pAllocParms)
            assert a.paramsSize == ctypes.sizeof(params)
            made.backing = self._allocate_memory(params)
            if made.backing is None:
                a.status = RmStatus.NV_ERR_NO_MEMORY
                return
            made.backing.objects += 1
        self.objects[key] = made

    def _allocate_memory(self, params: MemoryAllocationParams) -> Backing | None:
        backing = self.card.allocate(
            params.size,
            compressible=(params.attr >> 12) & 3 == 1,
            noncontiguous=(params.attr >> 27) & 3 == 1,
            domain=((params.attr2 >> 29) & 3) - 1 if params.attr2 >> 29 else None,
        )
        if backing is not None and self.card.has(Fault.COMPRESSION_IGNORED):
            params.attr &= ~(3 << 12)
        return backing

    def _free(self, a: Any) -> None:
        if self._refused("free", a):
            return
        key = (a.hRoot, a.hObjectOld)
        if key not in self.objects:
            a.status = RmStatus.NV_ERR_INVALID_OBJECT_HANDLE
            return
        self.log.append(f"free class 0x{self.objects[key].class_id:X}")
        self._free_tree(key)

    def _free_tree(self, key: Key) -> None:
        for child in [k for k, o in self.objects.items() if o.parent == key]:
            self._free_tree(child)
        gone = self.objects.pop(key)
        if gone.backing is not None:
            for view in list(gone.maps.values()):
                self._drop_map(gone, view)
            self._drop_reference(gone.backing, decrement=True)

    def _drop_reference(self, backing: Backing, *, decrement: bool = False) -> None:
        backing.objects -= 1
        if backing.objects == 0:
            self.card.drop(backing)
        elif decrement:
            self.card.decrement(backing)

    def _dup(self, a: Any) -> None:
        if self._refused("dup", a):
            return
        source = self.objects[a.hClientSrc, a.hObjectSrc]
        self._adopt(a.hClient, a.hObject, a.hParent, source.backing)

    def _adopt(self, client: int, handle: int, parent: int, backing: Backing | None) -> None:
        assert backing is not None
        backing.objects += 1
        self.card.increment(backing)
        self.objects[client, handle] = Object(
            (client, parent), rm_memory.CLASS_LOCAL_MEMORY, backing
        )

    # ---- BAR1

    def _map(self, a: Any) -> None:
        if self.card.has(Fault.REFUSED_MAP):
            a.status = RmStatus.NV_ERR_NO_MEMORY
            return
        memory = self.objects[a.hClient, a.hMemory]
        backing = memory.backing
        assert backing is not None
        file = self.files.get(a.fd)
        if file is None or file.path != "/dev/nvidia0":
            a.status = RmStatus.NV_ERR_INVALID_ARGUMENT
            return
        if file.mapping is not None:
            a.status = RmStatus.NV_ERR_STATE_IN_USE
            return
        if a.offset + a.length > len(backing.pages) * PAGE:
            a.status = RmStatus.NV_ERR_INVALID_LIMIT
            return
        own = bool(a.flags & 3) or self.card.has(Fault.ALWAYS_DYNAMIC)
        if own and self.card.has(Fault.DYNAMIC_BAR1_FULL):
            a.status = RmStatus.NV_ERR_NO_MEMORY
            return
        length = a.length - PAGE if self.card.has(Fault.SHORT_MAP) else a.length
        view = View(self.card, backing, a.offset // PAGE, length, own)
        if own:
            address = self._next_dynamic
            self._next_dynamic += 1 << 32
            self.card.dynamic_used += a.length
        else:
            self.card.increment(backing)
            address = BAR1_BASE + START_OFFSET + backing.pages[a.offset // PAGE] * PAGE
            if self.card.has(Fault.WRONG_ADDRESS) and a.offset == PAGE:
                address += PAGE
        if self.card.has(Fault.STALE_DATA):
            view.frozen = np.stack([self.card.memory[p] for p in backing.pages])
        assert address not in memory.maps, "the same start is mapped twice"
        a.pLinearAddress = address
        memory.maps[address] = view
        file.mapping = view

    def _unmap(self, a: Any) -> None:
        memory = self.objects[a.hClient, a.hMemory]
        if a.pLinearAddress not in memory.maps:
            a.status = RmStatus.NV_ERR_OBJECT_NOT_FOUND
            return
        self.log.append("unmap")
        self._drop_map(memory, memory.maps.pop(a.pLinearAddress))

    def _drop_map(self, memory: Object, view: View) -> None:
        if view.own_entries:
            if not self.card.has(Fault.BAR1_LEAK):
                self.card.dynamic_used -= view.length
        else:
            assert memory.backing is not None
            self.card.decrement(memory.backing)

    # ---- controls

    def _control(self, a: Any) -> None:
        handlers = {
            rm_client.CMD_GET_ATTACHED_IDS: self._attached,
            rm_client.CMD_GET_ID_INFO_V2: self._identity,
            rm_client.CMD_GET_PCI_INFO: self._pci_info,
            rm_queries.CMD_STATIC_BAR1: self._static_bar1,
            rm_queries.CMD_FB_INFO_V2: self._fb_info,
            rm_queries.CMD_GPU_INFO_V2: self._gpu_info,
            rm_queries.CMD_GPU_NAME: self._gpu_name,
            rm_queries.CMD_PCI_BARS: self._pci_bars,
            rm_memory.CMD_EXPORT_OBJECT_TO_FD: self._export,
            rm_memory.CMD_GET_EXPORT_OBJECT_INFO: self._export_info,
            rm_memory.CMD_IMPORT_OBJECT_FROM_FD: self._import,
            rm_memory.CMD_GET_SURFACE_PHYS_ATTR: self._physical,
            rm_memory.CMD_GET_SURFACE_INFO: self._surface_info,
        }
        assert (a.hClient, a.hObject) in self.objects, "control of an object that does not exist"
        handlers[a.cmd](a)

    def _params(self, a: Any, layout: type[ctypes.Structure]) -> Any:
        if a.paramsSize != ctypes.sizeof(layout):
            a.status = RmStatus.NV_ERR_INVALID_PARAM_STRUCT
            return None
        return layout.from_address(a.params)

    def _attached(self, a: Any) -> None:
        params = self._params(a, rm_client.GetAttachedIdsParams)
        params.gpuIds[:] = [GPU_ID] + [0xFFFFFFFF] * 31

    def _identity(self, a: Any) -> None:
        self._params(a, rm_client.GetIdInfoV2Params).deviceInstance = 0

    def _pci_info(self, a: Any) -> None:
        params = self._params(a, rm_client.GetPciInfoParams)
        params.domain, params.bus, params.slot = 0, 0x1B, 0

    def _static_bar1(self, a: Any) -> None:
        layout = StaticBar1InfoNoOffset if self.old_layouts else StaticBar1Info
        params = self._params(a, layout)
        if params is None:
            return
        params.bStaticBar1Enabled = not self.card.has(Fault.STATIC_BAR1_OFF)
        params.staticBar1Size = self.card.total_pages * PAGE
        if not self.old_layouts:
            params.staticBar1StartOffset = START_OFFSET
            params.bStaticBar1WriteCombined = 1

    def _fb_info(self, a: Any) -> None:
        params = self._params(a, FbInfo57 if self.old_layouts else FbInfo128)
        if params is None:
            return
        sizes = {
            rm_queries.FB_USABLE_KIB: self.card.total_pages * PAGE,
            rm_queries.FB_HEAP_FREE_KIB: self.card.free_bytes,
            rm_queries.FB_BAR1_SIZE_KIB: 1 << 38,
            rm_queries.FB_BAR1_AVAILABLE_KIB: (1 << 37) - self.card.dynamic_used,
        }
        for entry in params.fbInfoList[: params.fbInfoListSize]:
            entry.data = sizes[entry.index] >> 10

    def _gpu_info(self, a: Any) -> None:
        params = self._params(a, GpuInfo65 if self.old_layouts else GpuInfo70)
        if params is None:
            return
        if self.old_layouts:
            a.status = RmStatus.NV_ERR_INVALID_ARGUMENT
            return
        params.gpuInfoList[0].data = 0

    def _gpu_name(self, a: Any) -> None:
        params = self._params(a, GpuNameUnion if self.old_layouts else GpuNameAscii)
        if params is not None:
            params.ascii = b"Simulated H200"

    def _pci_bars(self, a: Any) -> None:
        params = self._params(a, rm_queries.GetPciBarInfoParams)
        params.pciBarCount = 3
        params.pciBarInfo[1].barOffset = BAR1_BASE
        params.pciBarInfo[1].barSizeBytes = 1 << 38

    def export_backing(self, backing: Backing) -> int:
        """As CUDA does it: a control file that holds the memory."""
        fd = self.open("/dev/nvidiactl")
        self._put_into(fd, backing)
        return fd

    def _put_into(self, fd: int, backing: Backing) -> None:
        # The file gets a duplicate of its own.
        backing.objects += 1
        self.card.increment(backing)
        self.files[fd].exported = backing

    def _export(self, a: Any) -> None:
        params = self._params(a, rm_memory.ExportObjectToFdParams)
        backing = self.objects[a.hClient, params.hObject].backing
        assert backing is not None
        self._put_into(params.fd, backing)

    def _export_info(self, a: Any) -> None:
        params = self._params(a, rm_memory.GetExportObjectInfoParams)
        if self.files[params.fd].exported is None:
            a.status = RmStatus.NV_ERR_INVALID_PARAMETER
            return
        params.deviceInstance, params.maxObjects = 0, 1

    def _import(self, a: Any) -> None:
        params = self._params(a, rm_memory.ImportObjectFromFdParams)
        if self.card.has(Fault.REFUSED_IMPORT):
            a.status = RmStatus.NV_ERR_INVALID_PARAMETER
            return
        exported = self.files[params.fd].exported
        self._adopt(a.hClient, params.hObject, params.hParent, exported)

    def _physical(self, a: Any) -> None:
        if self.card.has(Fault.NOT_ROOT):
            a.status = RmStatus.NV_ERR_INSUFFICIENT_PERMISSIONS
            return
        params = self._params(a, rm_memory.GetSurfacePhysAttrParams)
        backing = self.objects[a.hClient, a.hObject].backing
        assert backing is not None
        params.memOffset = backing.pages[params.memOffset // PAGE] * PAGE
        params.memFormat = backing.kind
        params.contigSegmentSize = len(backing.pages) * PAGE if backing.contiguous else PAGE

    def _surface_info(self, a: Any) -> None:
        params = self._params(a, rm_memory.GetSurfaceInfoParams)
        backing = self.objects[a.hClient, a.hObject].backing
        assert backing is not None
        pages = len(backing.pages) - self.card.has(Fault.SHORT_IMPORT)
        entry = InfoEntry.from_address(params.surfaceInfoList)
        assert entry.index == 7
        entry.data = pages * PAGE // 4096

    def _version(self, a: Any) -> None:
        a.versionString = b"580.159.04"

    # ---- helpers

    def _refused(self, what: str, a: Any) -> bool:
        """``refuse["alloc"] = status`` makes that call fail."""
        status = self.refuse.get(what)
        if status is None:
            return False
        a.status = status
        return True

    def _device_file_open(self) -> bool:
        return any(file.path == "/dev/nvidia0" for file in self.files.values())
