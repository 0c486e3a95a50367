/* SPDX-License-Identifier: MIT
 *
 * A C twin of the profiler's timing core: what somebody who wants to time the
 * seven calls would write, linked against libcuda, without a word of Python.
 * profiler_cost.py loads it as a shared library and interleaves it with the
 * core; as a program it prints CSV.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "twin.h"

/* Runs n cycles of size bytes in the calling thread's context; out is [n][7] ns.
 * Returns the CUresult of the first call that failed, 0 when none did. */
int twin_cycles(int device, size_t size, int n, int reads_ordinal, int64_t *out)
{
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    struct request request = {&prop, &access, size, reads_ordinal != 0};
    int64_t begin, end;
    plain_memory(device, &prop, &access);
    for (int i = 0; i < n; i++)
        CHECK(cycle(&request, &begin, &end, out + (size_t)i * CALLS));
    return CUDA_SUCCESS;
}

#ifdef CYCLE_TWIN_PROGRAM

static CUresult start(int device, bool *knows_domains)
{
    CUcontext context;
    int count;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    *knows_domains = cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT,
                                          device) == CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

static int fail(CUresult result)
{
    const char *name = "an unknown CUDA error";
    cuGetErrorName(result, &name);
    fprintf(stderr, "cycle_twin: %s\n", name);
    return 1;
}

static void print_cycles(size_t size, int n, const int64_t *ns)
{
    for (int i = 0; i < n; i++) {
        printf("%zu", size);
        for (int call = 0; call < CALLS; call++)
            printf(",%" PRId64, ns[(size_t)i * CALLS + (size_t)call]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: cycle_twin DEVICE CYCLES SIZE_MIB...   (CSV on standard output)\n");
        return 2;
    }
    int device = atoi(argv[1]), n = atoi(argv[2]);
    bool knows_domains;
    CUresult result = start(device, &knows_domains);
    if (result != CUDA_SUCCESS)
        return fail(result);
    int64_t *ns = calloc((size_t)(n > 0 ? n : 1), CALLS * sizeof *ns);
    if (ns == NULL)
        return 1;
    printf("size_bytes,reserve_ns,create_ns,map_ns,set_access_ns,unmap_ns,release_ns,free_ns\n");
    for (int i = 3; i < argc && result == CUDA_SUCCESS; i++) {
        size_t size = (size_t)atol(argv[i]) << 20;
        result = twin_cycles(device, size, n, knows_domains, ns);
        if (result == CUDA_SUCCESS)
            print_cycles(size, n, ns);
    }
    free(ns);
    cuDevicePrimaryCtxRelease(device);
    return result == CUDA_SUCCESS ? 0 : fail(result);
}

#endif
