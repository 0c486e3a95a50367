/* SPDX-License-Identifier: MIT
 *
 * Memory pools and stream-ordered allocation. A pool takes memory from the card
 * when it has too little, in whole granules, and gives what is over its release
 * threshold back when the program synchronizes. All streams may reuse at once.
 */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#define POINTER_ALIGNMENT 512

struct pool {
    struct object object;
    int domain;
    bool is_default;
    bool destroyed; /* lives on until its last allocation is freed */
    size_t max_bytes;
    uint64_t release_threshold;
    uint64_t reserved_bytes, reserved_high;
    uint64_t used_bytes, used_high;
};

struct pool_allocation {
    CUdeviceptr start;
    size_t size;
    struct pool *pool;
    struct pool_allocation *next;
};

static struct pool *default_pools[MAX_DEVICES];
static struct pool_allocation *pool_allocations;

static struct pool *default_pool(int device)
{
    if (default_pools[device] == NULL) {
        /* Not made by the program, so no object of the ledger. */
        struct pool *pool = calloc(1, sizeof *pool);
        if (pool == NULL)
            abort();
        pool->object.device = device;
        pool->domain = NO_DOMAIN;
        pool->is_default = true;
        default_pools[device] = pool;
    }
    return default_pools[device];
}

static struct pool *find_pool(const struct call *call, CUmemoryPool handle)
{
    for (int i = 0; i < settings.devices; i++)
        if (handle != NULL && (struct pool *)handle == default_pools[i])
            return default_pools[i];
    if (object_is(handle, OBJECT_POOL))
        return (struct pool *)handle;
    violation(call, CUDA_ERROR_INVALID_VALUE, "no such pool");
    return NULL;
}

static void shrink(struct pool *pool, uint64_t keep_bytes)
{
    uint64_t granularity = settings.granularity_bytes;
    uint64_t needed = (pool->used_bytes + granularity - 1) / granularity * granularity;
    if (keep_bytes > needed)
        needed = keep_bytes;
    if (pool->reserved_bytes <= needed)
        return;
    memory_charge(pool->object.device, pool->domain, -(int64_t)(pool->reserved_bytes - needed));
    pool->reserved_bytes = needed;
}

static bool grow(struct pool *pool, size_t size)
{
    uint64_t granularity = settings.granularity_bytes;
    uint64_t needed = (pool->used_bytes + size + granularity - 1) / granularity * granularity;
    if (needed <= pool->reserved_bytes)
        return true;
    uint64_t more = needed - pool->reserved_bytes;
    if ((pool->max_bytes != 0 && needed > pool->max_bytes) ||
        !memory_fits(pool->object.device, pool->domain, more))
        return false;
    memory_charge(pool->object.device, pool->domain, (int64_t)more);
    pool->reserved_bytes = needed;
    if (needed > pool->reserved_high)
        pool->reserved_high = needed;
    return true;
}

void pools_synchronized(void)
{
    for (int i = 0; i < settings.devices; i++)
        if (default_pools[i] != NULL)
            shrink(default_pools[i], default_pools[i]->release_threshold);
    for (struct object *object = object_next(NULL, OBJECT_POOL); object != NULL;
         object = object_next(object, OBJECT_POOL))
        shrink((struct pool *)object, ((struct pool *)object)->release_threshold);
}

/* With its context goes what the device's default pool keeps. */
void pool_context_released(int device)
{
    if (default_pools[device] != NULL)
        shrink(default_pools[device], 0);
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static CUresult create_pool(struct call *call, CUmemoryPool *handle, const CUmemPoolProps *props)
{
    int device, domain;
    if (handle == NULL || props == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output or properties are NULL");
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "allocType %d, must be pinned",
                         (int)props->allocType);
    if ((props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return violation(call, CUDA_ERROR_NOT_SUPPORTED, "handleTypes 0x%x",
                         (unsigned int)props->handleTypes);
    if (props->win32SecurityAttributes != NULL || props->usage != 0 ||
        props->gpuDirectRDMACapable > 1 || !is_zero(props->reserved, sizeof props->reserved))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "reserved fields are not zero");
    CUresult result = check_location(call, &props->location, &device, &domain);
    if (result != CUDA_SUCCESS)
        return result;
    struct pool *pool = object_new(OBJECT_POOL, sizeof *pool, device);
    pool->domain = domain;
    pool->max_bytes = props->maxSize;
    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    SERVE(cuMemPoolCreate, create_pool(call, pool, poolProps));
}

static CUresult destroy_pool(const struct call *call, CUmemoryPool handle)
{
    struct pool *pool = find_pool(call, handle);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->is_default)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "a default pool cannot be destroyed");
    pool->destroyed = true;
    object_end(&pool->object);
    shrink(pool, 0);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
    SERVE(cuMemPoolDestroy, destroy_pool(call, pool));
}

static CUresult get_default_pool(const struct call *call, CUmemoryPool *handle, int device)
{
    if (handle == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    if (!device_exists(device))
        return violation(call, CUDA_ERROR_INVALID_DEVICE, "device %d of %d", device,
                         settings.devices);
    *handle = (CUmemoryPool)default_pool(device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    SERVE(cuDeviceGetDefaultMemPool, get_default_pool(call, pool_out, dev));
}

static CUresult trim(const struct call *call, CUmemoryPool handle, size_t keep_bytes)
{
    struct pool *pool = find_pool(call, handle);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    shrink(pool, keep_bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    SERVE(cuMemPoolTrimTo, trim(call, pool, minBytesToKeep));
}

static bool is_reuse(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static CUresult set_attribute(const struct call *call, CUmemoryPool handle,
                              CUmemPool_attribute attribute, const void *value)
{
    struct pool *pool = find_pool(call, handle);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (value == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "value is NULL");
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->release_threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    }
    bool is_high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                   attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (is_high && *(const cuuint64_t *)value == 0) {
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = 0;
        else
            pool->reserved_high = 0;
        return CUDA_SUCCESS;
    }
    if (is_reuse(attribute))
        return CUDA_SUCCESS;
    return violation(call, CUDA_ERROR_INVALID_VALUE, "attribute %d cannot be set so",
                     (int)attribute);
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SERVE(cuMemPoolSetAttribute, set_attribute(call, pool, attr, value));
}

static CUresult get_attribute(const struct call *call, CUmemoryPool handle,
                              CUmemPool_attribute attribute, void *value)
{
    const struct pool *pool = find_pool(call, handle);
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (value == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "value is NULL");
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID:
        if (settings.domains == 0)
            return CUDA_ERROR_INVALID_VALUE;
        *(int *)value = pool->domain;
        return CUDA_SUCCESS;
    default:
        if (!is_reuse(attribute))
            return violation(call, CUDA_ERROR_INVALID_VALUE, "attribute %d is unknown",
                             (int)attribute);
        *(int *)value = 1;
        return CUDA_SUCCESS;
    }
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SERVE(cuMemPoolGetAttribute, get_attribute(call, pool, attr, value));
}

static CUresult allocate(struct call *call, CUdeviceptr *pointer, size_t size, struct pool *pool,
                         CUstream stream)
{
    call->size = size;
    CUresult result = check_stream(call, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == NULL || size == 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output is NULL or size is 0");
    call->localized = pool->domain != NO_DOMAIN;
    uint64_t before = pool->reserved_bytes;
    CUdeviceptr start = choose_address(size, POINTER_ALIGNMENT);
    if (start == 0 || !grow(pool, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->is_warm = pool->reserved_bytes == before;
    struct pool_allocation *allocation = calloc(1, sizeof *allocation);
    if (allocation == NULL)
        abort();
    *allocation = (struct pool_allocation){start, size, pool, pool_allocations};
    pool_allocations = allocation;
    pool->used_bytes += size;
    if (pool->used_bytes > pool->used_high)
        pool->used_high = pool->used_bytes;
    ledger_add(TALLY_POOL_ALLOCATIONS, 1);
    *pointer = start;
    return CUDA_SUCCESS;
}

static CUresult allocate_from(struct call *call, CUdeviceptr *pointer, size_t size,
                              CUmemoryPool handle, CUstream stream)
{
    struct pool *pool = find_pool(call, handle);
    return pool == NULL ? CUDA_ERROR_INVALID_VALUE : allocate(call, pointer, size, pool, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream hStream)
{
    SERVE(cuMemAllocFromPoolAsync, allocate_from(call, dptr, bytesize, pool, hStream));
}

static CUresult allocate_default(struct call *call, CUdeviceptr *pointer, size_t size,
                                 CUstream stream)
{
    int device;
    CUresult result = current_context(call, &device);
    return result != CUDA_SUCCESS ? result
                                  : allocate(call, pointer, size, default_pool(device), stream);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SERVE(cuMemAllocAsync, allocate_default(call, dptr, bytesize, hStream));
}

static CUresult free_async(struct call *call, CUdeviceptr pointer, CUstream stream)
{
    CUresult result = check_stream(call, stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct pool_allocation **link = &pool_allocations;
    while (*link != NULL && (*link)->start != pointer)
        link = &(*link)->next;
    struct pool_allocation *allocation = *link;
    if (allocation == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx is no allocation of a pool",
                         pointer);
    struct pool *pool = allocation->pool;
    call->size = allocation->size;
    call->localized = pool->domain != NO_DOMAIN;
    pool->used_bytes -= allocation->size;
    if (pool->destroyed)
        shrink(pool, 0);
    *link = allocation->next;
    free(allocation);
    ledger_add(TALLY_POOL_ALLOCATIONS, -1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    SERVE(cuMemFreeAsync, free_async(call, dptr, hStream));
}

bool pool_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    const struct pool_allocation *allocation = pool_allocations;
    while (allocation != NULL &&
           !(allocation->start <= pointer && pointer < allocation->start + allocation->size))
        allocation = allocation->next;
    if (allocation == NULL)
        return false;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->pool->object.device;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)allocation->pool;
        return true;
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
        if (settings.domains == 0)
            return false;
        *(int *)data = reported_ordinal(allocation->pool->domain);
        return true;
    default:
        return false;
    }
}
