/* SPDX-License-Identifier: MIT */
/*
 * As much of the resource manager as the static BAR1 update path needs to
 * compile outside of it, on top of the simulated MMU. Names and signatures are
 * the driver's; everything behind them is the bench's.
 *
 * dmaUpdateVASpace_HAL itself is generated for each tree, because its argument
 * list differs between releases; it ends in shim_map().
 */
#ifndef BENCH_RM_SHIM_H
#define BENCH_RM_SHIM_H

#include "mmu.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t NvU8;
typedef uint16_t NvU16;
typedef uint32_t NvU32;
typedef int32_t NvS32;
typedef uint64_t NvU64;
typedef int64_t NvS64;
typedef NvU8 NvBool;
typedef NvU64 NvLength;
typedef NvU32 NV_STATUS;
typedef NvU32 ADDRESS_TRANSLATION;
typedef NvU32 NV_ADDRESS_SPACE;
typedef NvU32 GMMU_APERTURE;

#define NV_TRUE  ((NvBool)1)
#define NV_FALSE ((NvBool)0)

#define NV_OK                     0x00000000u
#define NV_ERR_GENERIC            0x0000FFFFu
#define NV_ERR_BUSY_RETRY         0x00000003u
#define NV_ERR_IN_USE             0x00000017u
#define NV_ERR_INVALID_ADDRESS    0x0000001Eu
#define NV_ERR_INVALID_ARGUMENT   0x0000001Fu
#define NV_ERR_INVALID_LOCK_STATE 0x0000002Fu
#define NV_ERR_INVALID_STATE      0x00000040u
#define NV_ERR_NO_MEMORY          0x00000051u
#define NV_ERR_NOT_SUPPORTED      0x00000056u

#define NV_MIN(a, b) ((a) < (b) ? (a) : (b))
#define NV_MAX(a, b) ((a) > (b) ? (a) : (b))
#define NVBIT(b) (1U << (b))
#define NVBIT64(b) (1ULL << (b))
#define NV_IS_ALIGNED(v, g) (((v) & ((g) - 1)) == 0)
#define NV_IS_ALIGNED64(v, g) (((v) & ((g) - 1)) == 0)
#define NV_ALIGN_DOWN64(v, g) ((v) & ~((NvU64)(g) - 1))
#define NV_ALIGN_UP64(v, g) (((v) + ((g) - 1)) & ~((NvU64)(g) - 1))
#define NV_ARRAY_ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))
#define NV_FORCE_INLINE inline
#define NV_UNUSED(x) ((void)(x))

/* Messages are not judged; their arguments still have to compile. */
#define NV_PRINTF(level, ...) ((void)(0 && printf(__VA_ARGS__)))
#define NV_ASSERT(cond) ((void)((cond) ? 0 : 0))
#define NV_ASSERT_OR_RETURN(cond, status) do { if (!(cond)) return (status); } while (0)
#define NV_ASSERT_OR_RETURN_VOID(cond) do { if (!(cond)) return; } while (0)
#define NV_ASSERT_OR_ELSE_STR(cond, str, code) do { if (!(cond)) { code; } } while (0)
#define NV_ASSERT_OR_ELSE(cond, code) do { if (!(cond)) { code; } } while (0)
#define NV_CHECK(level, cond) ((void)((cond) ? 0 : 0))
#define NV_CHECK_OR_RETURN(level, cond, status) do { if (!(cond)) return (status); } while (0)
#define NV_CHECK_OR_ELSE(level, cond, code) do { if (!(cond)) { code; } } while (0)
#define NV_ASSERT_OK_OR_RETURN(call) \
    do { NV_STATUS shim_status = (call); if (shim_status != NV_OK) return shim_status; } while (0)
#define NV_CHECK_OK_OR_RETURN(level, call) NV_ASSERT_OK_OR_RETURN(call)
#define NV_ASSERT_OK_OR_GOTO(status, call, label) \
    do { (status) = (call); if ((status) != NV_OK) goto label; } while (0)
#define NV_CHECK_OK_OR_GOTO(status, level, call, label) NV_ASSERT_OK_OR_GOTO(status, call, label)
#define NV_ASSERT_OK(call) ((void)(call))
#define NV_CHECK_OK(status, level, call) ((status) = (call))
#define NV_CHECK_OK_OR_ELSE(status, level, call, code) \
    do { (status) = (call); if ((status) != NV_OK) { code; } } while (0)

#define RM_PAGE_SIZE           0x1000ull
#define RM_PAGE_SIZE_64K       0x10000ull
#define RM_PAGE_SIZE_128K      0x20000ull
#define RM_PAGE_SIZE_HUGE      0x200000ull
#define RM_PAGE_SIZE_512M      0x20000000ull

#define ADDR_UNKNOWN 0u
#define ADDR_SYSMEM  1u
#define ADDR_FBMEM   2u
#define AT_CPU 1u
#define AT_GPU 2u

#define BUS_FLUSH_VIDEO_MEMORY  MMU_FLUSH_VIDEO
#define BUS_FLUSH_SYSTEM_MEMORY MMU_FLUSH_SYSTEM
#define BUS_FLUSH_VIDEO_MEMORY_VIA_PRAMIN_WINDOW NVBIT(2)
#define BUS_INVALID_PEER 0xFFFFFFFFu
#define BUS_MAP_FB_FLAGS_NONE 0u
#define NVLINK_INVALID_FABRIC_ADDR (~0ull)

#define NV_MMU_PTE_VALID_FALSE 0u
#define NV_MMU_PTE_VALID_TRUE 1u
#define NV_MMU_PTE_APERTURE_VIDEO_MEMORY 0u
#define GMMU_APERTURE_VIDEO 2u

#define DMA_TLB_INVALIDATE       0u
#define DMA_DEFER_TLB_INVALIDATE 1u
#define DMA_UPDATE_VASPACE_FLAGS_UPDATE_PADDR NVBIT(0)
#define DMA_UPDATE_VASPACE_FLAGS_UPDATE_COMPR NVBIT(1)
#define DMA_UPDATE_VASPACE_FLAGS_UPDATE_KIND  NVBIT(5)
#define DMA_UPDATE_VASPACE_FLAGS_UPDATE_VALID NVBIT(3)
#define DMA_UPDATE_VASPACE_FLAGS_UPDATE_ALL   0x7FFu
#define DMA_UPDATE_VASPACE_FLAGS_ALLOW_REMAP  NVBIT(23)

#define FB_IS_KIND_COMPRESSIBLE 1u

/* An id each, so that a flag which was not meant is not answered. */
#define MEMDESC_FLAGS_ENCRYPTED 1ull
#define MEMDESC_FLAGS_ALLOC_AS_LOCALIZED 2ull

typedef enum { PTE_UPGRADE, PTE_DOWNGRADE } VAS_PTE_UPDATE_TYPE;

typedef struct { int unused; } VirtMemAllocator;
typedef struct { int unused; } MemoryManager;
typedef struct { int unused; } KernelGmmu;
typedef struct { NvU32 addressTranslation; } OBJVASPACE;
typedef OBJVASPACE OBJGVASPACE;

typedef struct {
    VirtMemAllocator dma;
    MemoryManager memoryManager;
    KernelGmmu kernelGmmu;
    struct KernelBus *pKernelBus;
} OBJGPU;

typedef struct {
    NvU32 kind;
    NvU32 compPageShift;
    NvU32 compPageIndexLo;
    NvU32 compPageIndexHi;
    NvU32 compTagLineMin;
    NvU32 compTagLineMultiplier;
} COMPR_INFO;

typedef struct {
    void *pData;
    NvU32 startIndex;
    NvU32 count;
    NvBool bOsFormat;
    NvBool bDuplicate;
    NvBool bLocalized;
    NvU64 localizedMask;
    NvU32 PteAdjust;
} DMA_PAGE_ARRAY;

typedef struct { NvU64 start, size; } MemoryRange;
typedef struct { MemoryRange *pRanges; NvU64 numRanges; } MemoryArea;

typedef struct MEMORY_DESCRIPTOR {
    NvU32 staticBar1MappingKind;
    NvU32 staticBar1MappingRefCount;
    NvU32 staticBar1DmaFlags;
    NvU64 localizedMask;
    /* the bench's own */
    NvU64 shimSize;
    NvU64 shimPageSize;
    NvU32 shimKind;
    NvBool shimContiguous;
    NvBool shimLocalized;
    NvU64 shimPages;
    const NvU64 *pShimPageSlot;
} MEMORY_DESCRIPTOR;

typedef struct KernelBus {
    NvU32 staticBar1DefaultKind;
    struct {
        OBJVASPACE *pVAS;
        NvBool bStaticBar1Enabled;
        struct { NvU64 size; NvU64 startOffset; } staticBar1;
    } bar1[1];
} KernelBus;

#define GPU_GET_DMA(pGpu) (&(pGpu)->dma)
#define GPU_GET_MEMORY_MANAGER(pGpu) (&(pGpu)->memoryManager)
#define GPU_GET_KERNEL_BUS(pGpu) ((pGpu)->pKernelBus)
#define GPU_GET_KERNEL_GMMU(pGpu) (&(pGpu)->kernelGmmu)
#define VAS_ADDRESS_TRANSLATION(pVAS) ((pVAS)->addressTranslation)
#define dynamicCast(pObject, TYPE) ((TYPE *)(pObject))
#define staticCast(pObject, TYPE) ((TYPE *)(pObject))
#define gpuGetInstance(pGpu) ((void)(pGpu), 0u)
#define rmDeviceGpuLockIsOwner(instance) ((void)(instance), NV_TRUE)
#define kbusIsStaticBar1Enabled(pGpu, pKernelBus) \
    ((void)(pGpu), (pKernelBus)->bar1[0].bStaticBar1Enabled)

static inline NV_STATUS vgpuGetCallingContextGfid(OBJGPU *pGpu, NvU32 *pGfid)
{
    (void)pGpu;
    *pGfid = 0;
    return NV_OK;
}

static inline NvU32 memdescGetAddressSpace(MEMORY_DESCRIPTOR *pMemDesc)
{
    (void)pMemDesc;
    return ADDR_FBMEM;
}

static inline NvU64 memdescGetPageSize(MEMORY_DESCRIPTOR *pMemDesc, ADDRESS_TRANSLATION at)
{
    (void)at;
    return pMemDesc->shimPageSize;
}

static inline NvU64 memdescGetSize(MEMORY_DESCRIPTOR *pMemDesc)
{
    return pMemDesc->shimSize;
}

static inline NvBool memdescGetContiguity(MEMORY_DESCRIPTOR *pMemDesc, ADDRESS_TRANSLATION at)
{
    (void)at;
    return pMemDesc->shimContiguous;
}

static inline NvU32 memdescGetPteKind(MEMORY_DESCRIPTOR *pMemDesc)
{
    return pMemDesc->shimKind;
}

static inline NvBool memdescGetFlag(MEMORY_DESCRIPTOR *pMemDesc, NvU64 flag)
{
    return flag == MEMDESC_FLAGS_ALLOC_AS_LOCALIZED && pMemDesc->shimLocalized;
}

static inline MEMORY_DESCRIPTOR *memdescGetRootMemDesc(MEMORY_DESCRIPTOR *pMemDesc, NvU64 *pOffset)
{
    if (pOffset != NULL)
        *pOffset = 0;
    return pMemDesc;
}

static inline void memdescFlushCpuCaches(OBJGPU *pGpu, MEMORY_DESCRIPTOR *pMemDesc)
{
    (void)pGpu;
    (void)pMemDesc;
}

static inline NvU64 memdescGetPhysAddr(MEMORY_DESCRIPTOR *pMemDesc, ADDRESS_TRANSLATION at,
                                       NvU64 offset)
{
    NvU64 page = offset / pMemDesc->shimPageSize;

    (void)at;
    if (page >= pMemDesc->shimPages) {
        mmu_found(MMU_PAGE_READ_PAST_END);
        /* The unkindest answer: the memory seems to go on, for one page. */
        return page > pMemDesc->shimPages ? 0
                                          : (pMemDesc->pShimPageSlot[page - 1] << MMU_SLOT_SHIFT) +
                                                pMemDesc->shimPageSize;
    }
    return (pMemDesc->pShimPageSlot[page] << MMU_SLOT_SHIFT) + offset % pMemDesc->shimPageSize;
}

static inline NvU64 memdescGetPtePhysAddr(MEMORY_DESCRIPTOR *pMemDesc, ADDRESS_TRANSLATION at,
                                          NvU64 offset)
{
    NvU64 physAddr = memdescGetPhysAddr(pMemDesc, at, offset);

    return pMemDesc->shimLocalized ? physAddr | pMemDesc->localizedMask : physAddr;
}

static inline NV_STATUS memmgrGetKindComprFromMemDesc(MemoryManager *pMemoryManager,
                                                      MEMORY_DESCRIPTOR *pMemDesc, NvU64 offset,
                                                      NvU32 *pKind, COMPR_INFO *pComprInfo)
{
    (void)pMemoryManager;
    (void)offset;
    *pKind = pMemDesc->shimKind;
    pComprInfo->kind = pMemDesc->shimKind;
    return NV_OK;
}

static inline NvBool memmgrIsKind_HAL(MemoryManager *pMemoryManager, NvU32 what, NvU32 kind)
{
    (void)pMemoryManager;
    return what == FB_IS_KIND_COMPRESSIBLE && kind != MMU_KIND_DEFAULT;
}

static inline NvU32 memmgrGetUncompressedKind_HAL(OBJGPU *pGpu, MemoryManager *pMemoryManager,
                                                  NvU32 kind, NvBool bReleaseReacquire)
{
    (void)pGpu;
    (void)pMemoryManager;
    (void)kind;
    (void)bReleaseReacquire;
    return MMU_KIND_DEFAULT;
}

static inline NvU32 kbusConvertBusMapFlagsToDmaFlags(KernelBus *pKernelBus,
                                                     MEMORY_DESCRIPTOR *pMemDesc, NvU32 flags)
{
    (void)pKernelBus;
    (void)pMemDesc;
    return flags;
}

static inline NvBool mrangeContains(MemoryRange outer, MemoryRange inner)
{
    return inner.start >= outer.start && inner.start + inner.size <= outer.start + outer.size;
}

static inline NV_STATUS kbusFlush_HAL(OBJGPU *pGpu, KernelBus *pKernelBus, NvU32 flags)
{
    (void)pGpu;
    (void)pKernelBus;
    mmu_flush(flags);
    return NV_OK;
}
#define kbusFlush(pGpu, pKernelBus, flags) kbusFlush_HAL(pGpu, pKernelBus, flags)

static inline void vaspaceInvalidateTlb(OBJVASPACE *pVAS, OBJGPU *pGpu, VAS_PTE_UPDATE_TYPE type)
{
    (void)pVAS;
    (void)pGpu;
    mmu_invalidate(type == PTE_DOWNGRADE);
}
#define gvaspaceInvalidateTlb(pGVAS, pGpu, type) vaspaceInvalidateTlb(pGVAS, pGpu, type)

MEMORY_DESCRIPTOR *shim_memory(void);

static inline NV_STATUS shim_map(MEMORY_DESCRIPTOR *pMemDesc, NvU8 *pTgtPteMem, NvU64 vaLo,
                                 NvU64 vaHi, NvU32 flags, const DMA_PAGE_ARRAY *pPageArray,
                                 const COMPR_INFO *pComprInfo, NvU32 valid, NvU32 deferInvalidate,
                                 NvU64 pageSize)
{
    struct mmu_map_request request = {
        .va_lo = vaLo,
        .va_hi = vaHi,
        .page_bytes = pageSize,
        .kind = pComprInfo->kind,
        .remap = (flags & DMA_UPDATE_VASPACE_FLAGS_ALLOW_REMAP) != 0,
        .defer = deferInvalidate != DMA_TLB_INVALIDATE,
    };
    NvU64 *pPhys = NULL;
    NV_STATUS status;

    if (pMemDesc != shim_memory() || pTgtPteMem != NULL || valid != NV_MMU_PTE_VALID_TRUE)
        mmu_found(MMU_WRONG_MEMORY);

    if (flags & DMA_UPDATE_VASPACE_FLAGS_UPDATE_PADDR) {
        if (pPageArray == NULL || pPageArray->count == 0) {
            mmu_found(MMU_BAD_PAGE_ARRAY);
            return NV_ERR_INVALID_ARGUMENT;
        }
        /* As the driver: one address is the first of a run, more are one each 4 KiB. */
        request.phys_count = pPageArray->count;
        pPhys = malloc(pPageArray->count * sizeof(*pPhys));
        if (pPhys == NULL)
            abort();
        memcpy(pPhys, (const NvU64 *)pPageArray->pData + pPageArray->startIndex,
               pPageArray->count * sizeof(*pPhys));
        request.phys = pPhys;
        request.localized = pPageArray->bLocalized;
    }
    status = mmu_map(&request);
    free(pPhys);
    return status;
}

#endif
