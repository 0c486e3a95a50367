/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The static BAR1 update path in miniature: a function of this project's own
 * with the interface of the driver's _kbusUpdateStaticBar1VAMapping_TU102 and
 * of the reference counting around it. It exists so that the bench and the
 * probe can be tested where no driver source is at hand.
 *
 * Plain C99 for user space and for kernel modules alike. README.md says what
 * the host has to provide and which macros choose the flavour.
 */
#ifndef UPDATE_PATH_H
#define UPDATE_PATH_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
#endif

/* Status codes carry the driver's values (nvstatuscodes.h), so that what an
 * injected fault returns reads the same on both. */
#define UP_OK                   0x00000000u
#define UP_ERR_IN_USE           0x00000017u
#define UP_ERR_INVALID_ARGUMENT 0x0000001Fu
#define UP_ERR_INVALID_STATE    0x00000040u
#define UP_ERR_NOT_SUPPORTED    0x00000056u

/* Flags of a flush, with the driver's values (BUS_FLUSH_*). */
#define UP_FLUSH_VIDEO_MEMORY  0x1u
#define UP_FLUSH_SYSTEM_MEMORY 0x2u

/* Static BAR1 maps pages of this size and larger only. */
#define UP_MIN_PAGE_BYTES 0x200000ull

/* What a TLB invalidate is for: permissions or mappings grew (entries that
 * are cached may stay), or something was taken away or changed (they may not). */
enum up_invalidate {
    UP_PTE_UPGRADE = 0,
    UP_PTE_DOWNGRADE = 1,
};

/* The BAR1 address space: a physical address lies at itself plus start_offset. */
struct up_bar1 {
    uint64_t start_offset;
    uint32_t default_kind; /* PTE kind that everything is mapped with at boot */
    void *host;            /* the host's own state */
};

/* A memory descriptor: size_bytes of video memory in pages of page_bytes. */
struct up_memory {
    uint64_t size_bytes;
    uint64_t page_bytes;
    uint32_t kind;
    bool contiguous;
    bool localized;
    uint32_t mapping_refcount; /* references to the static BAR1 mapping */
    uint32_t mapping_kind;     /* kind of the first reference */
    uint32_t mapping_flags;    /* map flags that every reference must share */
    void *host;                /* the host's own state, e.g. the page list */
};

/* One mapping call: make [va_lo, va_hi] map phys_addr onwards. */
struct up_mapping {
    uint64_t va_lo;
    uint64_t va_hi; /* inclusive */
    uint64_t phys_addr;
    uint64_t page_bytes;
    uint32_t kind;
    bool localized;
    bool defer_invalidate; /* leave flush and invalidate to the caller */
};

/*
 * Provided by the host.
 *
 * up_host_phys_addr: as memdescGetPhysAddr; offset_bytes must lie inside the
 *   memory.
 * up_host_map: as dmaUpdateVASpace_HAL; writes the PTEs and, unless
 *   defer_invalidate is set, flushes with both flags and invalidates with
 *   UP_PTE_DOWNGRADE before it returns, also when it failed.
 * up_host_flush: as kbusFlush_HAL. flags: UP_FLUSH_*.
 * up_host_invalidate: as vaspaceInvalidateTlb; all addresses of the space.
 */
uint64_t up_host_phys_addr(const struct up_memory *memory, uint64_t offset_bytes);
uint32_t up_host_map(struct up_bar1 *bar1, const struct up_memory *memory,
                     const struct up_mapping *mapping);
void up_host_flush(struct up_bar1 *bar1, uint32_t flags);
void up_host_invalidate(struct up_bar1 *bar1, enum up_invalidate type);

/*
 * The update path itself. Each returns UP_OK or an UP_ERR_* / host status.
 *
 * up_update:   maps the memory into static BAR1 with its own attributes, or
 *              with the default ones when release is set.
 * up_increase: takes a reference on the mapping; UP_ERR_IN_USE when the
 *              memory is mapped with another kind or other flags.
 * up_decrease: drops a reference; the last one restores the default mapping.
 */
#ifndef UP_UPDATE
#define UP_UPDATE up_update
#endif
#ifndef UP_INCREASE
#define UP_INCREASE up_increase
#endif
#ifndef UP_DECREASE
#define UP_DECREASE up_decrease
#endif
#ifndef UP_UPDATE_LINKAGE
#define UP_UPDATE_LINKAGE
#endif

UP_UPDATE_LINKAGE uint32_t UP_UPDATE(struct up_bar1 *bar1, struct up_memory *memory,
                                     uint32_t map_flags, bool release);
uint32_t UP_INCREASE(struct up_bar1 *bar1, struct up_memory *memory, uint32_t map_flags);
uint32_t UP_DECREASE(struct up_bar1 *bar1, struct up_memory *memory);

#endif
