# SPDX-License-Identifier: MIT
"""A source tree of our own that looks like the driver's, for tests without the real one.

Its update function has the driver's interface and none of its text.
"""

from __future__ import annotations

from pathlib import Path

from driverpatch.tree import TURING_FILE

PARAMETERS = (
    "pGpu, pDma, pVAS, pMemDesc, tgtPteMem, vAddr, vAddrLimit, flags, pPageArray, pComprInfo, "
    "surfaceOffset, valid, aperture, isVolatile, peer, fabricAddr, deferInvalidate, bSparse, "
    "pageSize"
)

SOURCE = """\
#define SMALL_FLAGS (DMA_UPDATE_VASPACE_FLAGS_UPDATE_ALL | DMA_UPDATE_VASPACE_FLAGS_ALLOW_REMAP)

static NV_STATUS _smallMapPage
(
    OBJGPU *pGpu, KernelBus *pKernelBus, MEMORY_DESCRIPTOR *pMemDesc, COMPR_INFO *pInfo,
    DMA_PAGE_ARRAY *pPages, NvU64 first, NvU64 length
)
{
    return dmaUpdateVASpace_HAL(pGpu, GPU_GET_DMA(pGpu), pKernelBus->bar1[0].pVAS, pMemDesc, NULL,
        first, first + length - 1, SMALL_FLAGS, pPages, pInfo, 0, NV_MMU_PTE_VALID_TRUE,
        GMMU_APERTURE_VIDEO, NV_FALSE, BUS_INVALID_PEER, NVLINK_INVALID_FABRIC_ADDR,
        DMA_TLB_INVALIDATE, NV_FALSE, memdescGetPageSize(pMemDesc, AT_GPU));
}

NV_STATUS _kbusUpdateStaticBar1VAMapping_TU102
(
    OBJGPU *pGpu, KernelBus *pKernelBus, MEMORY_DESCRIPTOR *pMemDesc, NvU32 unusedFlags,
    NvBool bRelease
)
{
    NvU64 pageSize = memdescGetPageSize(pMemDesc, AT_GPU);
    NvU64 step = memdescGetContiguity(pMemDesc, AT_GPU) ? memdescGetSize(pMemDesc) : pageSize;
    NV_STATUS status = NV_OK;
    COMPR_INFO info = {0};
    NvU64 offset;

    info.kind = bRelease ? pKernelBus->staticBar1DefaultKind : memdescGetPteKind(pMemDesc);
    for (offset = 0; offset < memdescGetSize(pMemDesc); offset += step)
    {
        NvU64 physAddr = memdescGetPhysAddr(pMemDesc, AT_GPU, offset);
        NvU64 first = physAddr + pKernelBus->bar1[0].staticBar1.startOffset;
        DMA_PAGE_ARRAY pages = {.pData = &physAddr, .count = 1};

        if (!bRelease && memdescGetFlag(pMemDesc, MEMDESC_FLAGS_ALLOC_AS_LOCALIZED))
        {
            pages.bLocalized = NV_TRUE;
        }
        status = _smallMapPage(pGpu, pKernelBus, pMemDesc, &info, &pages, first, step);
    }
    return status == NV_ERR_NOT_SUPPORTED ? NV_ERR_INVALID_STATE : status;
}

NV_STATUS kbusIncreaseStaticBar1Refcount_TU102
(
    OBJGPU *pGpu, KernelBus *pKernelBus, MEMORY_DESCRIPTOR *pMemDesc, NvU32 busMapFlags
)
{
    NvU32 kind = memdescGetPteKind(pMemDesc);
    NV_STATUS status = NV_OK;

    if ((pMemDesc->staticBar1MappingRefCount != 0 && kind != pMemDesc->staticBar1MappingKind) ||
        busMapFlags != pMemDesc->staticBar1DmaFlags)
    {
        return NV_ERR_IN_USE;
    }
    if (kind != pKernelBus->staticBar1DefaultKind ||
        memdescGetFlag(pMemDesc, MEMDESC_FLAGS_ALLOC_AS_LOCALIZED))
    {
        status = _kbusUpdateStaticBar1VAMapping_TU102(pGpu, pKernelBus, pMemDesc, 0, NV_FALSE);
    }
    if (status == NV_OK)
    {
        pMemDesc->staticBar1MappingKind = kind;
        pMemDesc->staticBar1MappingRefCount++;
    }
    return status;
}

NV_STATUS kbusDecreaseStaticBar1Refcount_TU102
(
    OBJGPU *pGpu, KernelBus *pKernelBus, MEMORY_DESCRIPTOR *pMemDesc, MemoryArea *pMemArea
)
{
    NV_UNUSED(pMemArea);
    if (--pMemDesc->staticBar1MappingRefCount != 0 ||
        (pMemDesc->staticBar1MappingKind == pKernelBus->staticBar1DefaultKind &&
         !memdescGetFlag(pMemDesc, MEMDESC_FLAGS_ALLOC_AS_LOCALIZED)))
    {
        return NV_OK;
    }
    return _kbusUpdateStaticBar1VAMapping_TU102(pGpu, pKernelBus, pMemDesc, 0, NV_TRUE);
}
"""


def make_small_tree(where: Path, source: str = SOURCE, parameters: str = PARAMETERS) -> Path:
    """Lay out a tree with `source` as its Turing bus file."""
    file = where / TURING_FILE
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (where / "version.mk").write_text("NVIDIA_VERSION = 999.1\n")
    header = where / "src/nvidia/generated/g_virt_mem_allocator_nvoc.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define dmaUpdateVASpace_HAL({parameters}) dispatch({parameters})\n")
    return where
