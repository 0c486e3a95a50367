/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Around the object of a driver tree that holds the static BAR1 update path:
 * the objects that it reads, and the functions that it asks about them. Compiled
 * against that tree's headers with that tree's flags, by real_core.py.
 */
#include "core/core.h"
#include "gpu/gpu.h"
#include "gpu/bus/kern_bus.h"
#include "gpu/mem_mgr/mem_desc.h"
#include "gpu/mem_mgr/mem_mgr.h"
#include "gpu/mem_mgr/virt_mem_allocator.h"
#include "mem_mgr/gpu_vaspace.h"
#include "mem_mgr/vaspace.h"
#include "vgpu/vgpu_events.h"

#include "mock_core.h"

struct real_state {
    OBJGPU gpu;
    KernelBus bus;
    VirtMemAllocator dma;
    OBJVASPACE vaspace;
    MEMORY_DESCRIPTOR memory;
    struct mock_gpu *mock;
};
const uint64_t mock_state_bytes = sizeof(struct real_state);

static const struct NVOC_METADATA__OBJVASPACE vaspace_class = {
    .vtable.__vaspaceInvalidateTlb__ =
        (void (*)(OBJVASPACE *, OBJGPU *, VAS_PTE_UPDATE_TYPE))gvaspaceInvalidateTlb_IMPL,
};

struct mock_gpu *mock_of(void *driver_gpu)
{
    return ((struct real_state *)driver_gpu)->mock;
}

static const struct mock_gpu *mock_of_memory(const MEMORY_DESCRIPTOR *memory)
{
    return mock_of(memory->pGpu);
}

RmPhysAddr memdescGetPhysAddr(MEMORY_DESCRIPTOR *memory, ADDRESS_TRANSLATION translation,
                              NvU64 offset)
{
    return mock_phys_addr(mock_of_memory(memory), offset);
}

NvBool memdescGetContiguity(MEMORY_DESCRIPTOR *memory, ADDRESS_TRANSLATION translation)
{
    return mock_of_memory(memory)->request.contiguous != 0;
}

NvU64 memdescGetPageSize(MEMORY_DESCRIPTOR *memory, ADDRESS_TRANSLATION translation)
{
    return MOCK_PAGE_BYTES;
}

NV_ADDRESS_SPACE memdescGetAddressSpace(MEMORY_DESCRIPTOR *memory)
{
    return ADDR_FBMEM;
}

NvBool memdescGetFlag(MEMORY_DESCRIPTOR *memory, NvU64 flag)
{
    return flag == MEMDESC_FLAGS_ALLOC_AS_LOCALIZED &&
           mock_of_memory(memory)->request.localized != 0;
}

NvU32 memdescGetPteKindForGpu(MEMORY_DESCRIPTOR *memory, OBJGPU *gpu)
{
    return mock_of_memory(memory)->request.localized ? MOCK_DEFAULT_KIND : MOCK_COMPRESSIBLE_KIND;
}

MEMORY_DESCRIPTOR *memdescGetRootMemDesc(MEMORY_DESCRIPTOR *memory, NvU64 *root_offset)
{
    if (root_offset)
        *root_offset = 0;
    return memory;
}

void memdescFlushCpuCaches(OBJGPU *gpu, MEMORY_DESCRIPTOR *memory)
{
}

NV_STATUS memmgrGetKindComprFromMemDesc_IMPL(MemoryManager *manager, MEMORY_DESCRIPTOR *memory,
                                             NvU64 offset, NvU32 *kind, COMPR_INFO *compression)
{
    *kind = memdescGetPteKindForGpu(memory, memory->pGpu);
    compression->kind = *kind;
    return NV_OK;
}

NvBool kbusIsStaticBar1Enabled_IMPL(OBJGPU *gpu, KernelBus *bus)
{
    return NV_TRUE;
}

NvU32 kbusConvertBusMapFlagsToDmaFlags_IMPL(KernelBus *bus, MEMORY_DESCRIPTOR *memory, NvU32 flags)
{
    return 0;
}

NV_STATUS vgpuGetCallingContextGfid(OBJGPU *gpu, NvU32 *gfid)
{
    *gfid = 0;
    return NV_OK;
}

NvBool rmDeviceGpuLockIsOwner(NvU32 instance)
{
    return NV_TRUE;
}

/* The driver says with this that a mapping call failed, as tests make it do. */
void nvDbg_Printf(const char *file, int line, const char *function, int level, const char *format,
                  ...)
{
}

/* Not those of the driver's: they stand for whoever calls the reference counting. */
static __attribute__((__noinline__, __used__)) uint32_t lab_construct(struct real_state *state)
{
    uint32_t status =
        kbusIncreaseStaticBar1Refcount_TU102(&state->gpu, &state->bus, &state->memory, 0);

    __asm__ volatile("" : : : "memory");
    return status;
}

static __attribute__((__noinline__, __used__)) uint32_t lab_destruct(struct real_state *state)
{
    uint32_t status =
        kbusDecreaseStaticBar1Refcount_TU102(&state->gpu, &state->bus, &state->memory, NULL);

    __asm__ volatile("" : : : "memory");
    return status;
}

void mock_run(struct mock_gpu *mock, void *zeroes)
{
    struct real_state *state = zeroes;

    state->mock = mock;
    state->gpu.children.named.pDma = &state->dma;
    state->gpu.children.named.pKernelBus = &state->bus;
    state->dma.__dmaUpdateVASpace__ = dmaUpdateVASpace_GF100;
    state->bus.__kbusFlush__ = kbusFlush_GM107;
    state->bus.staticBar1DefaultKind = MOCK_DEFAULT_KIND;
    state->bus.bar1[0].pVAS = &state->vaspace;
    state->bus.bar1[0].staticBar1.startOffset = MOCK_START_OFFSET;
    state->vaspace.__nvoc_metadata_ptr = &vaspace_class;
    state->memory.pGpu = &state->gpu;
    state->memory.Size = mock->request.pages * MOCK_PAGE_BYTES;
    if (mock->request.release) {
        state->memory.staticBar1MappingRefCount = 1;
        state->memory.staticBar1MappingKind = memdescGetPteKindForGpu(&state->memory, &state->gpu);
    }

    mock_begin_update(mock, &state->gpu);
    mock->status = mock->request.release ? lab_destruct(state) : lab_construct(state);
    mock_end_update(mock);
}
