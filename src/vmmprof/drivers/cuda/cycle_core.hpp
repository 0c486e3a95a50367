// SPDX-License-Identifier: MIT
//
// The timing core: runs VMM cycles and times them call by call. It knows no
// Python and no global state, so that any number of threads can run it, and so
// that it builds alone under the thread and address sanitizers
// (tests/cycle_core). The driver's entry points come in a table: they are the
// pointers that cuGetProcAddress gives, which is what a C program that links
// libcuda calls, without a wrapper in the timed path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include <sched.h>

#include <cuda.h>

namespace vmmprof {

enum Call : int8_t { RESERVE, CREATE, MAP, SET_ACCESS, UNMAP, RELEASE, FREE, CALL_COUNT };

struct EntryPoints {
    CUresult(CUDAAPI *address_reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult(CUDAAPI *create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult(CUDAAPI *map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult(CUDAAPI *set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult(CUDAAPI *unmap)(CUdeviceptr, size_t);
    CUresult(CUDAAPI *release)(CUmemGenericAllocationHandle);
    CUresult(CUDAAPI *address_free)(CUdeviceptr, size_t);
    CUresult(CUDAAPI *properties_from_handle)(CUmemAllocationProp *, CUmemGenericAllocationHandle);
    CUresult(CUDAAPI *get_granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    // Null where the driver does not know locality domains.
    CUresult(CUDAAPI *pointer_get_attribute)(void *, CUpointer_attribute, CUdeviceptr);
    // Threads of a burst set the context that they work in (burst.hpp).
    CUresult(CUDAAPI *ctx_set_current)(CUcontext);
};

struct Condition {
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    size_t size_bytes;
};

inline Condition make_condition(int device, size_t size_bytes, int domain, bool compressible, bool rdma) {
    Condition condition;
    std::memset(&condition, 0, sizeof condition);
    condition.size_bytes = size_bytes;
    condition.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (domain >= 0) {
        // The location is a union: id aliases the two bytes, so only one of them is ever set.
        condition.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
        condition.prop.location.localized.deviceId = static_cast<unsigned char>(device);
        condition.prop.location.localized.localityDomainId = static_cast<unsigned char>(domain);
    } else {
        condition.prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        condition.prop.location.id = device;
    }
    if (compressible)
        condition.prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    if (rdma)
        condition.prop.allocFlags.gpuDirectRDMACapable = 1;
    // Access is granted to a whole device, also for localized memory.
    condition.access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    condition.access.location.id = device;
    condition.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return condition;
}

inline CUresult get_granularity(const EntryPoints &cuda, const Condition &condition, size_t *granularity_bytes) {
    return cuda.get_granularity(granularity_bytes, &condition.prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

// A read-back that was not reached or that the driver refused.
constexpr int32_t NOT_READ_BACK = -1000;
constexpr int64_t NO_TIME_NS = -1;
constexpr int8_t NO_FAILED_CALL = -1;

// One cycle.
struct Row {
    int64_t start_ns;
    int64_t end_ns;  // after the last call that was tried, read-backs included
    int64_t calls_ns[CALL_COUNT];
    int32_t status;
    int8_t failed_call;
    int32_t ordinal;
    int32_t compression;
    int32_t cpu;  // that the cycle ended on
};

// One row a cycle, as columns of the caller.
struct Rows {
    int64_t *start_ns;
    int64_t *calls_ns;  // [n][CALL_COUNT]
    int32_t *status;
    int8_t *failed_call;
    int32_t *ordinal;
    int32_t *compression;
    int32_t *cpu;
};

inline void store(const Row &row, const Rows &rows, size_t i) {
    rows.start_ns[i] = row.start_ns;
    std::memcpy(rows.calls_ns + i * CALL_COUNT, row.calls_ns, sizeof row.calls_ns);
    rows.status[i] = row.status;
    rows.failed_call[i] = row.failed_call;
    rows.ordinal[i] = row.ordinal;
    rows.compression[i] = row.compression;
    rows.cpu[i] = row.cpu;
}

inline int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// Mean cost of the timing alone: seven empty intervals, as in a cycle.
inline double empty_interval_ns(int repeats) {
    const int64_t begin = now_ns();
    int64_t last = begin;
    for (int i = 0; i < repeats; ++i)
        last = now_ns();
    return static_cast<double>(last - begin) / repeats;
}

// What a cycle holds; what a failed cycle gives back.
struct Held {
    const EntryPoints &cuda;
    size_t size_bytes;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    bool reserved = false, created = false, mapped = false;

    // Each teardown call is tried once (more); false when something stays held.
    bool give_back() {
        if (mapped)
            mapped = cuda.unmap(address, size_bytes) != CUDA_SUCCESS;
        if (created)
            created = cuda.release(handle) != CUDA_SUCCESS;
        if (reserved && !mapped)
            reserved = cuda.address_free(address, size_bytes) != CUDA_SUCCESS;
        return !(reserved || created || mapped);
    }
};

inline int32_t read_back_compression(const EntryPoints &cuda, CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp granted;
    std::memset(&granted, 0, sizeof granted);
    if (cuda.properties_from_handle(&granted, handle) != CUDA_SUCCESS)
        return NOT_READ_BACK;
    return granted.allocFlags.compressionType;
}

inline int32_t read_back_ordinal(const EntryPoints &cuda, CUdeviceptr address) {
    int ordinal = NOT_READ_BACK;
    if (cuda.pointer_get_attribute == nullptr ||
        cuda.pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL, address) != CUDA_SUCCESS)
        return NOT_READ_BACK;
    return ordinal;
}

// Runs one cycle into `row`. Every condition makes the same read-backs, so that
// placements differ in nothing but what is measured. Returns false when a call
// failed; `leaked` is set when what the cycle held could not be given back.
inline bool run_cycle(const EntryPoints &cuda, const Condition &condition, Row &row, bool &leaked) {
    const size_t size = condition.size_bytes;
    int64_t *calls_ns = row.calls_ns;
    Held held{cuda, size};
    CUresult status;
    int8_t call;
    int64_t before, after;

    for (int c = 0; c < CALL_COUNT; ++c)
        calls_ns[c] = NO_TIME_NS;
    row.ordinal = row.compression = NOT_READ_BACK;
    row.status = CUDA_SUCCESS;
    row.failed_call = NO_FAILED_CALL;

    before = row.start_ns = now_ns();

    call = RESERVE;
    if ((status = cuda.address_reserve(&held.address, size, 0, 0, 0)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[RESERVE] = after - before;
    before = after;
    held.reserved = true;

    call = CREATE;
    if ((status = cuda.create(&held.handle, size, &condition.prop, 0)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[CREATE] = after - before;
    before = after;
    held.created = true;

    call = MAP;
    if ((status = cuda.map(held.address, size, 0, held.handle, 0)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[MAP] = after - before;
    before = after;
    held.mapped = true;

    call = SET_ACCESS;
    if ((status = cuda.set_access(held.address, size, &condition.access, 1)) != CUDA_SUCCESS)
        goto failed;
    calls_ns[SET_ACCESS] = now_ns() - before;

    row.compression = read_back_compression(cuda, held.handle);
    row.ordinal = read_back_ordinal(cuda, held.address);

    before = now_ns();

    call = UNMAP;
    if ((status = cuda.unmap(held.address, size)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[UNMAP] = after - before;
    before = after;
    held.mapped = false;

    call = RELEASE;
    if ((status = cuda.release(held.handle)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[RELEASE] = after - before;
    before = after;
    held.created = false;

    call = FREE;
    if ((status = cuda.address_free(held.address, size)) != CUDA_SUCCESS)
        goto failed;
    row.end_ns = now_ns();
    calls_ns[FREE] = row.end_ns - before;
    row.cpu = sched_getcpu();
    return true;

failed:
    row.end_ns = now_ns();
    row.status = status;
    row.failed_call = call;
    row.cpu = sched_getcpu();
    leaked = !held.give_back();
    return false;
}

// Runs the visits in order until one fails or `stop` is set; returns the number
// of rows written, a failed one included.
inline size_t run_visits(const EntryPoints &cuda, const Condition *conditions, const int32_t *visits, size_t n,
                         const Rows &rows, const std::atomic<bool> &stop, bool &leaked) {
    leaked = false;
    for (size_t i = 0; i < n; ++i) {
        if (stop.load(std::memory_order_relaxed))
            return i;
        Row row;
        const bool ok = run_cycle(cuda, conditions[visits[i]], row, leaked);
        store(row, rows, i);
        if (!ok)
            return i + 1;
    }
    return n;
}

}  // namespace vmmprof
