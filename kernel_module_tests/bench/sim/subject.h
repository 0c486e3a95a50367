/* SPDX-License-Identifier: MIT */
/* What the bench asks of a function under test, whichever tree it comes from. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stdbool.h>
#include <stdint.h>

struct memory_case {
    uint64_t page_slots; /* page size in slots of 2 MiB */
    uint64_t n_pages;
    const uint64_t *page_slot; /* physical slot of each page */
    uint32_t kind;
    bool contiguous;
    bool localized;
};

/* Makes a new descriptor, without references, from the case. */
void subject_setup(const struct memory_case *memory);

/*
 * Operations, by letter:
 *   c  update, commit              r  update, release
 *   +  take a reference            -  drop one, as an unmap does
 *   k  take one with another kind  d  drop one, as the free of the memory does
 *   f  take one with other flags
 * Returns the status; UINT32_MAX when the tree has no such function.
 */
uint32_t subject_operate(char operation);

#endif
