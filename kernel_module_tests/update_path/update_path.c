/* SPDX-License-Identifier: Dual MIT/GPL */
#include "update_path.h"

/* The flavour, fixed when this file is compiled; all 0 is stock. */
#ifndef UP_COALESCE
#define UP_COALESCE 0 /* A: one mapping call for each physically contiguous run */
#endif
#ifndef UP_DEFER_SYNC
#define UP_DEFER_SYNC 0 /* B: one flush and one invalidate for all calls */
#endif
#ifndef UP_UPDATE_ONCE
#define UP_UPDATE_ONCE 0 /* C: no update while references are held */
#endif

/* Bytes from offset on that one mapping call covers. */
static uint64_t run_bytes(const struct up_memory *memory, uint64_t offset, uint64_t phys_addr)
{
    uint64_t run = memory->contiguous ? memory->size_bytes : memory->page_bytes;

    if (!UP_COALESCE)
        return run;

    /* The bound comes first: past the end there is no page to look at. */
    while (offset + run < memory->size_bytes &&
           up_host_phys_addr(memory, offset + run) == phys_addr + run)
        run += memory->page_bytes;

    return run;
}

/*
 * Callers take NOT_SUPPORTED for "no static mapping for this memory", which is
 * no failure to them; a mapping call that failed must not look like that.
 */
static uint32_t unaliased(uint32_t status)
{
    return status == UP_ERR_NOT_SUPPORTED ? UP_ERR_INVALID_STATE : status;
}

UP_UPDATE_LINKAGE uint32_t UP_UPDATE(struct up_bar1 *bar1, struct up_memory *memory,
                                     uint32_t map_flags, bool release)
{
    struct up_mapping mapping = {
        .page_bytes = memory->page_bytes,
        .kind = release ? bar1->default_kind : memory->kind,
        .localized = release ? false : memory->localized,
        .defer_invalidate = UP_DEFER_SYNC,
    };
    uint32_t status = UP_OK;
    uint64_t offset;
    uint64_t run;

    (void)map_flags; /* as in the driver: carried, not used yet */

    if (memory->size_bytes % memory->page_bytes != 0 ||
        up_host_phys_addr(memory, 0) % memory->page_bytes != 0)
        return UP_ERR_INVALID_ARGUMENT;
    if (!release && memory->page_bytes < UP_MIN_PAGE_BYTES)
        return UP_ERR_NOT_SUPPORTED;

    for (offset = 0; offset < memory->size_bytes; offset += run) {
        uint32_t call_status;

        mapping.phys_addr = up_host_phys_addr(memory, offset);
        run = run_bytes(memory, offset, mapping.phys_addr);
        mapping.va_lo = mapping.phys_addr + bar1->start_offset;
        mapping.va_hi = mapping.va_lo + run - 1;

        call_status = up_host_map(bar1, memory, &mapping);

        if (!UP_DEFER_SYNC) {
            status = call_status; /* stock keeps the last status only */
            continue;
        }
        if (status == UP_OK)
            status = call_status;
        /*
         * A commit that failed is given up by its caller: pages not yet
         * touched keep the default mapping. A release cannot be given up, the
         * memory goes back to the allocator whatever it returns: go on, so
         * that every page that can be restored is.
         */
        if (call_status != UP_OK && !release)
            break;
    }

    if (UP_DEFER_SYNC) {
        up_host_flush(bar1, UP_FLUSH_VIDEO_MEMORY | UP_FLUSH_SYSTEM_MEMORY);
        up_host_invalidate(bar1, UP_PTE_DOWNGRADE);
    }

    return unaliased(status);
}

uint32_t UP_INCREASE(struct up_bar1 *bar1, struct up_memory *memory, uint32_t map_flags)
{
    uint32_t status = UP_OK;

    if ((memory->mapping_refcount != 0 && memory->kind != memory->mapping_kind) ||
        map_flags != memory->mapping_flags)
        return UP_ERR_IN_USE;

    if ((memory->kind != bar1->default_kind || memory->localized) &&
        !(UP_UPDATE_ONCE && memory->mapping_refcount != 0))
        status = UP_UPDATE(bar1, memory, map_flags, false);

    if (status == UP_OK) {
        memory->mapping_kind = memory->kind;
        memory->mapping_refcount++;
    }

    return status;
}

uint32_t UP_DECREASE(struct up_bar1 *bar1, struct up_memory *memory)
{
    if (memory->mapping_refcount == 0)
        return UP_ERR_NOT_SUPPORTED;

    if (--memory->mapping_refcount != 0 ||
        (memory->mapping_kind == bar1->default_kind && !memory->localized))
        return UP_OK;

    return UP_UPDATE(bar1, memory, 0, true);
}
