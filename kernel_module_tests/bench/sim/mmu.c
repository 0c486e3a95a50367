/* SPDX-License-Identifier: MIT */
#include "mmu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_FAULTS 16

/* A PTE packed into a word, so that states compare with ==. */
#define PTE_VALID     1ull
#define PTE_LOCALIZED 2ull
#define PTE_KIND(kind) ((uint64_t)(kind) << 8)
#define PTE_SLOT(slot) ((uint64_t)(slot) << 16)

struct fault {
    uint64_t call;
    uint32_t status;
};

static struct {
    uint64_t fb_slots;
    uint64_t start_slots;
    uint64_t n_slots;   /* of BAR1: fb_slots + start_slots */
    uint64_t *written;  /* what the driver wrote last */
    uint64_t *visible;  /* what the walker reads */
    uint64_t *tlb;      /* what accesses use */
    uint64_t *touched;  /* slots whose three states may differ */
    bool *is_touched;
    uint64_t n_touched;
    struct mmu_call *calls;
    uint64_t n_calls;
    uint64_t max_calls;
    struct fault faults[MAX_FAULTS];
    unsigned n_faults;
    uint64_t calls_since_reset;
    struct mmu_counts counts;
} mmu;

static void *grown(void *old, uint64_t count, uint64_t size)
{
    void *grown_to = realloc(old, count * size);

    if (grown_to == NULL) {
        fputs("bench: out of memory\n", stderr);
        exit(2);
    }
    return grown_to;
}

static uint64_t boot_pte(uint64_t slot)
{
    if (slot < mmu.start_slots)
        return 0;
    return PTE_VALID | PTE_KIND(MMU_KIND_DEFAULT) | PTE_SLOT(slot - mmu.start_slots);
}

void mmu_reset(uint64_t fb_slots, uint64_t start_slots)
{
    uint64_t n_slots = fb_slots + start_slots;

    if (n_slots != mmu.n_slots) {
        mmu.written = grown(mmu.written, n_slots, sizeof(*mmu.written));
        mmu.visible = grown(mmu.visible, n_slots, sizeof(*mmu.visible));
        mmu.tlb = grown(mmu.tlb, n_slots, sizeof(*mmu.tlb));
        mmu.touched = grown(mmu.touched, n_slots, sizeof(*mmu.touched));
        mmu.is_touched = grown(mmu.is_touched, n_slots, sizeof(*mmu.is_touched));
    }
    mmu.fb_slots = fb_slots;
    mmu.start_slots = start_slots;
    mmu.n_slots = n_slots;
    mmu.n_touched = 0;
    mmu.n_faults = 0;
    mmu.calls_since_reset = 0;
    for (uint64_t slot = 0; slot < n_slots; slot++) {
        mmu.written[slot] = mmu.visible[slot] = mmu.tlb[slot] = boot_pte(slot);
        mmu.is_touched[slot] = false;
    }
    mmu_begin_operation();
}

void mmu_fail_call(uint64_t call, uint32_t status)
{
    if (mmu.n_faults == MAX_FAULTS) {
        fputs("bench: too many faults in one case\n", stderr);
        exit(2);
    }
    mmu.faults[mmu.n_faults++] = (struct fault){mmu.calls_since_reset + call, status};
}

void mmu_begin_operation(void)
{
    mmu.n_calls = 0;
    mmu.counts = (struct mmu_counts){0};
}

static uint32_t injected_status(void)
{
    for (unsigned i = 0; i < mmu.n_faults; i++)
        if (mmu.faults[i].call == mmu.calls_since_reset)
            return mmu.faults[i].status;
    return 0;
}

static void write_pte(uint64_t slot, uint64_t pte)
{
    mmu.written[slot] = pte;
    if (!mmu.is_touched[slot]) {
        mmu.is_touched[slot] = true;
        mmu.touched[mmu.n_touched++] = slot;
    }
}

static void log_call(uint64_t slot, uint64_t n_slots, uint32_t status)
{
    if (mmu.n_calls == mmu.max_calls) {
        mmu.max_calls = mmu.max_calls ? 2 * mmu.max_calls : 1024;
        mmu.calls = grown(mmu.calls, mmu.max_calls, sizeof(*mmu.calls));
    }
    mmu.calls[mmu.n_calls++] = (struct mmu_call){slot, n_slots, status};
}

/* The physical slot that the i'th slot of the request maps. */
static uint64_t requested_slot(const struct mmu_map_request *request, uint64_t i, uint64_t slot)
{
    if (request->phys == NULL)
        return mmu.written[slot] >> 16;
    if (request->phys_count == 1)
        return (request->phys[0] >> MMU_SLOT_SHIFT) + i;
    return request->phys[i * MMU_SLOT_ENTRIES] >> MMU_SLOT_SHIFT;
}

static void write_range(const struct mmu_map_request *request, uint64_t first, uint64_t n_slots,
                        bool unmap)
{
    for (uint64_t i = 0; i < n_slots; i++) {
        uint64_t slot = first + i;
        uint64_t phys_slot = requested_slot(request, i, slot);
        bool was_valid = mmu.written[slot] & PTE_VALID;

        if (was_valid && request->phys != NULL && !request->remap)
            mmu_found(MMU_REMAP_REFUSED);
        /* A read-back changes the kind only: what was not valid does not become so. */
        if (request->phys == NULL && !was_valid)
            continue;
        write_pte(slot, unmap ? 0
                              : PTE_VALID | (request->localized ? PTE_LOCALIZED : 0) |
                                    PTE_KIND(request->kind) | PTE_SLOT(phys_slot));
    }
}

static void sync_tables(uint32_t flags)
{
    if (flags != (MMU_FLUSH_VIDEO | MMU_FLUSH_SYSTEM))
        return;
    for (uint64_t i = 0; i < mmu.n_touched; i++)
        mmu.visible[mmu.touched[i]] = mmu.written[mmu.touched[i]];
}

static void refill_tlb(void)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < mmu.n_touched; i++) {
        uint64_t slot = mmu.touched[i];

        mmu.tlb[slot] = mmu.visible[slot];
        if (mmu.visible[slot] != mmu.written[slot])
            mmu.touched[kept++] = slot;
        else
            mmu.is_touched[slot] = false;
    }
    mmu.n_touched = kept;
}

uint32_t mmu_map(const struct mmu_map_request *request)
{
    uint64_t slot = request->va_lo >> MMU_SLOT_SHIFT;
    uint64_t n_slots = (request->va_hi - request->va_lo + 1) >> MMU_SLOT_SHIFT;
    uint64_t page_slots = request->page_bytes >> MMU_SLOT_SHIFT;
    uint32_t status;

    mmu.counts.maps++;
    mmu.counts.read_backs += request->phys == NULL;
    mmu.calls_since_reset++;
    status = injected_status();

    if (request->va_lo % request->page_bytes != mmu.start_slots * MMU_SLOT_BYTES % request->page_bytes ||
        (request->va_hi + 1 - request->va_lo) % request->page_bytes != 0 ||
        request->va_hi < request->va_lo || page_slots == 0) {
        mmu_found(MMU_MISALIGNED);
        status = 0x1F;
    } else if (slot < mmu.start_slots || slot >= mmu.n_slots || n_slots > mmu.n_slots - slot) {
        mmu_found(MMU_OUTSIDE_BAR1);
        status = 0x1F;
    } else if (request->phys != NULL && request->phys_count != 1 &&
               request->phys_count != n_slots * MMU_SLOT_ENTRIES) {
        mmu_found(MMU_BAD_PAGE_ARRAY);
        status = 0x1F;
    } else {
        mmu.counts.pte_writes += n_slots / page_slots;
        write_range(request, slot, n_slots, status != 0);
    }
    log_call(slot, n_slots, status);

    if (!request->defer) {
        mmu.counts.synced_maps++;
        sync_tables(MMU_FLUSH_VIDEO | MMU_FLUSH_SYSTEM);
        refill_tlb();
    }
    return status;
}

void mmu_flush(uint32_t flags)
{
    if (flags == (MMU_FLUSH_VIDEO | MMU_FLUSH_SYSTEM))
        mmu.counts.full_flushes++;
    else
        mmu.counts.partial_flushes++;
    sync_tables(flags);
}

void mmu_invalidate(bool downgrade)
{
    if (!downgrade) {
        mmu.counts.upgrades++;
        return;
    }
    mmu.counts.downgrades++;
    refill_tlb();
}

void mmu_found(enum mmu_finding finding)
{
    mmu.counts.findings |= finding;
}

uint64_t mmu_start_slots(void)
{
    return mmu.start_slots;
}

const struct mmu_counts *mmu_counts(void)
{
    return &mmu.counts;
}

void mmu_print_calls(void)
{
    for (uint64_t i = 0; i < mmu.n_calls; i++)
        printf("call %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", mmu.calls[i].slot,
               mmu.calls[i].n_slots, mmu.calls[i].status);
}

/* Prints [first, end), whose PTEs differ from boot in the same way. */
static void print_ptes(uint64_t first, uint64_t end)
{
    uint64_t pte = mmu.written[first];

    printf("pte %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d\n", first, end - first,
           pte >> 16, pte >> 8 & 0xFF, (pte & PTE_LOCALIZED) != 0, (pte & PTE_VALID) != 0);
}

static bool continues(uint64_t previous, uint64_t pte)
{
    return pte == (previous & PTE_VALID ? previous + PTE_SLOT(1) : previous);
}

void mmu_print_table(void)
{
    uint64_t slot = 0;

    while (slot < mmu.n_slots) {
        uint64_t first = slot;

        if (mmu.written[slot] != mmu.visible[slot] || mmu.written[slot] != mmu.tlb[slot])
            printf("stale %" PRIu64 "\n", slot);
        if (mmu.written[slot] == boot_pte(slot)) {
            slot++;
            continue;
        }
        do {
            slot++;
        } while (slot < mmu.n_slots && continues(mmu.written[slot - 1], mmu.written[slot]) &&
                 mmu.written[slot] != boot_pte(slot) &&
                 mmu.written[slot] == mmu.visible[slot] && mmu.written[slot] == mmu.tlb[slot]);
        print_ptes(first, slot);
    }
}
