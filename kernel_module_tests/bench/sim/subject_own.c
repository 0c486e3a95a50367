/* SPDX-License-Identifier: MIT */
/* Adapter: this project's own update path (../../update_path) as the subject. */
#include "mmu.h"
#include "subject.h"

#include UPDATE_PATH_SOURCE

#define OTHER_KIND 0x9u
#define OTHER_FLAGS 0x1u

static const struct memory_case *subject;
static struct up_bar1 bar1;
static struct up_memory memory;

void subject_setup(const struct memory_case *memory_case)
{
    uint64_t page_bytes = memory_case->page_slots << MMU_SLOT_SHIFT;

    subject = memory_case;
    bar1 = (struct up_bar1){
        .start_offset = mmu_start_slots() << MMU_SLOT_SHIFT,
        .default_kind = MMU_KIND_DEFAULT,
    };
    memory = (struct up_memory){
        .size_bytes = memory_case->n_pages * page_bytes,
        .page_bytes = page_bytes,
        .kind = memory_case->kind,
        .contiguous = memory_case->contiguous,
        .localized = memory_case->localized,
    };
}

uint32_t subject_operate(char operation)
{
    uint32_t status;

    switch (operation) {
    case 'c':
    case 'r':
        return up_update(&bar1, &memory, 0, operation == 'r');
    case '+':
        return up_increase(&bar1, &memory, 0);
    case 'f':
        return up_increase(&bar1, &memory, OTHER_FLAGS);
    case 'k':
        memory.kind ^= OTHER_KIND;
        status = up_increase(&bar1, &memory, 0);
        memory.kind ^= OTHER_KIND;
        return status;
    case '-':
    case 'd':
        return up_decrease(&bar1, &memory);
    default:
        return UINT32_MAX;
    }
}

uint64_t up_host_phys_addr(const struct up_memory *asked, uint64_t offset_bytes)
{
    uint64_t page = offset_bytes / asked->page_bytes;

    if (page >= subject->n_pages) {
        mmu_found(MMU_PAGE_READ_PAST_END);
        /* The unkindest answer: the memory seems to go on, for one page. */
        return page > subject->n_pages ? 0
                                       : (subject->page_slot[page - 1] << MMU_SLOT_SHIFT) +
                                             asked->page_bytes;
    }
    return (subject->page_slot[page] << MMU_SLOT_SHIFT) + offset_bytes % asked->page_bytes;
}

uint32_t up_host_map(struct up_bar1 *host_bar1, const struct up_memory *mapped,
                     const struct up_mapping *mapping)
{
    struct mmu_map_request request = {
        .va_lo = mapping->va_lo,
        .va_hi = mapping->va_hi,
        .phys = &mapping->phys_addr,
        .phys_count = 1,
        .page_bytes = mapping->page_bytes,
        .kind = mapping->kind,
        .localized = mapping->localized,
        .remap = true,
        .defer = mapping->defer_invalidate,
    };

    if (host_bar1 != &bar1 || mapped != &memory)
        mmu_found(MMU_WRONG_MEMORY);
    return mmu_map(&request);
}

void up_host_flush(struct up_bar1 *host_bar1, uint32_t flags)
{
    (void)host_bar1;
    mmu_flush(flags);
}

void up_host_invalidate(struct up_bar1 *host_bar1, enum up_invalidate type)
{
    (void)host_bar1;
    mmu_invalidate(type == UP_PTE_DOWNGRADE);
}
