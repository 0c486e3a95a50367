/* SPDX-License-Identifier: MIT */
/*
 * A simulated BAR1 MMU that is as unkind as hardware may be:
 *
 * - a PTE write is posted: the walker sees it only after a flush with both
 *   BUS_FLUSH_VIDEO_MEMORY and BUS_FLUSH_SYSTEM_MEMORY;
 * - the TLB starts warm, keeps what it holds until an invalidate of type
 *   PTE_DOWNGRADE, and right then caches again what the walker sees at that
 *   moment, so that a flush which comes too late leaves it stale;
 * - a mapping call that fails leaves its whole range unmapped.
 *
 * Addresses are counted in slots of 2 MiB, the smallest page that static BAR1
 * maps. The slot of a virtual address is its physical slot plus start_slots.
 */
#ifndef BENCH_MMU_H
#define BENCH_MMU_H

#include <stdbool.h>
#include <stdint.h>

#define MMU_SLOT_SHIFT 21
#define MMU_SLOT_BYTES (1ull << MMU_SLOT_SHIFT)
/* Entries of a page array for one slot: the driver keeps them for every 4 KiB. */
#define MMU_SLOT_ENTRIES (MMU_SLOT_BYTES / 4096)

#define MMU_FLUSH_VIDEO  0x1u
#define MMU_FLUSH_SYSTEM 0x2u

#define MMU_KIND_DEFAULT 0x6u

/* What a subject did that no outcome may contain, whatever its arm. */
enum mmu_finding {
    MMU_PAGE_READ_PAST_END = 1 << 0, /* asked for a page beyond the memory */
    MMU_OUTSIDE_BAR1 = 1 << 1,       /* mapped addresses that BAR1 does not have */
    MMU_MISALIGNED = 1 << 2,         /* mapped a range that is not whole pages */
    MMU_REMAP_REFUSED = 1 << 3,      /* mapped over valid PTEs without asking for it */
    MMU_BAD_PAGE_ARRAY = 1 << 4,     /* page array does not fit the range */
    MMU_WRONG_MEMORY = 1 << 5,       /* mapped another descriptor, aperture or validity */
};

struct mmu_counts {
    uint64_t maps;            /* mapping calls */
    uint64_t pte_writes;      /* pages written by them */
    uint64_t read_backs;      /* mapping calls that keep the address that is there */
    uint64_t synced_maps;     /* mapping calls that flushed and invalidated themselves */
    uint64_t full_flushes;    /* flushes outside mapping calls, both flags */
    uint64_t partial_flushes; /* other flushes outside mapping calls */
    uint64_t downgrades;      /* invalidates outside mapping calls, PTE_DOWNGRADE */
    uint64_t upgrades;        /* other invalidates outside mapping calls */
    unsigned findings;        /* enum mmu_finding */
};

/* One mapping call, as logged. */
struct mmu_call {
    uint64_t slot;
    uint64_t n_slots;
    uint32_t status;
};

struct mmu_map_request {
    uint64_t va_lo;
    uint64_t va_hi;
    const uint64_t *phys; /* NULL: keep the address of the PTE that is there */
    uint64_t phys_count;  /* 1: first page, the rest follow it; else one each 4 KiB */
    uint64_t page_bytes;
    uint32_t kind;
    bool localized;
    bool remap;
    bool defer;
};

void mmu_reset(uint64_t fb_slots, uint64_t start_slots);
/* The call'th mapping call from now on (1 is the next) fails with status. */
void mmu_fail_call(uint64_t call, uint32_t status);
void mmu_begin_operation(void);

uint32_t mmu_map(const struct mmu_map_request *request);
void mmu_flush(uint32_t flags);
void mmu_invalidate(bool downgrade);
void mmu_found(enum mmu_finding finding);

uint64_t mmu_start_slots(void);
const struct mmu_counts *mmu_counts(void);
void mmu_print_calls(void);
/* Every slot that differs from the mapping at boot, and every stale one. */
void mmu_print_table(void);

#endif
