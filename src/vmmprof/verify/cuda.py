# SPDX-License-Identifier: MIT
"""The protocol of gpu.py on a CUDA device, in its primary context."""

from __future__ import annotations

import ctypes
import os
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api, nvml
from vmmprof.drivers.cuda.scatter import scattered as scattered_card
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel.rm import PAGE_BYTES
from vmmprof.placement import Placement
from vmmprof.verify.pattern import WORD_BYTES, Pattern

_POSIX_FD = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_COMPRESSION_NONE = 0
_COMPRESSION_GENERIC = 1
_NOT_LOCALIZED = -1
_FILL_BLOCKS = 1056
_FILL_THREADS = 256


class CudaGpu:
    """CUDA device ``device``; a context manager that gives its context back.

    UsageError when there is no such device; NothingMeasuredError when CUDA
    cannot be used.
    """

    def __init__(self, device: int = 0) -> None:
        count = api.device_count()
        if count == 0:
            raise NothingMeasuredError("the CUDA driver reports no device")
        if not 0 <= device < count:
            raise UsageError(f"device {device}: this machine has CUDA devices 0 to {count - 1}")
        self._ordinal = device
        self._device = api.call("cuDeviceGet", device)
        address = api.call("cuDeviceGetPCIBusId", 32, self._device)
        self.pci_address = address.split(b"\0")[0].decode()
        if not api.attribute(self._device, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"):
            raise NothingMeasuredError(f"device {device} has no virtual memory management")
        self.domain_count = api.attribute(self._device, "LOCALITY_DOMAIN_COUNT")
        self.compression_supported = bool(
            api.attribute(self._device, "GENERIC_COMPRESSION_SUPPORTED")
        )
        self.export_supported = bool(
            api.attribute(self._device, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")
        )
        # Read before the context takes its own memory.
        self._usage = nvml.usage(self.pci_address)
        self._retained = False

    def __enter__(self) -> CudaGpu:
        context = api.call("cuDevicePrimaryCtxRetain", self._device)
        self._retained = True
        try:
            api.call("cuCtxSetCurrent", context)
            ptx = files("vmmprof.verify").joinpath("fill.ptx").read_bytes() + b"\0"
            module = api.call("cuModuleLoadData", ptx)
            self._fill_kernel = api.call("cuModuleGetFunction", module, b"vmmprof_fill")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._retained:
            self._retained = False
            # The module goes with the context.
            api.call("cuDevicePrimaryCtxRelease", self._device)

    def create(self, placement: Placement, size_bytes: int) -> CudaAllocation:
        handle = api.call("cuMemCreate", size_bytes, self._properties(placement), 0)
        return CudaAllocation(self, handle, size_bytes)

    def import_file(self, fd: int, size_bytes: int) -> CudaAllocation:
        handle = api.call("cuMemImportFromShareableHandle", fd, _POSIX_FD)
        return CudaAllocation(self, handle, size_bytes)

    def free_bytes(self) -> int:
        free_bytes, _ = api.call("cuMemGetInfo")
        return int(free_bytes)

    def scattered(self, need_bytes: int) -> AbstractContextManager[None]:
        return scattered_card(self._ordinal, need_bytes, lambda: False)

    def others(self) -> str | None:
        pids = self._usage.other_pids
        if pids is None:
            return "NVML cannot tell who uses the GPU"
        if pids:
            return "others use the GPU: PID " + ", ".join(map(str, pids))
        return None

    def close_file(self, fd: int) -> None:
        os.close(fd)

    def launch_fill(self, address: int, size_bytes: int, pattern: Pattern, seed: int) -> None:
        """Write the pattern from ``address`` on and wait for it."""
        arguments = (
            (address, size_bytes // WORD_BYTES, seed, pattern.value),
            (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
        )
        grid, block = (_FILL_BLOCKS, 1, 1), (_FILL_THREADS, 1, 1)
        api.call("cuLaunchKernel", self._fill_kernel, *grid, *block, 0, 0, arguments, 0)
        api.call("cuCtxSynchronize")

    def access(self) -> Any:
        """Read-write access for this device, as cuMemSetAccess takes it."""
        descriptor = cuda.CUmemAccessDesc()
        descriptor.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        descriptor.location.id = self._ordinal
        descriptor.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return descriptor

    def knows_locality_domains(self) -> bool:
        return self.domain_count is not None

    def _properties(self, placement: Placement) -> Any:
        properties = cuda.CUmemAllocationProp()
        properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        location = properties.location
        if placement.domain is None:
            location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            location.id = self._ordinal
        else:
            # The location is a union: here `id` must not be touched.
            location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
            location.localized.deviceId = self._ordinal
            location.localized.localityDomainId = placement.domain
        properties.requestedHandleTypes = _POSIX_FD
        properties.allocFlags.compressionType = (
            _COMPRESSION_GENERIC if placement.compressible else _COMPRESSION_NONE
        )
        properties.allocFlags.gpuDirectRDMACapable = int(placement.rdma)
        return properties


class CudaAllocation:
    """Memory made by cuMemCreate, exportable as a POSIX file descriptor."""

    def __init__(self, gpu: CudaGpu, handle: Any, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._gpu = gpu
        self._handle = handle
        self._address = 0

    def compressible(self) -> bool:
        properties = api.call("cuMemGetAllocationPropertiesFromHandle", self._handle)
        return int(properties.allocFlags.compressionType) != _COMPRESSION_NONE

    def map(self) -> None:
        size_bytes = self.size_bytes
        address = int(api.call("cuMemAddressReserve", size_bytes, PAGE_BYTES, 0, 0))
        try:
            api.call("cuMemMap", address, size_bytes, 0, self._handle, 0)
        except BaseException:
            api.call("cuMemAddressFree", address, size_bytes)
            raise
        self._address = address
        try:
            api.call("cuMemSetAccess", address, size_bytes, [self._gpu.access()], 1)
        except BaseException:
            self.unmap()
            raise

    def unmap(self) -> None:
        address, self._address = self._address, 0
        api.call("cuMemUnmap", address, self.size_bytes)
        api.call("cuMemAddressFree", address, self.size_bytes)

    def release(self) -> None:
        api.call("cuMemRelease", self._handle)

    def locality_domain(self) -> int | None:
        if not self._gpu.knows_locality_domains():
            return None
        attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
        ordinal = int(api.call("cuPointerGetAttribute", attribute, self._address))
        return None if ordinal == _NOT_LOCALIZED else ordinal

    def export(self) -> int:
        return int(api.call("cuMemExportToShareableHandle", self._handle, _POSIX_FD, 0))

    def poison(self, word: int) -> None:
        api.call("cuMemsetD32", self._address, word, self.size_bytes // 4)
        api.call("cuCtxSynchronize")

    def fill(self, pattern: Pattern, seed: int) -> None:
        self._gpu.launch_fill(self._address, self.size_bytes, pattern, seed)

    def put(self, offset: int, value: int) -> None:
        word = ctypes.c_uint64(value)
        api.call("cuMemcpyHtoD", self._address + offset, ctypes.addressof(word), WORD_BYTES)
        api.call("cuCtxSynchronize")

    def read(self, offset: int, length: int) -> npt.NDArray[np.uint64]:
        words = np.empty(length // WORD_BYTES, dtype=np.uint64)
        api.call("cuMemcpyDtoH", words.ctypes.data, self._address + offset, length)
        return words
