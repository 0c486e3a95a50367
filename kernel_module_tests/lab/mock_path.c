/* SPDX-License-Identifier: Dual MIT/GPL */
#include "mock_path.h"

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

DRIVER_FUNCTION int kbusFlush_GM107(void *driver_gpu, void *kernel_bus, uint32_t flags)
{
    struct mock_gpu *gpu = mock_of(driver_gpu);
    uint64_t start = mock_now_ns();

    (void)kernel_bus;
    if (!gpu->in_update) {
        gpu->truth.outside_flushes++;
        return 0;
    }
    if (flags != MOCK_BARRIER_FLAGS) {
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

DRIVER_FUNCTION int gvaspaceInvalidateTlb_IMPL(void *vaspace, void *driver_gpu, uint32_t type)
{
    struct mock_gpu *gpu = mock_of(driver_gpu);
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

DRIVER_FUNCTION void mmuWalkMap(void *driver_gpu, uint64_t va_lo, uint64_t va_hi)
{
    struct mock_gpu *gpu = mock_of(driver_gpu);
    uint64_t pages = (va_hi + 1 - va_lo) / MOCK_PAGE_BYTES;
    uint64_t start = mock_now_ns();

    spin(pages * gpu->request.pte_ns);
    gpu->truth.pte_ns += mock_now_ns() - start;
    /* as in the driver: each page-table write ends in a flush of its own */
    kbusFlush_GM107(driver_gpu, 0, MOCK_PAGE_FLUSH_FLAGS);
}

DRIVER_FUNCTION uint32_t dmaUpdateVASpace_GF100(DMA_PARAMETERS)
{
    void *driver_gpu = (void *)(uintptr_t)pGpu;
    struct mock_gpu *gpu = mock_of(driver_gpu);

    gpu->truth.maps++;
    gpu->truth.bytes += vAddrLimit + 1 - vAddr;
    if (vAddr != gpu->next_va)
        gpu->truth.runs++;
    gpu->next_va = vAddrLimit + 1;

    mmuWalkMap(driver_gpu, vAddr, vAddrLimit);
    /* 32 bits in the driver: what lies above them is nobody's */
    if (!(uint32_t)deferInvalidate) {
        kbusFlush_GM107(driver_gpu, 0, MOCK_BARRIER_FLAGS);
        gvaspaceInvalidateTlb_IMPL((void *)(uintptr_t)pVAS, driver_gpu, MOCK_PTE_DOWNGRADE);
    }
    return 0;
}

uint64_t mock_phys_addr(const struct mock_gpu *gpu, uint64_t offset_bytes)
{
    uint64_t run_pages = gpu->request.contiguous ? gpu->request.pages : gpu->request.run_pages;
    uint64_t page = offset_bytes / MOCK_PAGE_BYTES;

    /* runs lie two run lengths apart, so that they never touch */
    return FIRST_PHYS_ADDR +
           (2 * (page / run_pages) * run_pages + page % run_pages) * MOCK_PAGE_BYTES;
}

void mock_begin_update(struct mock_gpu *gpu, void *driver_gpu)
{
    uint64_t outside;

    for (outside = 0; outside < gpu->request.outside_calls; outside++) {
        kbusFlush_GM107(driver_gpu, 0, MOCK_BARRIER_FLAGS);
        gvaspaceInvalidateTlb_IMPL(0, driver_gpu, MOCK_PTE_DOWNGRADE);
    }
    gpu->in_update = 1;
    gpu->truth.updates++;
    gpu->truth.update_ns -= mock_now_ns();
}

void mock_end_update(struct mock_gpu *gpu)
{
    gpu->truth.update_ns += mock_now_ns();
    gpu->in_update = 0;
}
