# SPDX-License-Identifier: MIT
"""The structures are what the driver takes: sizes and offsets, and the driver's own headers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.requirements import skip_unless
from vmmprof.kernel.rm import client as rm_client
from vmmprof.kernel.rm import mapping, memory, queries, structs

# Size and offsets that sizes alone do not pin down, from the headers of 595.45.04 or, for the
# older layouts, of the branch that the docstring names.
LAYOUTS: dict[type[ctypes.Structure], tuple[int, dict[str, int]]] = {
    structs.RmApiVersion: (72, {"reply": 4, "versionString": 8}),
    structs.AllocParameters: (32, {"hObjectNew": 8, "hClass": 12, "pAllocParms": 16, "status": 28}),
    structs.ControlParameters: (32, {"cmd": 8, "params": 16, "paramsSize": 24, "status": 28}),
    structs.FreeParameters: (16, {"hObjectOld": 8, "status": 12}),
    structs.DupObjectParameters: (28, {"hObject": 8, "hClientSrc": 12, "flags": 20, "status": 24}),
    structs.MapMemoryParameters: (
        56,
        {"offset": 16, "length": 24, "pLinearAddress": 32, "status": 40, "flags": 44, "fd": 48},
    ),
    structs.UnmapMemoryParameters: (32, {"pLinearAddress": 16, "status": 24}),
    structs.DeviceAllocParameters: (56, {"flags": 16, "vaSpaceSize": 24, "vaMode": 48}),
    structs.SubdeviceAllocParameters: (4, {}),
    structs.MemoryAllocationParams: (
        128,
        {"attr": 24, "attr2": 28, "rangeLo": 48, "size": 64, "limit": 88, "numaNode": 120},
    ),
    structs.GetAttachedIdsParams: (128, {}),
    structs.GetIdInfoV2Params: (32, {"deviceInstance": 8, "subDeviceInstance": 12, "numaId": 28}),
    structs.GetPciInfoParams: (12, {"domain": 4, "bus": 8, "slot": 10}),
    structs.ExportObjectToFdParams: (24, {"hObject": 12, "fd": 16, "flags": 20}),
    structs.ImportObjectFromFdParams: (20, {"type": 4, "hParent": 12, "hObject": 16}),
    structs.GetExportObjectInfoParams: (80, {"maxObjects": 12, "metadata": 14}),
    structs.GetSurfacePhysAttrParams: (48, {"memFormat": 8, "contigSegmentSize": 40}),
    structs.InfoEntry: (8, {"data": 4}),
    structs.GetSurfaceInfoParams: (16, {"surfaceInfoList": 8}),
    structs.StaticBar1Info: (
        24,
        {"bStaticBar1WriteCombined": 1, "staticBar1StartOffset": 8, "staticBar1Size": 16},
    ),
    structs.StaticBar1InfoNoOffset: (16, {"staticBar1Size": 8}),
    structs.FbInfo128: (1028, {"fbInfoList": 4}),
    structs.FbInfo57: (460, {"fbInfoList": 4}),
    structs.GpuInfo70: (564, {"gpuInfoList": 4}),
    structs.GpuInfo66: (532, {"gpuInfoList": 4}),
    structs.GpuInfo65: (524, {"gpuInfoList": 4}),
    structs.GpuNameAscii: (68, {"ascii": 4}),
    structs.GpuNameUnion: (132, {"ascii": 4}),
    structs.PciBar: (24, {"barSizeBytes": 8, "barOffset": 16}),
    structs.GetPciBarInfoParams: (200, {"pciBarInfo": 8}),
}

# The driver's names for the structures and constants, to be compiled from its headers.
DRIVER_NAMES = {
    structs.RmApiVersion: "nv_ioctl_rm_api_version_t",
    structs.AllocParameters: "NVOS21_PARAMETERS",
    structs.ControlParameters: "NVOS54_PARAMETERS",
    structs.FreeParameters: "NVOS00_PARAMETERS",
    structs.DupObjectParameters: "NVOS55_PARAMETERS",
    structs.UnmapMemoryParameters: "NVOS34_PARAMETERS",
    structs.DeviceAllocParameters: "NV0080_ALLOC_PARAMETERS",
    structs.SubdeviceAllocParameters: "NV2080_ALLOC_PARAMETERS",
    structs.MemoryAllocationParams: "NV_MEMORY_ALLOCATION_PARAMS",
    structs.GetIdInfoV2Params: "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS",
    structs.GetPciInfoParams: "NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS",
    structs.GetSurfacePhysAttrParams: "NV0041_CTRL_GET_SURFACE_PHYS_ATTR_PARAMS",
    structs.GetSurfaceInfoParams: "NV0041_CTRL_GET_SURFACE_INFO_PARAMS",
    structs.GetPciBarInfoParams: "NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS",
    structs.GetExportObjectInfoParams: "NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS",
}
ONE_OF = {
    "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS": queries._STATIC_BAR1_LAYOUTS,
    "NV2080_CTRL_FB_GET_INFO_V2_PARAMS": queries._FB_LAYOUTS,
    "NV2080_CTRL_GPU_GET_INFO_V2_PARAMS": queries._GPU_LAYOUTS,
    "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS": queries._NAME_LAYOUTS,
}
CONSTANTS = {
    "NV_ESC_RM_FREE": rm_client.ESC_FREE,
    "NV_ESC_RM_CONTROL": rm_client.ESC_CONTROL,
    "NV_ESC_RM_ALLOC": rm_client.ESC_ALLOC,
    "NV_ESC_RM_DUP_OBJECT": memory.ESC_DUP_OBJECT,
    "NV_ESC_RM_MAP_MEMORY": mapping.ESC_MAP_MEMORY,
    "NV_ESC_RM_UNMAP_MEMORY": mapping.ESC_UNMAP_MEMORY,
    "NV_ESC_CHECK_VERSION_STR": rm_client.ESC_CHECK_VERSION,
    "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS": rm_client.CMD_GET_ATTACHED_IDS,
    "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2": rm_client.CMD_GET_ID_INFO_V2,
    "NV0000_CTRL_CMD_GPU_GET_PCI_INFO": rm_client.CMD_GET_PCI_INFO,
    "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD": memory.CMD_EXPORT_OBJECT_TO_FD,
    "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD": memory.CMD_IMPORT_OBJECT_FROM_FD,
    "NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO": memory.CMD_GET_EXPORT_OBJECT_INFO,
    "NV0041_CTRL_CMD_GET_SURFACE_PHYS_ATTR": memory.CMD_GET_SURFACE_PHYS_ATTR,
    "NV0041_CTRL_CMD_GET_SURFACE_INFO": memory.CMD_GET_SURFACE_INFO,
    "NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE": memory._SURFACE_PHYS_SIZE,
    "NV0041_CTRL_SURFACE_INFO_PHYS_SIZE_SCALE_FACTOR": memory._PHYS_SIZE_UNIT,
    "NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO": queries.CMD_STATIC_BAR1,
    "NV2080_CTRL_CMD_FB_GET_INFO_V2": queries.CMD_FB_INFO_V2,
    "NV2080_CTRL_CMD_GPU_GET_INFO_V2": queries.CMD_GPU_INFO_V2,
    "NV2080_CTRL_CMD_GPU_GET_NAME_STRING": queries.CMD_GPU_NAME,
    "NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO": queries.CMD_PCI_BARS,
    "NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE": queries.FB_BAR1_SIZE_KIB,
    "NV2080_CTRL_FB_INFO_INDEX_BAR1_AVAIL_SIZE": queries.FB_BAR1_AVAILABLE_KIB,
    "NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE": queries.FB_HEAP_FREE_KIB,
    "NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE": queries.FB_USABLE_KIB,
    "NVOS32_ATTR_COMPR_REQUIRED": memory._ATTR_COMPR_REQUIRED,
    "NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS": memory.Physicality.NONCONTIGUOUS,
    "NVOS32_ATTR_PHYSICALITY_CONTIGUOUS": memory.Physicality.CONTIGUOUS,
}
HEADERS = (
    "nvtypes.h",
    "nvos.h",
    "nv_escape.h",
    "nv-ioctl.h",
    "ctrl/ctrl0000/ctrl0000unix.h",
    "ctrl/ctrl0000/ctrl0000gpu.h",
    "ctrl/ctrl0041.h",
    "ctrl/ctrl2080/ctrl2080fb.h",
    "ctrl/ctrl2080/ctrl2080bus.h",
    "ctrl/ctrl2080/ctrl2080gpu.h",
    "class/cl0080.h",
    "class/cl2080.h",
)
INCLUDE_FOLDERS = (
    "src/common/sdk/nvidia/inc",
    "src/nvidia/arch/nvalloc/unix/include",
    "kernel-open/common/inc",
)


def _all_structures() -> set[type[ctypes.Structure]]:
    return {
        value
        for value in vars(structs).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure)
    }


def test_every_structure_has_its_size_and_offsets_pinned() -> None:
    assert _all_structures() == set(LAYOUTS)


@pytest.mark.parametrize("structure", LAYOUTS, ids=lambda s: s.__name__)
def test_size_and_offsets(structure: type[ctypes.Structure]) -> None:
    size, offsets = LAYOUTS[structure]
    assert ctypes.sizeof(structure) == size
    assert {name: getattr(structure, name).offset for name in offsets} == offsets


def test_alternatives_can_be_told_apart_by_size() -> None:
    for layouts in ONE_OF.values():
        sizes = [ctypes.sizeof(layout) for layout in layouts]
        assert len(set(sizes)) == len(sizes)


def _values_in_headers(tree: Path, folder: Path) -> dict[str, int]:
    """Sizes, offsets and constants as a C compiler sees them in a driver source tree."""
    lines = [f'#include "{header}"' for header in HEADERS]
    lines += ["#include <stdio.h>", "#include <stddef.h>", "int main(void) {"]
    for structure, name in DRIVER_NAMES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [
            f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
            for field in LAYOUTS[structure][1]
        ]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in ONE_OF]
    lines += [f'printf("{name} %zu\\n", (size_t)({name}));' for name in CONSTANTS]
    source = folder / "layouts.c"
    source.write_text("\n".join([*lines, "}"]))
    program = folder / "layouts"
    includes = [f"-I{tree / include}" for include in INCLUDE_FOLDERS]
    subprocess.run(["cc", "-w", *includes, str(source), "-o", str(program)], check=True)
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_the_drivers_own_headers_agree(tmp_path: Path) -> None:
    tree = Path(os.environ.get("DRIVER_SRC", ""))
    skip_unless(
        "tree",
        (tree / "src/common/sdk/nvidia/inc").is_dir() and shutil.which("cc") is not None,
        "DRIVER_SRC names no open-gpu-kernel-modules tree, or there is no C compiler",
    )
    seen = _values_in_headers(tree, tmp_path)
    for structure, name in DRIVER_NAMES.items():
        size, offsets = LAYOUTS[structure]
        assert seen[name] == size, name
        for field, offset in offsets.items():
            assert seen[f"{name}.{field}"] == offset, f"{name}.{field}"
    for name, layouts in ONE_OF.items():
        assert seen[name] in [ctypes.sizeof(layout) for layout in layouts], name
    for name, value in CONSTANTS.items():
        assert seen[name] == value, name
