/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The update path of update_path.c as a probe meets the driver's: same names,
 * same nesting, same argument registers, and a compiler free to suffix the
 * update function.
 */
#define UP_UPDATE _kbusUpdateStaticBar1VAMapping_TU102
#define UP_INCREASE kbusIncreaseStaticBar1Refcount_TU102
#define UP_DECREASE kbusDecreaseStaticBar1Refcount_TU102
#define UP_UPDATE_LINKAGE static __attribute__((__noinline__))
#include "mock_core.h"
#include "update_path.c"
#include "mock_path.c"

struct mock_state {
    struct up_bar1 bar1;
    struct up_memory memory;
};
const uint64_t mock_state_bytes = sizeof(struct mock_state);

struct mock_gpu *mock_of(void *driver_gpu)
{
    return driver_gpu;
}

DRIVER_FUNCTION uint32_t vidmemConstruct_IMPL(struct mock_state *state);
DRIVER_FUNCTION uint32_t vidmemDestruct_IMPL(struct mock_state *state);

uint64_t up_host_phys_addr(const struct up_memory *memory, uint64_t offset_bytes)
{
    return mock_phys_addr(memory->host, offset_bytes);
}

uint32_t up_host_map(struct up_bar1 *bar1, const struct up_memory *memory,
                     const struct up_mapping *mapping)
{
    return dmaUpdateVASpace_GF100((uintptr_t)bar1->host, (uintptr_t)bar1, (uintptr_t)bar1,
                                  (uintptr_t)memory, 0, mapping->va_lo, mapping->va_hi, 0,
                                  (uintptr_t)mapping, 0, 0, 0, 1, 2, 0, 0, 0,
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
DRIVER_FUNCTION uint32_t vidmemConstruct_IMPL(struct mock_state *state)
{
    uint32_t status = kbusIncreaseStaticBar1Refcount_TU102(&state->bar1, &state->memory, 0);

    __asm__ volatile("" : : : "memory");
    return status;
}

DRIVER_FUNCTION uint32_t vidmemDestruct_IMPL(struct mock_state *state)
{
    uint32_t status = kbusDecreaseStaticBar1Refcount_TU102(&state->bar1, &state->memory);

    __asm__ volatile("" : : : "memory");
    return status;
}

void mock_run(struct mock_gpu *gpu, void *zeroes)
{
    struct mock_state *state = zeroes;

    state->bar1.start_offset = MOCK_START_OFFSET;
    state->bar1.default_kind = MOCK_DEFAULT_KIND;
    state->bar1.host = gpu;
    state->memory.size_bytes = gpu->request.pages * MOCK_PAGE_BYTES;
    state->memory.page_bytes = MOCK_PAGE_BYTES;
    state->memory.kind = gpu->request.localized ? MOCK_DEFAULT_KIND : MOCK_COMPRESSIBLE_KIND;
    state->memory.localized = gpu->request.localized;
    state->memory.contiguous = gpu->request.contiguous;
    state->memory.host = gpu;
    if (gpu->request.release) {
        state->memory.mapping_refcount = 1;
        state->memory.mapping_kind = state->memory.kind;
    }

    mock_begin_update(gpu, gpu);
    gpu->status = gpu->request.release ? vidmemDestruct_IMPL(state) : vidmemConstruct_IMPL(state);
    mock_end_update(gpu);
}
