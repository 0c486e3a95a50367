/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The driver's functions of the update path, as a probe meets them: same names,
 * same nesting, same argument registers, and a compiler free to suffix the
 * update function. The update function itself is update_path.c.
 */
#define UP_UPDATE _kbusUpdateStaticBar1VAMapping_TU102
#define UP_INCREASE kbusIncreaseStaticBar1Refcount_TU102
#define UP_DECREASE kbusDecreaseStaticBar1Refcount_TU102
#define UP_UPDATE_LINKAGE static __attribute__((__noinline__))
#include "mock_core.h"
#include "update_path.c"

/* Keeps a function's name and calling convention, as external functions of the driver do. */
#define DRIVER_FUNCTION __attribute__((__noinline__, __noclone__, __used__))
#define PAGE_BYTES UP_MIN_PAGE_BYTES
#define DEFAULT_KIND 0x6u
#define COMPRESSIBLE_KIND 0x8u
#define FIRST_PHYS_ADDR 0x40000000ull

static __attribute__((__always_inline__)) inline void spin(uint64_t duration_ns)
{
    uint64_t end;

    if (duration_ns == 0)
        return;
    end = mock_now_ns() + duration_ns;
    while (mock_now_ns() < end)
        __builtin_ia32_pause();
}

DRIVER_FUNCTION int kbusFlush_GM107(struct mock_gpu *gpu, void *kernel_bus, uint32_t flags);
DRIVER_FUNCTION int gvaspaceInvalidateTlb_IMPL(void *vaspace, struct mock_gpu *gpu, uint32_t type);
DRIVER_FUNCTION uint32_t dmaUpdateVASpace_GF100(
    struct mock_gpu *gpu, void *dma, void *vaspace, const struct up_memory *memory, void *pte_mem,
    uint64_t va_lo, uint64_t va_hi, uint32_t flags, const void *page_array, uint32_t overmap_mod,
    const void *compression, uint64_t surface_offset, uint32_t valid, uint32_t aperture,
    uint32_t is_volatile, uint32_t peer, uint64_t fabric_addr, uint32_t defer_invalidate,
    uint32_t sparse, uint64_t page_size);
DRIVER_FUNCTION void mmuWalkMap(struct mock_gpu *gpu, uint64_t va_lo, uint64_t va_hi);
DRIVER_FUNCTION uint32_t vidmemConstruct_IMPL(struct mock_gpu *gpu);
DRIVER_FUNCTION uint32_t vidmemDestruct_IMPL(struct mock_gpu *gpu);

DRIVER_FUNCTION int kbusFlush_GM107(struct mock_gpu *gpu, void *kernel_bus, uint32_t flags)
{
    bool barrier = flags == (UP_FLUSH_VIDEO_MEMORY | UP_FLUSH_SYSTEM_MEMORY);
    uint64_t start = mock_now_ns();

    (void)kernel_bus;
    if (!gpu->in_update) {
        gpu->truth.outside_flushes++;
        return 0;
    }
    if (!barrier) {
        gpu->truth.page_flushes++;
        return 0;
    }
    gpu->truth.barriers++;
    spin(gpu->request.barrier_ns);
    if (gpu->request.sleep_us)
        mock_sleep_us(gpu->request.sleep_us);
    gpu->truth.barrier_ns += mock_now_ns() - start;
    return 0;
}

DRIVER_FUNCTION int gvaspaceInvalidateTlb_IMPL(void *vaspace, struct mock_gpu *gpu, uint32_t type)
{
    uint64_t start = mock_now_ns();

    (void)vaspace;
    (void)type;
    if (!gpu->in_update)
        return 0;
    gpu->truth.invalidates++;
    spin(gpu->request.tlb_ns);
    gpu->truth.tlb_ns += mock_now_ns() - start;
    return 0;
}

DRIVER_FUNCTION void mmuWalkMap(struct mock_gpu *gpu, uint64_t va_lo, uint64_t va_hi)
{
    uint64_t pages = (va_hi + 1 - va_lo) / PAGE_BYTES;
    uint64_t start = mock_now_ns();

    spin(pages * gpu->request.pte_ns);
    gpu->truth.pte_ns += mock_now_ns() - start;
    /* as in the driver: each page-table write ends in a flush of its own */
    kbusFlush_GM107(gpu, &gpu->bar1, UP_FLUSH_VIDEO_MEMORY);
}

DRIVER_FUNCTION uint32_t dmaUpdateVASpace_GF100(
    struct mock_gpu *gpu, void *dma, void *vaspace, const struct up_memory *memory, void *pte_mem,
    uint64_t va_lo, uint64_t va_hi, uint32_t flags, const void *page_array, uint32_t overmap_mod,
    const void *compression, uint64_t surface_offset, uint32_t valid, uint32_t aperture,
    uint32_t is_volatile, uint32_t peer, uint64_t fabric_addr, uint32_t defer_invalidate,
    uint32_t sparse, uint64_t page_size)
{
    gpu->truth.maps++;
    gpu->truth.bytes += va_hi + 1 - va_lo;
    if (va_lo != gpu->next_va)
        gpu->truth.runs++;
    gpu->next_va = va_hi + 1;

    mmuWalkMap(gpu, va_lo, va_hi);
    if (!defer_invalidate) {
        kbusFlush_GM107(gpu, dma, UP_FLUSH_VIDEO_MEMORY | UP_FLUSH_SYSTEM_MEMORY);
        gvaspaceInvalidateTlb_IMPL(vaspace, gpu, UP_PTE_DOWNGRADE);
    }
    return UP_OK;
}

uint64_t up_host_phys_addr(const struct up_memory *memory, uint64_t offset_bytes)
{
    const struct mock_gpu *gpu = memory->host;
    uint64_t page = offset_bytes / PAGE_BYTES;
    uint64_t run = page / gpu->request.run_pages;
    uint64_t within = page % gpu->request.run_pages;

    /* runs lie two run lengths apart, so that they never touch */
    return FIRST_PHYS_ADDR + (2 * run * gpu->request.run_pages + within) * PAGE_BYTES;
}

uint32_t up_host_map(struct up_bar1 *bar1, const struct up_memory *memory,
                     const struct up_mapping *mapping)
{
    return dmaUpdateVASpace_GF100(bar1->host, bar1, bar1, memory, 0, mapping->va_lo,
                                  mapping->va_hi, 0, mapping, 0, 0, 0, 1, 2, 0, 0, 0,
                                  mapping->defer_invalidate, 0, mapping->page_bytes);
}

void up_host_flush(struct up_bar1 *bar1, uint32_t flags)
{
    kbusFlush_GM107(bar1->host, bar1, flags);
}

void up_host_invalidate(struct up_bar1 *bar1, enum up_invalidate type)
{
    gvaspaceInvalidateTlb_IMPL(bar1, bar1->host, type);
}

/* As the driver's, these two have more to do after the call, so that it is no tail call. */
DRIVER_FUNCTION uint32_t vidmemConstruct_IMPL(struct mock_gpu *gpu)
{
    uint32_t status = kbusIncreaseStaticBar1Refcount_TU102(&gpu->bar1, &gpu->memory, 0);

    __asm__ volatile("" : : : "memory");
    return status;
}

DRIVER_FUNCTION uint32_t vidmemDestruct_IMPL(struct mock_gpu *gpu)
{
    uint32_t status = kbusDecreaseStaticBar1Refcount_TU102(&gpu->bar1, &gpu->memory);

    __asm__ volatile("" : : : "memory");
    return status;
}

void mock_run(struct mock_gpu *gpu)
{
    uint64_t outside;
    uint64_t start;

    gpu->bar1.start_offset = 0x20000000ull;
    gpu->bar1.default_kind = DEFAULT_KIND;
    gpu->bar1.host = gpu;
    gpu->memory.size_bytes = gpu->request.pages * PAGE_BYTES;
    gpu->memory.page_bytes = PAGE_BYTES;
    gpu->memory.kind = COMPRESSIBLE_KIND;
    gpu->memory.host = gpu;

    for (outside = 0; outside < gpu->request.outside_calls; outside++) {
        kbusFlush_GM107(gpu, &gpu->bar1, UP_FLUSH_VIDEO_MEMORY | UP_FLUSH_SYSTEM_MEMORY);
        gvaspaceInvalidateTlb_IMPL(&gpu->bar1, gpu, UP_PTE_DOWNGRADE);
    }

    gpu->in_update = 1;
    gpu->truth.updates++;
    start = mock_now_ns();
    if (gpu->request.release) {
        gpu->memory.mapping_refcount = 1;
        gpu->memory.mapping_kind = gpu->memory.kind;
        gpu->status = vidmemDestruct_IMPL(gpu);
    } else {
        gpu->status = vidmemConstruct_IMPL(gpu);
    }
    gpu->truth.update_ns = mock_now_ns() - start;
    gpu->in_update = 0;
}
