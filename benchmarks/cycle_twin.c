/* SPDX-License-Identifier: MIT
 *
 * A C twin of the profiler's timing core: what somebody who wants to time the
 * seven calls would write, linked against libcuda, without a word of Python.
 * profiler_cost.py loads it as a shared library and interleaves it with the
 * core; as a program it prints CSV. It shares no code with the core on purpose.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

#define CALLS 7

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A benchmark that fails is void, so nothing is cleaned up on the way out: the
 * caller ends the process. */
#define CHECK(call)                     \
    do {                                \
        CUresult result_ = (call);      \
        if (result_ != CUDA_SUCCESS)    \
            return result_;             \
    } while (0)

/* One cycle of plain memory; ns of each call into out[CALLS]. Between access
 * and unmap it reads back what the core reads back: the granted properties and,
 * where the driver knows locality domains, the ordinal. */
static CUresult cycle(const CUmemAllocationProp *prop, const CUmemAccessDesc *access, size_t size,
                      bool reads_ordinal, int64_t *out)
{
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp granted;
    int ordinal;
    int64_t t[CALLS + 2];

    t[0] = now_ns();
    CHECK(cuMemAddressReserve(&address, size, 0, 0, 0));
    t[1] = now_ns();
    CHECK(cuMemCreate(&handle, size, prop, 0));
    t[2] = now_ns();
    CHECK(cuMemMap(address, size, 0, handle, 0));
    t[3] = now_ns();
    CHECK(cuMemSetAccess(address, size, access, 1));
    t[4] = now_ns();
    CHECK(cuMemGetAllocationPropertiesFromHandle(&granted, handle));
    if (reads_ordinal)
        CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL,
                                    address));
    t[5] = now_ns();
    CHECK(cuMemUnmap(address, size));
    t[6] = now_ns();
    CHECK(cuMemRelease(handle));
    t[7] = now_ns();
    CHECK(cuMemAddressFree(address, size));
    t[8] = now_ns();

    for (int i = 0; i < 4; i++)
        out[i] = t[i + 1] - t[i];
    for (int i = 4; i < CALLS; i++)
        out[i] = t[i + 2] - t[i + 1];
    return CUDA_SUCCESS;
}

/* Runs n cycles of size bytes in the calling thread's context; out is [n][7] ns.
 * Returns the CUresult of the first call that failed, 0 when none did. */
int twin_cycles(int device, size_t size, int n, int reads_ordinal, int64_t *out)
{
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    memset(&prop, 0, sizeof prop);
    memset(&access, 0, sizeof access);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 0; i < n; i++)
        CHECK(cycle(&prop, &access, size, reads_ordinal != 0, out + (size_t)i * CALLS));
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
