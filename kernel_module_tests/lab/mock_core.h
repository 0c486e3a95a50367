/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Between the halves of the mock driver: the core has the driver's functions
 * and may be compiled outside Kbuild, as the driver's own core is; the module
 * around it talks to the kernel.
 *
 * There are two cores. mock_core.c runs the project's own update path;
 * real_core.c runs the object that a driver tree's own source gives. Both take
 * the functions that probes attach to from mock_path.c.
 */
#ifndef MOCK_CORE_H
#define MOCK_CORE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
#endif

#define MOCK_PAGE_BYTES 0x200000ull
#define MOCK_START_OFFSET 0x20000000ull /* of static BAR1 */
#define MOCK_DEFAULT_KIND 0x6u
#define MOCK_COMPRESSIBLE_KIND 0x8u
#define MOCK_BARRIER_FLAGS 3u /* flush of video and system memory */
#define MOCK_PAGE_FLUSH_FLAGS 1u
#define MOCK_PTE_DOWNGRADE 1u

/* What a user asks for: one write of this structure to the file "run". */
struct mock_request {
    uint64_t pages;         /* 2 MiB each */
    uint64_t run_pages;     /* pages to a physically contiguous run */
    uint64_t pte_ns;        /* a page's table write takes this long */
    uint64_t barrier_ns;    /* the loop's own barrier */
    uint64_t tlb_ns;        /* the TLB invalidate */
    uint64_t sleep_us;      /* sleep in every barrier */
    uint64_t outside_calls; /* flushes and invalidates by others, before the update */
    uint64_t release;       /* 0: take a reference; 1: drop one that was taken */
    uint64_t localized;     /* 0: memory of a compressible kind; 1: localized, default kind */
    uint64_t contiguous;    /* 1: the memory descriptor says that it is one run */
};

/* What the mock itself counted, whatever a probe saw. */
struct mock_truth {
    uint64_t updates;
    uint64_t maps;
    uint64_t runs;
    uint64_t bytes;
    uint64_t barriers;
    uint64_t invalidates;
    uint64_t page_flushes;
    uint64_t outside_flushes;
    uint64_t update_ns;
    uint64_t pte_ns;
    uint64_t barrier_ns;
    uint64_t tlb_ns;
};

struct mock_gpu {
    struct mock_request request;
    struct mock_truth truth;
    uint64_t next_va;
    uint32_t in_update;
    uint32_t status; /* of the update call */
};

/* Provided by the core. mock_run runs a request and fills in truth and status;
 * state is mock_state_bytes of zeroes. mock_of finds a run by the GPU pointer
 * that the driver's functions hand on. */
extern const uint64_t mock_state_bytes;
void mock_run(struct mock_gpu *gpu, void *state);
struct mock_gpu *mock_of(void *driver_gpu);

/* Provided by mock_path.c. */
uint64_t mock_phys_addr(const struct mock_gpu *gpu, uint64_t offset_bytes);
void mock_begin_update(struct mock_gpu *gpu, void *driver_gpu);
void mock_end_update(struct mock_gpu *gpu);

/* Provided by the module. */
uint64_t mock_now_ns(void);
void mock_sleep_us(uint64_t duration_us);
uint64_t mock_reached(const char *function);

#endif
