/* SPDX-License-Identifier: MIT
 *
 * Virtual memory management: address ranges, allocations, mappings, access.
 */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#define HOST_PAGE_BYTES 4096
#define VA_FIRST 0x300000000000ULL
#define VA_END 0x700000000000ULL

/* A handle's low bits index the table; the serial above them makes a stale
 * handle differ from the one that took its place. */
#define SLOT_BITS 22
#define SLOT_MASK ((1ULL << SLOT_BITS) - 1)

struct allocation {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp granted;
    size_t size;
    unsigned int references; /* the handle is valid while there are any */
    unsigned int mappings;
    int device;
    int domain;
    unsigned int next_free;
};

struct range {
    CUdeviceptr start;
    size_t size;
    unsigned int slot; /* mappings: their allocation */
    int ordinal;       /* mappings: what the driver says of their locality domain */
    unsigned char access[MAX_DEVICES];
};

/* Sorted by address; ranges never overlap. */
struct ranges {
    struct range *items;
    size_t count, capacity;
};

static struct allocation *allocations;
static unsigned int allocation_count, allocation_capacity;
static unsigned int free_slot = SLOT_MASK;
static unsigned long long serial = 1;

static struct ranges reservations, mappings;
static CUdeviceptr next_va = VA_FIRST;

static uint64_t plain_used[MAX_DEVICES];
static uint64_t domain_used[MAX_DEVICES][MAX_DOMAINS];

static unsigned long maps, compressible_creates;

static void *grow(void *items, size_t count, size_t item_bytes)
{
    void *grown = realloc(items, count * item_bytes);
    if (grown == NULL)
        abort();
    return grown;
}

/* Index of the first range that ends behind the address. */
static size_t find_range(const struct ranges *ranges, CUdeviceptr address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].start + ranges->items[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct range *range_at(const struct ranges *ranges, CUdeviceptr address)
{
    size_t index = find_range(ranges, address);
    if (index == ranges->count || ranges->items[index].start > address)
        return NULL;
    return &ranges->items[index];
}

static bool overlaps(const struct ranges *ranges, CUdeviceptr start, size_t size)
{
    size_t index = find_range(ranges, start);
    return index < ranges->count && ranges->items[index].start < start + size;
}

static struct range *insert_range(struct ranges *ranges, CUdeviceptr start, size_t size)
{
    if (ranges->count == ranges->capacity) {
        ranges->capacity = ranges->capacity == 0 ? 64 : 2 * ranges->capacity;
        ranges->items = grow(ranges->items, ranges->capacity, sizeof *ranges->items);
    }
    size_t index = find_range(ranges, start);
    struct range *item = &ranges->items[index];
    memmove(item + 1, item, (ranges->count - index) * sizeof *item);
    ranges->count++;
    *item = (struct range){.start = start, .size = size};
    return item;
}

static void remove_ranges(struct ranges *ranges, size_t first, size_t count)
{
    struct range *item = &ranges->items[first];
    memmove(item, item + count, (ranges->count - first - count) * sizeof *item);
    ranges->count -= count;
}

/* The number of whole ranges that tile [start, start + size) exactly, 0 if none do. */
static size_t tiles(const struct ranges *ranges, CUdeviceptr start, size_t size, size_t *first)
{
    CUdeviceptr at = start;
    *first = find_range(ranges, start);
    for (size_t i = *first; i < ranges->count && ranges->items[i].start == at; i++) {
        at += ranges->items[i].size;
        if (at == start + size)
            return i + 1 - *first;
        if (at > start + size)
            break;
    }
    return 0;
}

/* Address ranges. */

/* Addresses are not used again until all were: a stale pointer stays invalid. */
CUdeviceptr choose_address(size_t size, size_t alignment)
{
    for (int wraps = 0; wraps < 2;) {
        CUdeviceptr start = (next_va + alignment - 1) / alignment * alignment;
        if (start + size > VA_END) {
            next_va = VA_FIRST;
            wraps++;
            continue;
        }
        size_t index = find_range(&reservations, start);
        if (index == reservations.count || reservations.items[index].start >= start + size) {
            next_va = start + size;
            return start;
        }
        next_va = reservations.items[index].start + reservations.items[index].size;
    }
    return 0;
}

static bool usable_hint(CUdeviceptr hint, size_t size, size_t alignment)
{
    return hint >= VA_FIRST && hint + size <= VA_END && hint % alignment == 0 &&
           !overlaps(&reservations, hint, size);
}

static CUresult reserve(struct call *call, CUdeviceptr *ptr, size_t size, size_t alignment,
                        CUdeviceptr hint, unsigned long long flags)
{
    call->size = size;
    if (ptr == NULL || flags != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "ptr is NULL or flags are not 0");
    if (size == 0 || size % HOST_PAGE_BYTES != 0 || hint % HOST_PAGE_BYTES != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE,
                         "size %zu and address must be multiples of the host page", size);
    if ((alignment & (alignment - 1)) != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "alignment %zu is no power of two",
                         alignment);
    if (alignment < settings.granularity_bytes)
        alignment = settings.granularity_bytes;
    if (size > VA_END - VA_FIRST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr start =
        usable_hint(hint, size, alignment) ? hint : choose_address(size, alignment);
    if (start == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    insert_range(&reservations, start, size);
    ledger_add(TALLY_RESERVATIONS, 1);
    ledger_add(TALLY_RESERVED_BYTES, (int64_t)size);
    *ptr = start;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags)
{
    SERVE(cuMemAddressReserve, reserve(call, ptr, size, alignment, addr, flags));
}

static CUresult address_free(struct call *call, CUdeviceptr start, size_t size)
{
    call->size = size;
    struct range *range = range_at(&reservations, start);
    if (range == NULL || range->start != start)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx starts no reserved range", start);
    if (range->size != size)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "size %zu of a range of %zu", size,
                         range->size);
    if (overlaps(&mappings, start, size))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx is still mapped", start);
    remove_ranges(&reservations, (size_t)(range - reservations.items), 1);
    ledger_add(TALLY_RESERVATIONS, -1);
    ledger_add(TALLY_RESERVED_BYTES, -(int64_t)size);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SERVE(cuMemAddressFree, address_free(call, ptr, size));
}

/* Physical memory. */

static int domain_pools(void)
{
    return settings.domains > 1 ? settings.domains : 1;
}

uint64_t memory_used(int device)
{
    uint64_t used = plain_used[device];
    for (int i = 0; i < MAX_DOMAINS; i++)
        used += domain_used[device][i];
    return used;
}

/* Memory that is not localized takes the same share of every domain. */
bool memory_fits(int device, int domain, uint64_t size)
{
    uint64_t pools = (uint64_t)domain_pools();
    for (int i = 0; i < (int)pools; i++) {
        if (domain != NO_DOMAIN && domain != i)
            continue;
        uint64_t plain = plain_used[device] + (domain == NO_DOMAIN ? size : 0);
        uint64_t localized = domain_used[device][i] + (domain == NO_DOMAIN ? 0 : size);
        if (plain + pools * localized > settings.memory_bytes)
            return false;
    }
    return true;
}

void memory_charge(int device, int domain, int64_t bytes)
{
    uint64_t *used = domain == NO_DOMAIN ? &plain_used[device] : &domain_used[device][domain];
    *used += (uint64_t)bytes;
    ledger_add(TALLY_ALLOCATED_BYTES, bytes);
}

CUresult check_location(struct call *call, const CUmemLocation *location, int *device, int *domain)
{
    *domain = NO_DOMAIN;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *device = location->id;
        if (!device_exists(*device))
            return violation(call, CUDA_ERROR_INVALID_DEVICE, "location.id %d of %d devices",
                             *device, settings.devices);
        return CUDA_SUCCESS;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN || settings.domains == 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "location.type %d is unknown",
                         (int)location->type);
    *device = location->localized.deviceId;
    *domain = location->localized.localityDomainId;
    if (((unsigned int)location->id >> 16) != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "bytes behind location.localized are set");
    if (!device_exists(*device))
        return violation(call, CUDA_ERROR_INVALID_DEVICE, "localized.deviceId %d of %d devices",
                         *device, settings.devices);
    if (*domain >= settings.domains)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "localityDomainId %d of %d domains",
                         *domain, settings.domains);
    call->localized = settings.domains > 1;
    if (settings.domains == 1)
        *domain = NO_DOMAIN;
    return CUDA_SUCCESS;
}

static bool reserved_is_zero(const CUmemAllocationProp *prop)
{
    for (size_t i = 0; i < sizeof prop->allocFlags.reserved; i++)
        if (prop->allocFlags.reserved[i] != 0)
            return false;
    return prop->win32HandleMetaData == NULL;
}

/* Asking for RDMA where it cannot be had is how a program may find out: no violation. */
static CUresult check_rdma(const struct call *call, const CUmemAllocationProp *prop, int domain)
{
    bool over_pcie = (prop->allocFlags.usage & CU_MEM_CREATE_USAGE_GPU_DIRECT_RDMA_OVER_PCIE) != 0;
    if (prop->allocFlags.gpuDirectRDMACapable == 0) {
        if (over_pcie)
            return violation(call, CUDA_ERROR_INVALID_VALUE, "RDMA over PCIe without RDMA");
        return CUDA_SUCCESS;
    }
    if (!settings.rdma)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (domain != NO_DOMAIN && !settings.rdma_localized && !over_pcie)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult check_prop(struct call *call, const CUmemAllocationProp *prop, int *device,
                           int *domain)
{
    if (prop == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "prop is NULL");
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "prop.type %d, must be pinned",
                         (int)prop->type);
    if ((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return violation(call, CUDA_ERROR_NOT_SUPPORTED, "requestedHandleTypes 0x%x",
                         (unsigned int)prop->requestedHandleTypes);
    if (!reserved_is_zero(prop))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "reserved fields are not zero");
    if (prop->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC ||
        prop->allocFlags.gpuDirectRDMACapable > 1)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "allocFlags out of range");
    if ((prop->allocFlags.usage & ~CU_MEM_CREATE_USAGE_GPU_DIRECT_RDMA_OVER_PCIE) != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "allocFlags.usage 0x%x",
                         (unsigned int)prop->allocFlags.usage);
    call->compressible = prop->allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE;
    CUresult result = check_location(call, &prop->location, device, domain);
    return result != CUDA_SUCCESS ? result : check_rdma(call, prop, *domain);
}

static CUresult granularity(struct call *call, size_t *bytes, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags option)
{
    int device, domain;
    if (bytes == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                          option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output is NULL or option unknown");
    CUresult result = check_prop(call, prop, &device, &domain);
    if (result == CUDA_SUCCESS)
        *bytes = settings.granularity_bytes;
    return result;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity_bytes,
                                               const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    SERVE(cuMemGetAllocationGranularity, granularity(call, granularity_bytes, prop, option));
}

static unsigned int take_slot(void)
{
    if (free_slot != SLOT_MASK) {
        unsigned int slot = free_slot;
        free_slot = allocations[slot].next_free;
        return slot;
    }
    if (allocation_count == SLOT_MASK)
        abort();
    if (allocation_count == allocation_capacity) {
        allocation_capacity = allocation_capacity == 0 ? 64 : 2 * allocation_capacity;
        allocations = grow(allocations, allocation_capacity, sizeof *allocations);
    }
    return allocation_count++;
}

/* Compression is a hint: what was granted stands in the handle's properties. */
static unsigned char granted_compression(const CUmemAllocationProp *prop)
{
    if (prop->allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE ||
        settings.compression != COMPRESSION_GRANT)
        return CU_MEM_ALLOCATION_COMP_NONE;
    compressible_creates++;
    if (settings.wrong_compression_every != 0 &&
        compressible_creates % settings.wrong_compression_every == 0)
        return CU_MEM_ALLOCATION_COMP_NONE;
    return prop->allocFlags.compressionType;
}

static CUmemAllocationProp granted_prop(const CUmemAllocationProp *prop, int device, int domain)
{
    CUmemAllocationProp granted = *prop;
    granted.allocFlags.compressionType = granted_compression(prop);
    if (domain == NO_DOMAIN) {
        granted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        granted.location.id = device;
    }
    return granted;
}

static CUresult create(struct call *call, CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    int device, domain;
    call->size = size;
    if (handle == NULL || flags != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "handle is NULL or flags are not 0");
    CUresult result = check_prop(call, prop, &device, &domain);
    if (result != CUDA_SUCCESS)
        return result;
    if (size == 0 || size % settings.granularity_bytes != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "size %zu is no multiple of %llu", size,
                         (unsigned long long)settings.granularity_bytes);
    if (size > settings.memory_bytes || !memory_fits(device, domain, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned int slot = take_slot();
    struct allocation *allocation = &allocations[slot];
    *allocation = (struct allocation){
        .handle = (serial++ << SLOT_BITS) | slot,
        .granted = granted_prop(prop, device, domain),
        .size = size,
        .references = 1,
        .device = device,
        .domain = domain,
    };
    memory_charge(device, domain, (int64_t)size);
    ledger_add(TALLY_ALLOCATIONS, 1);
    ledger_add(TALLY_HANDLES, 1);
    *handle = allocation->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    SERVE(cuMemCreate, create(call, handle, size, prop, flags));
}

static void describe(struct call *call, const struct allocation *allocation)
{
    call->localized = allocation->domain != NO_DOMAIN;
    call->compressible =
        allocation->granted.allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE;
}

/* The allocation of a handle that is still held, or NULL and a violation. */
static struct allocation *held(const struct call *call, CUmemGenericAllocationHandle handle)
{
    uint64_t slot = handle & SLOT_MASK;
    if (slot < allocation_count && allocations[slot].handle == handle &&
        allocations[slot].references > 0)
        return &allocations[slot];
    violation(call, CUDA_ERROR_INVALID_VALUE, "handle 0x%llx is not held", handle);
    return NULL;
}

/* Memory lives as long as its handle is held or it is mapped. */
static void drop_if_unused(struct allocation *allocation)
{
    if (allocation->references > 0 || allocation->mappings > 0)
        return;
    memory_charge(allocation->device, allocation->domain, -(int64_t)allocation->size);
    ledger_add(TALLY_ALLOCATIONS, -1);
    allocation->handle = 0;
    allocation->next_free = free_slot;
    free_slot = (unsigned int)(allocation - allocations);
}

static CUresult release(struct call *call, CUmemGenericAllocationHandle handle)
{
    struct allocation *allocation = held(call, handle);
    if (allocation == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    call->size = allocation->size;
    describe(call, allocation);
    if (--allocation->references == 0)
        ledger_add(TALLY_HANDLES, -1);
    drop_if_unused(allocation);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SERVE(cuMemRelease, release(call, handle));
}

static CUresult properties(const struct call *call, CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle handle)
{
    if (prop == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    const struct allocation *allocation = held(call, handle);
    if (allocation == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = allocation->granted;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    SERVE(cuMemGetAllocationPropertiesFromHandle, properties(call, prop, handle));
}

/* Mappings. */

/* Counted over all maps, so that plain memory can be claimed to be localized, too. */
int reported_ordinal(int domain)
{
    maps++;
    if (settings.domains < 2 || settings.wrong_ordinal_every == 0 ||
        maps % settings.wrong_ordinal_every != 0)
        return domain;
    return domain == NO_DOMAIN ? 0 : (domain + 1) % settings.domains;
}

static CUresult map(struct call *call, CUdeviceptr start, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    call->size = size;
    struct allocation *allocation = held(call, handle);
    if (allocation == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    describe(call, allocation);
    if (flags != 0 || offset != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "flags and offset must be 0");
    if (size == 0 || size % settings.granularity_bytes != 0 ||
        start % settings.granularity_bytes != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE,
                         "address and size %zu must be multiples of the granularity", size);
    if (size > allocation->size)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "size %zu of an allocation of %zu", size,
                         allocation->size);
    struct range *reservation = range_at(&reservations, start);
    if (reservation == NULL || start + size > reservation->start + reservation->size)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx is not in one reserved range",
                         start);
    if (overlaps(&mappings, start, size))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx is mapped already", start);
    struct range *mapping = insert_range(&mappings, start, size);
    mapping->slot = (unsigned int)(allocation - allocations);
    mapping->ordinal = reported_ordinal(allocation->domain);
    allocation->mappings++;
    ledger_add(TALLY_MAPPINGS, 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    SERVE(cuMemMap, map(call, ptr, size, offset, handle, flags));
}

static CUresult unmap(struct call *call, CUdeviceptr start, size_t size)
{
    size_t first;
    call->size = size;
    size_t count = tiles(&mappings, start, size, &first);
    if (count == 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE,
                         "0x%llx and %zu bytes are not whole mappings", start, size);
    describe(call, &allocations[mappings.items[first].slot]);
    for (size_t i = first; i < first + count; i++) {
        struct allocation *allocation = &allocations[mappings.items[i].slot];
        allocation->mappings--;
        drop_if_unused(allocation);
    }
    remove_ranges(&mappings, first, count);
    ledger_add(TALLY_MAPPINGS, -(int64_t)count);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SERVE(cuMemUnmap, unmap(call, ptr, size));
}

/* Access is per device, also to localized memory. */
static CUresult check_access_location(const struct call *call, const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "location.type %d, must be a device",
                         (int)location->type);
    if (!device_exists(location->id))
        return violation(call, CUDA_ERROR_INVALID_DEVICE, "location.id %d of %d devices",
                         location->id, settings.devices);
    return CUDA_SUCCESS;
}

static CUresult check_access(const struct call *call, const CUmemAccessDesc *desc)
{
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "desc.flags %d", (int)desc->flags);
    return check_access_location(call, &desc->location);
}

static CUresult set_access(struct call *call, CUdeviceptr start, size_t size,
                           const CUmemAccessDesc *desc, size_t count)
{
    size_t first;
    call->size = size;
    if (desc == NULL || count == 0 || count > MAX_DEVICES)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "desc is NULL or count is %zu", count);
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(call, &desc[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    size_t tiled = tiles(&mappings, start, size, &first);
    if (tiled == 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE,
                         "0x%llx and %zu bytes are not whole mappings", start, size);
    describe(call, &allocations[mappings.items[first].slot]);
    for (size_t i = first; i < first + tiled; i++)
        for (size_t k = 0; k < count; k++)
            mappings.items[i].access[desc[k].location.id] = (unsigned char)desc[k].flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                size_t count)
{
    SERVE(cuMemSetAccess, set_access(call, ptr, size, desc, count));
}

static struct range *mapped(const struct call *call, CUdeviceptr address)
{
    struct range *mapping = range_at(&mappings, address);
    if (mapping == NULL)
        violation(call, CUDA_ERROR_INVALID_VALUE, "0x%llx is not mapped", address);
    return mapping;
}

static CUresult get_access(const struct call *call, unsigned long long *flags,
                           const CUmemLocation *location, CUdeviceptr address)
{
    if (flags == NULL || location == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "flags or location is NULL");
    CUresult result = check_access_location(call, location);
    if (result != CUDA_SUCCESS)
        return result;
    const struct range *mapping = mapped(call, address);
    if (mapping == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = mapping->access[location->id];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                CUdeviceptr ptr)
{
    SERVE(cuMemGetAccess, get_access(call, flags, location, ptr));
}

static CUresult retain(const struct call *call, CUmemGenericAllocationHandle *handle, void *address)
{
    if (handle == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    const struct range *mapping = mapped(call, (CUdeviceptr)(uintptr_t)address);
    if (mapping == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation *allocation = &allocations[mapping->slot];
    if (allocation->references++ == 0)
        ledger_add(TALLY_HANDLES, 1);
    *handle = allocation->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    SERVE(cuMemRetainAllocationHandle, retain(call, handle, addr));
}

/* Writes the attribute of a mapped pointer; false if the stub does not serve it. */
static bool pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                              const struct range *mapping)
{
    const struct allocation *allocation = &allocations[mapping->slot];
    const struct range *reservation = range_at(&reservations, address);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = NULL; /* as for all memory of cuMemCreate */
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->device;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = reservation->start;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = reservation->size;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = allocation->granted.requestedHandleTypes;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = allocation->granted.allocFlags.gpuDirectRDMACapable;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = mapping->size;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = mapping->start;
        return true;
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
        if (settings.domains == 0)
            return false;
        *(int *)data = mapping->ordinal;
        return true;
    default:
        return false;
    }
}

static CUresult get_attribute(const struct call *call, void *data, CUpointer_attribute attribute,
                              CUdeviceptr address)
{
    if (data == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    if (pool_pointer_attribute(data, attribute, address))
        return CUDA_SUCCESS;
    const struct range *mapping = mapped(call, address);
    if (mapping == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pointer_attribute(data, attribute, address, mapping))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "attribute %d is unknown",
                         (int)attribute);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    SERVE(cuPointerGetAttribute, get_attribute(call, data, attribute, ptr));
}

static CUresult get_attributes(const struct call *call, unsigned int count,
                               const CUpointer_attribute *attributes, void **data,
                               CUdeviceptr address)
{
    if (count == 0 || attributes == NULL || data == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "no attributes asked for");
    for (unsigned int i = 0; i < count; i++) {
        CUresult result = get_attribute(call, data[i], attributes[i], address);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr ptr)
{
    SERVE(cuPointerGetAttributes, get_attributes(call, numAttributes, attributes, data, ptr));
}
