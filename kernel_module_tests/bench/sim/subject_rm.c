/* SPDX-License-Identifier: MIT */
/*
 * Adapter: the functions cut out of a driver tree as the subject. The generated
 * EXTRACTED_SOURCE holds them and defines how to call them:
 *
 *   TREE_UPDATE(pGpu, pKernelBus, pMemDesc, bRelease)
 *   TREE_INCREASE(pGpu, pKernelBus, pMemDesc, flags)     where there is one
 *   TREE_DECREASE(pGpu, pKernelBus, pMemDesc, pMemArea)  where there is one
 */
#include "rm_shim.h"
#include "subject.h"

#include EXTRACTED_SOURCE

#define OTHER_KIND 0x9u
#define OTHER_FLAGS 0x1u
#define LOCALIZED_BIT (1ull << 39)

static OBJGPU gpu;
static OBJVASPACE vas;
static KernelBus bus;
static MEMORY_DESCRIPTOR memory;

MEMORY_DESCRIPTOR *shim_memory(void)
{
    return &memory;
}

void subject_setup(const struct memory_case *memory_case)
{
    NvU64 pageSize = memory_case->page_slots << MMU_SLOT_SHIFT;

    vas.addressTranslation = AT_GPU;
    bus.staticBar1DefaultKind = MMU_KIND_DEFAULT;
    bus.bar1[0].pVAS = &vas;
    bus.bar1[0].bStaticBar1Enabled = NV_TRUE;
    bus.bar1[0].staticBar1.startOffset = mmu_start_slots() << MMU_SLOT_SHIFT;
    bus.bar1[0].staticBar1.size = 1ull << 46;
    gpu.pKernelBus = &bus;
    memory = (MEMORY_DESCRIPTOR){
        .localizedMask = LOCALIZED_BIT,
        .shimSize = memory_case->n_pages * pageSize,
        .shimPageSize = pageSize,
        .shimKind = memory_case->kind,
        .shimContiguous = memory_case->contiguous,
        .shimLocalized = memory_case->localized,
        .shimPages = memory_case->n_pages,
        .pShimPageSlot = memory_case->page_slot,
    };
}

uint32_t subject_operate(char operation)
{
#ifdef TREE_INCREASE
    MemoryRange range = {.start = bus.bar1[0].staticBar1.startOffset, .size = 1};
    MemoryArea area = {.pRanges = &range, .numRanges = 1};
    uint32_t status;
#endif

    switch (operation) {
    case 'c':
    case 'r':
        return TREE_UPDATE(&gpu, &bus, &memory, operation == 'r');
#ifdef TREE_INCREASE
    case '+':
        return TREE_INCREASE(&gpu, &bus, &memory, BUS_MAP_FB_FLAGS_NONE);
    case 'f':
        return TREE_INCREASE(&gpu, &bus, &memory, OTHER_FLAGS);
    case 'k':
        memory.shimKind ^= OTHER_KIND;
        status = TREE_INCREASE(&gpu, &bus, &memory, BUS_MAP_FB_FLAGS_NONE);
        memory.shimKind ^= OTHER_KIND;
        return status;
    case '-':
        return TREE_DECREASE(&gpu, &bus, &memory, &area);
    case 'd':
        return TREE_DECREASE(&gpu, &bus, &memory, NULL);
#endif
    default:
        return UINT32_MAX;
    }
}
