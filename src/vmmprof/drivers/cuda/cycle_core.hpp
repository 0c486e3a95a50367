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
#include <vector>

#include <sched.h>

#include <cuda.h>

namespace vmmprof {

enum Call : int8_t { RESERVE, CREATE, MAP, SET_ACCESS, UNMAP, RELEASE, FREE, CALL_COUNT };
// A cycle with a pool has these in their place.
enum PoolCall : int8_t { POOL_ALLOC, POOL_ALLOC_SYNC, POOL_FREE, POOL_FREE_SYNC, POOL_CALL_COUNT };

constexpr uint32_t MAX_PEERS = 64;

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
    // Null where no condition has a pool.
    CUresult(CUDAAPI *alloc_from_pool)(CUdeviceptr *, size_t, CUmemoryPool, CUstream) = nullptr;
    CUresult(CUDAAPI *free_async)(CUdeviceptr, CUstream) = nullptr;
    CUresult(CUDAAPI *stream_synchronize)(CUstream) = nullptr;
};

struct Condition {
    CUmemAllocationProp prop;
    CUmemAccessDesc access[MAX_PEERS];
    uint32_t access_count;
    bool call_a_peer;  // access is granted with a call for each device, not in one for all
    size_t size_bytes;
    size_t chunk_bytes;  // divides size_bytes; equal to it for memory in one chunk
    CUmemoryPool pool;   // not null: a pool cycle, which looks at no other field but the size
};

inline Condition make_condition(int device, size_t size_bytes, int domain, bool compressible, bool rdma) {
    Condition condition;
    std::memset(&condition, 0, sizeof condition);
    condition.size_bytes = condition.chunk_bytes = size_bytes;
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
    condition.access_count = 1;
    condition.access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    condition.access[0].location.id = device;
    condition.access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return condition;
}

// Another device that access is granted to; at most MAX_PEERS in all.
inline void add_peer(Condition &condition, int device) {
    CUmemAccessDesc &access = condition.access[condition.access_count++];
    access = condition.access[0];
    access.location.id = device;
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

// Handles of a cycle's chunks; the usual one needs no memory for it.
class Handles {
  public:
    explicit Handles(size_t count) : many_(count > 1 ? count : 0) {}
    CUmemGenericAllocationHandle &operator[](size_t i) { return many_.empty() ? one_ : many_[i]; }

  private:
    CUmemGenericAllocationHandle one_ = 0;
    std::vector<CUmemGenericAllocationHandle> many_;
};

// What a cycle holds; what a failed cycle gives back.
struct Held {
    const EntryPoints &cuda;
    const size_t size_bytes, chunk_bytes;
    Handles handles;
    CUdeviceptr address = 0;
    bool reserved = false;
    // Chunks [released, created) have a handle, the first `mapped` are mapped.
    size_t created = 0, released = 0, mapped = 0;

    Held(const EntryPoints &entry_points, const Condition &condition)
        : cuda(entry_points), size_bytes(condition.size_bytes), chunk_bytes(condition.chunk_bytes),
          handles(condition.size_bytes / condition.chunk_bytes) {}

    // Each teardown call is tried once (more); false when something stays held.
    bool give_back() {
        bool all = true;
        if (mapped > 0 && cuda.unmap(address, mapped * chunk_bytes) == CUDA_SUCCESS)
            mapped = 0;
        for (; released < created; ++released)
            all &= cuda.release(handles[released]) == CUDA_SUCCESS;
        if (reserved && mapped == 0)
            reserved = cuda.address_free(address, size_bytes) != CUDA_SUCCESS;
        return all && !reserved && mapped == 0;
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

// What all chunks read back; NOT_READ_BACK when they differ.
template <typename ReadBack> int32_t read_back_all(size_t chunks, ReadBack &&read_back) {
    const int32_t first = read_back(size_t{0});
    for (size_t c = 1; c < chunks; ++c)
        if (read_back(c) != first)
            return NOT_READ_BACK;
    return first;
}

// Runs one cycle of virtual memory management into `row`. Every condition makes
// the same read-backs, so that placements differ in nothing but what is
// measured. A call that is made for each chunk or peer has the sum of its calls.
// Returns false when a call failed; `leaked` is set when what the cycle held
// could not be given back.
inline bool run_vmm_cycle(const EntryPoints &cuda, const Condition &condition, Row &row, bool &leaked) {
    const size_t size = condition.size_bytes, chunk = condition.chunk_bytes, chunks = size / chunk;
    int64_t *calls_ns = row.calls_ns;
    Held held(cuda, condition);
    CUresult status;
    int8_t call;
    int64_t before, after;

    before = row.start_ns = now_ns();

    call = RESERVE;
    if ((status = cuda.address_reserve(&held.address, size, 0, 0, 0)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[RESERVE] = after - before;
    before = after;
    held.reserved = true;

    call = CREATE;
    for (; held.created < chunks; ++held.created)
        if ((status = cuda.create(&held.handles[held.created], chunk, &condition.prop, 0)) != CUDA_SUCCESS)
            goto failed;
    after = now_ns();
    calls_ns[CREATE] = after - before;
    before = after;

    call = MAP;
    for (; held.mapped < chunks; ++held.mapped)
        if ((status = cuda.map(held.address + held.mapped * chunk, chunk, 0, held.handles[held.mapped], 0)) !=
            CUDA_SUCCESS)
            goto failed;
    after = now_ns();
    calls_ns[MAP] = after - before;
    before = after;

    call = SET_ACCESS;
    if (condition.call_a_peer) {
        for (uint32_t peer = 0; peer < condition.access_count; ++peer)
            if ((status = cuda.set_access(held.address, size, &condition.access[peer], 1)) != CUDA_SUCCESS)
                goto failed;
    } else if ((status = cuda.set_access(held.address, size, condition.access, condition.access_count)) !=
               CUDA_SUCCESS) {
        goto failed;
    }
    calls_ns[SET_ACCESS] = now_ns() - before;

    row.compression = read_back_all(chunks, [&](size_t c) { return read_back_compression(cuda, held.handles[c]); });
    row.ordinal = read_back_all(chunks, [&](size_t c) { return read_back_ordinal(cuda, held.address + c * chunk); });

    before = now_ns();

    call = UNMAP;
    if ((status = cuda.unmap(held.address, size)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[UNMAP] = after - before;
    before = after;
    held.mapped = 0;

    call = RELEASE;
    for (; held.released < chunks; ++held.released)
        if ((status = cuda.release(held.handles[held.released])) != CUDA_SUCCESS)
            goto failed;
    after = now_ns();
    calls_ns[RELEASE] = after - before;
    before = after;

    call = FREE;
    if ((status = cuda.address_free(held.address, size)) != CUDA_SUCCESS)
        goto failed;
    row.end_ns = now_ns();
    calls_ns[FREE] = row.end_ns - before;
    return true;

failed:
    row.end_ns = now_ns();
    row.status = status;
    row.failed_call = call;
    leaked = !held.give_back();
    return false;
}

// Runs one cycle of a memory pool on the thread's own stream. A pool that keeps
// nothing gives memory back when the stream is waited for, so that is a call of
// its own. Compression is nothing that a pool can be asked for.
inline bool run_pool_cycle(const EntryPoints &cuda, const Condition &condition, Row &row, bool &leaked) {
    const CUstream stream = CU_STREAM_PER_THREAD;
    int64_t *calls_ns = row.calls_ns;
    CUdeviceptr address = 0;
    CUresult status;
    int8_t call;
    int64_t before, after;
    bool allocated = false;

    before = row.start_ns = now_ns();

    call = POOL_ALLOC;
    if ((status = cuda.alloc_from_pool(&address, condition.size_bytes, condition.pool, stream)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[POOL_ALLOC] = after - before;
    before = after;
    allocated = true;

    call = POOL_ALLOC_SYNC;
    if ((status = cuda.stream_synchronize(stream)) != CUDA_SUCCESS)
        goto failed;
    calls_ns[POOL_ALLOC_SYNC] = now_ns() - before;

    row.compression = 0;
    row.ordinal = read_back_ordinal(cuda, address);

    before = now_ns();

    call = POOL_FREE;
    if ((status = cuda.free_async(address, stream)) != CUDA_SUCCESS)
        goto failed;
    after = now_ns();
    calls_ns[POOL_FREE] = after - before;
    before = after;
    allocated = false;

    call = POOL_FREE_SYNC;
    if ((status = cuda.stream_synchronize(stream)) != CUDA_SUCCESS)
        goto failed;
    row.end_ns = now_ns();
    calls_ns[POOL_FREE_SYNC] = row.end_ns - before;
    return true;

failed:
    row.end_ns = now_ns();
    row.status = status;
    row.failed_call = call;
    leaked = allocated && cuda.free_async(address, stream) != CUDA_SUCCESS;
    return false;
}

// Runs the condition's cycle into `row`; returns false when a call of it failed.
inline bool run_cycle(const EntryPoints &cuda, const Condition &condition, Row &row, bool &leaked) {
    for (int64_t &call_ns : row.calls_ns)
        call_ns = NO_TIME_NS;
    row.ordinal = row.compression = NOT_READ_BACK;
    row.status = CUDA_SUCCESS;
    row.failed_call = NO_FAILED_CALL;
    const bool ok = condition.pool != nullptr ? run_pool_cycle(cuda, condition, row, leaked)
                                              : run_vmm_cycle(cuda, condition, row, leaked);
    row.cpu = sched_getcpu();
    return ok;
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
