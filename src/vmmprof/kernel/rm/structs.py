# SPDX-License-Identifier: MIT
"""Argument structures of the resource-manager ioctls, as the driver lays them out.

Class and field names follow the driver's headers (nvos.h, ctrl0000*.h, ctrl0041.h,
ctrl2080*.h) so that a reader finds them there. Where a layout differs between
driver branches there is one class a layout; queries.py finds out by asking which
one the loaded module takes.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char,
    c_int32,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
)


class RmApiVersion(ctypes.Structure):
    """nv_ioctl_rm_api_version_t."""

    _fields_ = [("cmd", c_uint32), ("reply", c_uint32), ("versionString", c_char * 64)]


class AllocParameters(ctypes.Structure):
    """NVOS21_PARAMETERS."""

    _fields_ = [
        ("hRoot", c_uint32),
        ("hObjectParent", c_uint32),
        ("hObjectNew", c_uint32),
        ("hClass", c_uint32),
        ("pAllocParms", c_uint64),
        ("paramsSize", c_uint32),
        ("status", c_uint32),
    ]


class ControlParameters(ctypes.Structure):
    """NVOS54_PARAMETERS."""

    _fields_ = [
        ("hClient", c_uint32),
        ("hObject", c_uint32),
        ("cmd", c_uint32),
        ("flags", c_uint32),
        ("params", c_uint64),
        ("paramsSize", c_uint32),
        ("status", c_uint32),
    ]


class FreeParameters(ctypes.Structure):
    """NVOS00_PARAMETERS."""

    _fields_ = [
        ("hRoot", c_uint32),
        ("hObjectParent", c_uint32),
        ("hObjectOld", c_uint32),
        ("status", c_uint32),
    ]


class DupObjectParameters(ctypes.Structure):
    """NVOS55_PARAMETERS."""

    _fields_ = [
        ("hClient", c_uint32),
        ("hParent", c_uint32),
        ("hObject", c_uint32),
        ("hClientSrc", c_uint32),
        ("hObjectSrc", c_uint32),
        ("flags", c_uint32),
        ("status", c_uint32),
    ]


class MapMemoryParameters(ctypes.Structure):
    """nv_ioctl_nvos33_parameters_with_fd."""

    _fields_ = [
        ("hClient", c_uint32),
        ("hDevice", c_uint32),
        ("hMemory", c_uint32),
        ("offset", c_uint64),
        ("length", c_uint64),
        ("pLinearAddress", c_uint64),
        ("status", c_uint32),
        ("flags", c_uint32),
        ("fd", c_int32),
    ]


class UnmapMemoryParameters(ctypes.Structure):
    """NVOS34_PARAMETERS."""

    _fields_ = [
        ("hClient", c_uint32),
        ("hDevice", c_uint32),
        ("hMemory", c_uint32),
        ("pLinearAddress", c_uint64),
        ("status", c_uint32),
        ("flags", c_uint32),
    ]


class DeviceAllocParameters(ctypes.Structure):
    """NV0080_ALLOC_PARAMETERS."""

    _fields_ = [
        ("deviceId", c_uint32),
        ("hClientShare", c_uint32),
        ("hTargetClient", c_uint32),
        ("hTargetDevice", c_uint32),
        ("flags", c_uint32),
        ("vaSpaceSize", c_uint64),
        ("vaStartInternal", c_uint64),
        ("vaLimitInternal", c_uint64),
        ("vaMode", c_uint32),
    ]


class SubdeviceAllocParameters(ctypes.Structure):
    """NV2080_ALLOC_PARAMETERS."""

    _fields_ = [("subDeviceId", c_uint32)]


class MemoryAllocationParams(ctypes.Structure):
    """NV_MEMORY_ALLOCATION_PARAMS."""

    _fields_ = [
        ("owner", c_uint32),
        ("type", c_uint32),
        ("flags", c_uint32),
        ("width", c_uint32),
        ("height", c_uint32),
        ("pitch", c_int32),
        ("attr", c_uint32),
        ("attr2", c_uint32),
        ("format", c_uint32),
        ("comprCovg", c_uint32),
        ("zcullCovg", c_uint32),
        ("rangeLo", c_uint64),
        ("rangeHi", c_uint64),
        ("size", c_uint64),
        ("alignment", c_uint64),
        ("offset", c_uint64),
        ("limit", c_uint64),
        ("address", c_uint64),
        ("ctagOffset", c_uint32),
        ("hVASpace", c_uint32),
        ("internalflags", c_uint32),
        ("tag", c_uint32),
        ("numaNode", c_int32),
    ]


class GetAttachedIdsParams(ctypes.Structure):
    """NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS."""

    _fields_ = [("gpuIds", c_uint32 * 32)]


class GetIdInfoV2Params(ctypes.Structure):
    """NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS."""

    _fields_ = [
        ("gpuId", c_uint32),
        ("gpuFlags", c_uint32),
        ("deviceInstance", c_uint32),
        ("subDeviceInstance", c_uint32),
        ("sliStatus", c_uint32),
        ("boardId", c_uint32),
        ("gpuInstance", c_uint32),
        ("numaId", c_int32),
    ]


class GetPciInfoParams(ctypes.Structure):
    """NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS."""

    _fields_ = [
        ("gpuId", c_uint32),
        ("domain", c_uint32),
        ("bus", c_uint16),
        ("slot", c_uint16),
    ]


class ExportObjectToFdParams(ctypes.Structure):
    """NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS."""

    _fields_ = [
        ("type", c_uint32),
        ("hDevice", c_uint32),
        ("hParent", c_uint32),
        ("hObject", c_uint32),
        ("fd", c_int32),
        ("flags", c_uint32),
    ]


class ImportObjectFromFdParams(ctypes.Structure):
    """NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS."""

    _fields_ = [
        ("fd", c_int32),
        ("type", c_uint32),
        ("hDevice", c_uint32),
        ("hParent", c_uint32),
        ("hObject", c_uint32),
    ]


class GetExportObjectInfoParams(ctypes.Structure):
    """NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS."""

    _fields_ = [
        ("fd", c_int32),
        ("deviceInstance", c_uint32),
        ("gpuInstanceId", c_uint32),
        ("maxObjects", c_uint16),
        ("metadata", c_uint8 * 64),
    ]


class GetSurfacePhysAttrParams(ctypes.Structure):
    """NV0041_CTRL_GET_SURFACE_PHYS_ATTR_PARAMS."""

    _fields_ = [
        ("memOffset", c_uint64),
        ("memFormat", c_uint32),
        ("comprOffset", c_uint32),
        ("comprFormat", c_uint32),
        ("memAperture", c_uint32),
        ("gpuCacheAttr", c_uint32),
        ("gpuP2PCacheAttr", c_uint32),
        ("mmuContext", c_uint32),
        ("contigSegmentSize", c_uint64),
    ]


class InfoEntry(ctypes.Structure):
    """An index to ask for and the data answered: NVXXXX_CTRL_XXX_INFO."""

    _fields_ = [("index", c_uint32), ("data", c_uint32)]


class GetSurfaceInfoParams(ctypes.Structure):
    """NV0041_CTRL_GET_SURFACE_INFO_PARAMS; the list is behind a pointer."""

    _fields_ = [("surfaceInfoListSize", c_uint32), ("surfaceInfoList", c_uint64)]


class StaticBar1Info(ctypes.Structure):
    """NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS, 570 and later.

    bStaticBar1WriteCombined is padding before 580.
    """

    _fields_ = [
        ("bStaticBar1Enabled", c_uint8),
        ("bStaticBar1WriteCombined", c_uint8),
        ("staticBar1StartOffset", c_uint64),
        ("staticBar1Size", c_uint64),
    ]


class StaticBar1InfoNoOffset(ctypes.Structure):
    """NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS of 565: it starts at BAR1's base."""

    _fields_ = [("bStaticBar1Enabled", c_uint8), ("staticBar1Size", c_uint64)]


class FbInfo128(ctypes.Structure):
    """NV2080_CTRL_FB_GET_INFO_V2_PARAMS, 580 and later."""

    _fields_ = [("fbInfoListSize", c_uint32), ("fbInfoList", InfoEntry * 128)]


class FbInfo57(ctypes.Structure):
    """NV2080_CTRL_FB_GET_INFO_V2_PARAMS, 565 to 575."""

    _fields_ = [("fbInfoListSize", c_uint32), ("fbInfoList", InfoEntry * 57)]


class GpuInfo70(ctypes.Structure):
    """NV2080_CTRL_GPU_GET_INFO_V2_PARAMS, 580 and later."""

    _fields_ = [("gpuInfoListSize", c_uint32), ("gpuInfoList", InfoEntry * 70)]


class GpuInfo66(ctypes.Structure):
    """NV2080_CTRL_GPU_GET_INFO_V2_PARAMS of 575."""

    _fields_ = [("gpuInfoListSize", c_uint32), ("gpuInfoList", InfoEntry * 66)]


class GpuInfo65(ctypes.Structure):
    """NV2080_CTRL_GPU_GET_INFO_V2_PARAMS, 565 and 570."""

    _fields_ = [("gpuInfoListSize", c_uint32), ("gpuInfoList", InfoEntry * 65)]


class PciBar(ctypes.Structure):
    """NV2080_CTRL_BUS_PCI_BAR_INFO."""

    _fields_ = [
        ("flags", c_uint32),
        ("barSize", c_uint32),
        ("barSizeBytes", c_uint64),
        ("barOffset", c_uint64),
    ]


class GetPciBarInfoParams(ctypes.Structure):
    """NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS."""

    _fields_ = [("pciBarCount", c_uint32), ("pciBarInfo", PciBar * 8)]


class GpuNameAscii(ctypes.Structure):
    """NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, 595 and later."""

    _fields_ = [("gpuNameStringFlags", c_uint32), ("ascii", c_char * 64)]


class GpuNameUnion(ctypes.Structure):
    """NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS up to 590: the union has room for UTF-16."""

    _fields_ = [("gpuNameStringFlags", c_uint32), ("ascii", c_char * 64), ("_rest", c_char * 64)]
