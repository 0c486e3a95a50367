/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Between the two halves of the mock driver: the core has the driver's
 * functions and may be compiled outside Kbuild, as the driver's own core is;
 * the module around it talks to the kernel.
 */
#ifndef MOCK_CORE_H
#define MOCK_CORE_H

#include "update_path.h"

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
    struct up_bar1 bar1;
    struct up_memory memory;
    uint64_t next_va;
    uint32_t in_update;
    uint32_t status; /* of the update call */
};

/* The core's one entry: runs a request, fills in truth and status. */
void mock_run(struct mock_gpu *gpu);

/* Provided by the module. */
uint64_t mock_now_ns(void);
void mock_sleep_us(uint64_t duration_us);

#endif
