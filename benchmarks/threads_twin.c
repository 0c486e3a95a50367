/* SPDX-License-Identifier: MIT
 *
 * A C twin of the profiler's bursts: pthreads that run the seven calls at the
 * same time, linked against libcuda, without a word of Python or C++.
 * threads_against_twin.py loads it as a shared library and interleaves it with
 * the core. It follows docs/concurrency.md.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "twin.h"

#define COLUMNS (CALLS + 3) /* start, end, the calls, number of the cycle */

/* Where workers of one or more processes meet; zeroed before each burst. */
struct meeting {
    atomic_uint here, have_samples, in_flight_ended, aborted;
};

struct worker {
    pthread_t thread;
    struct meeting *meeting;
    CUcontext context;
    struct request request;
    unsigned workers, samples, capacity;
    int64_t *rows;
    unsigned kept;
    CUresult result;
};

/* One more cycle, into a row of its own or, when all are taken, into the last one. */
static bool next(struct worker *w, unsigned number)
{
    if (w->kept < w->capacity)
        w->kept++;
    int64_t *row = w->rows + (size_t)(w->kept - 1) * COLUMNS;
    w->result = cycle(&w->request, &row[0], &row[1], &row[2]);
    row[COLUMNS - 1] = number;
    if (w->result == CUDA_SUCCESS)
        return true;
    atomic_store(&w->meeting->aborted, 1);
    return false;
}

static void *work(void *argument)
{
    struct worker *w = argument;
    struct meeting *m = w->meeting;
    if ((w->result = cuCtxSetCurrent(w->context)) != CUDA_SUCCESS) {
        atomic_store(&m->aborted, 1);
        return NULL;
    }
    if (!next(w, 0))
        return NULL;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < w->workers && !atomic_load(&m->aborted))
        sched_yield();
    bool told = false;
    for (unsigned number = 1; !atomic_load(&m->aborted); number++) {
        if (!next(w, number))
            return NULL;
        if (number == w->samples)
            atomic_fetch_add(&m->have_samples, 1);
        if (!told && atomic_load(&m->have_samples) == w->workers) {
            told = true;
            atomic_fetch_add(&m->in_flight_ended, 1);
        }
        if (told && atomic_load(&m->in_flight_ended) == w->workers)
            return NULL;
    }
    return NULL;
}

/* Runs `threads` of a burst's `workers`. `rows` is [threads][capacity][COLUMNS];
 * `kept` gets the rows of each thread. Returns the CUresult of a failed call, 0
 * when none failed. What a failed cycle holds stays held: the run is void. */
int twin_burst(struct meeting *meeting, void *context, int device, size_t size, int reads_ordinal,
               unsigned threads, unsigned workers, unsigned samples, unsigned capacity,
               int64_t *rows, unsigned *kept)
{
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    plain_memory(device, &prop, &access);

    struct worker *all = calloc(threads, sizeof *all);
    if (all == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    unsigned started = 0;
    for (; started < threads; started++) {
        struct worker *w = &all[started];
        *w = (struct worker){.meeting = meeting,
                             .context = context,
                             .request = {&prop, &access, size, reads_ordinal != 0},
                             .workers = workers,
                             .samples = samples,
                             .capacity = capacity,
                             .rows = rows + (size_t)started * capacity * COLUMNS};
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            atomic_store(&meeting->aborted, 1);
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    int result = started == threads ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(all[i].thread, NULL);
        kept[i] = all[i].kept;
        if (all[i].result != CUDA_SUCCESS)
            result = all[i].result;
    }
    free(all);
    return result;
}
