/* SPDX-License-Identifier: MIT */
/*
 * Runs cases from standard input, one a line of whitespace-separated words:
 *
 *   fb_slots start_slots page_slots kind contiguous localized
 *   operations
 *   n_faults (call status)...      call counts over the whole case, from 1
 *   n_runs (first count step)...   physical slots; step in slots
 *
 * and prints for each operation "op LETTER STATUS" with its counts, its calls,
 * and the page table after it; "end" closes a case.
 */
#include "mmu.h"
#include "subject.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_PAGES (1u << 20)
/* Far beyond what the largest case takes: a loop that never ends is a verdict too. */
#define CASE_SECONDS 60

static uint64_t number(void)
{
    uint64_t value;

    if (scanf("%" SCNu64, &value) != 1) {
        fputs("bench: a number was expected in the case\n", stderr);
        exit(2);
    }
    return value;
}

static void read_faults(void)
{
    uint64_t n_faults = number();

    for (uint64_t i = 0; i < n_faults; i++) {
        uint64_t call = number();

        mmu_fail_call(call, (uint32_t)number());
    }
}

/* Exactly as many bytes as there are pages, so that ASan sees one read more. */
static uint64_t *read_pages(uint64_t *n_pages)
{
    uint64_t n_runs = number();
    uint64_t *pages = NULL;

    *n_pages = 0;
    for (uint64_t run = 0; run < n_runs; run++) {
        int64_t slot = (int64_t)number();
        uint64_t count = number();
        int64_t step;

        if (count == 0 || count > MAX_PAGES - *n_pages || scanf("%" SCNd64, &step) != 1) {
            fputs("bench: bad run in the case\n", stderr);
            exit(2);
        }
        pages = realloc(pages, (*n_pages + count) * sizeof(*pages));
        if (pages == NULL)
            exit(2);
        for (uint64_t i = 0; i < count; i++, slot += step)
            pages[(*n_pages)++] = (uint64_t)slot;
    }
    return pages;
}

static void operate(char operation)
{
    const struct mmu_counts *counts = mmu_counts();
    uint32_t status;

    mmu_begin_operation();
    status = subject_operate(operation);
    printf("op %c %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 " %" PRIu64 " %u\n",
           operation, status, counts->maps, counts->pte_writes, counts->synced_maps,
           counts->full_flushes, counts->partial_flushes, counts->downgrades, counts->upgrades,
           counts->read_backs, counts->findings);
    mmu_print_calls();
    mmu_print_table();
}

static bool run_case(void)
{
    struct memory_case memory = {0};
    char operations[64];
    uint64_t fb_slots, start_slots;
    uint64_t *pages;

    if (scanf("%" SCNu64, &fb_slots) != 1)
        return false;
    alarm(CASE_SECONDS);
    start_slots = number();
    memory.page_slots = number();
    memory.kind = (uint32_t)number();
    memory.contiguous = number() != 0;
    memory.localized = number() != 0;
    if (scanf("%63s", operations) != 1)
        return false;
    mmu_reset(fb_slots, start_slots);
    read_faults();
    pages = read_pages(&memory.n_pages);
    memory.page_slot = pages;

    subject_setup(&memory);
    for (const char *operation = operations; *operation != '\0'; operation++)
        operate(*operation);
    puts("end");
    fflush(stdout);
    free(pages);
    return true;
}

int main(void)
{
    while (run_case())
        ;
    return 0;
}
