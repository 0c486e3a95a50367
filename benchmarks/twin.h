/* SPDX-License-Identifier: MIT
 *
 * What both C twins time: the seven calls of one cycle of plain memory, with a
 * reading of the clock behind each. It shares no code with the core on purpose.
 */
#ifndef VMMPROF_TWIN_H
#define VMMPROF_TWIN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

#define CALLS 7

static inline int64_t now_ns(void)
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

/* Plain memory of a device, and access to it for the same device. */
static inline void plain_memory(int device, CUmemAllocationProp *prop, CUmemAccessDesc *access)
{
    memset(prop, 0, sizeof *prop);
    memset(access, 0, sizeof *access);
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop->location.id = device;
    access->location = prop->location;
    access->flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* What to allocate. */
struct request {
    const CUmemAllocationProp *prop;
    const CUmemAccessDesc *access;
    size_t size;
    bool reads_ordinal;
};

/* One cycle; the first and the last reading of the clock into begin and end, ns
 * of each call into calls. Between access and unmap it reads back what the core
 * reads back: the granted properties and, where the driver knows locality
 * domains, the ordinal. */
static inline CUresult cycle(const struct request *r, int64_t *begin, int64_t *end,
                             int64_t calls[CALLS])
{
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp granted;
    int ordinal;
    int64_t t[CALLS + 2];

    t[0] = now_ns();
    CHECK(cuMemAddressReserve(&address, r->size, 0, 0, 0));
    t[1] = now_ns();
    CHECK(cuMemCreate(&handle, r->size, r->prop, 0));
    t[2] = now_ns();
    CHECK(cuMemMap(address, r->size, 0, handle, 0));
    t[3] = now_ns();
    CHECK(cuMemSetAccess(address, r->size, r->access, 1));
    t[4] = now_ns();
    CHECK(cuMemGetAllocationPropertiesFromHandle(&granted, handle));
    if (r->reads_ordinal)
        CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL,
                                    address));
    t[5] = now_ns();
    CHECK(cuMemUnmap(address, r->size));
    t[6] = now_ns();
    CHECK(cuMemRelease(handle));
    t[7] = now_ns();
    CHECK(cuMemAddressFree(address, r->size));
    t[8] = now_ns();

    *begin = t[0];
    *end = t[8];
    for (int i = 0; i < 4; i++)
        calls[i] = t[i + 1] - t[i];
    for (int i = 4; i < CALLS; i++)
        calls[i] = t[i + 2] - t[i + 1];
    return CUDA_SUCCESS;
}

#endif
