// SPDX-License-Identifier: MIT
//
// NVTX ranges around the driver calls of a cycle, for a profiler that is
// attached to the process. The entry points are exchanged for ones that open a
// range of the call's name, so that the core without ranges is the same code.
// Without a profiler a range costs a few ns; with one it costs what the
// profiler takes, inside the time of the call.
#pragma once

#include "cycle_core.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define VMMPROF_HAS_NVTX 1
#else
#define VMMPROF_HAS_NVTX 0
#endif

namespace vmmprof {

// Whether the core was built where NVTX's header is (wheel nvidia-nvtx).
constexpr bool HAS_NVTX = VMMPROF_HAS_NVTX;

#if VMMPROF_HAS_NVTX

namespace ranges {

// The driver's own entry points; set before the first cycle and the same for every core.
inline EntryPoints real;

class Range {
  public:
    explicit Range(const char *name) { nvtxRangePushA(name); }
    ~Range() { nvtxRangePop(); }
    Range(const Range &) = delete;
    Range &operator=(const Range &) = delete;
};

inline CUresult CUDAAPI address_reserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr near,
                                        unsigned long long flags) {
    Range range("cuMemAddressReserve");
    return real.address_reserve(address, size, alignment, near, flags);
}

inline CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                               unsigned long long flags) {
    Range range("cuMemCreate");
    return real.create(handle, size, prop, flags);
}

inline CUresult CUDAAPI map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags) {
    Range range("cuMemMap");
    return real.map(address, size, offset, handle, flags);
}

inline CUresult CUDAAPI set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
    Range range("cuMemSetAccess");
    return real.set_access(address, size, access, count);
}

inline CUresult CUDAAPI unmap(CUdeviceptr address, size_t size) {
    Range range("cuMemUnmap");
    return real.unmap(address, size);
}

inline CUresult CUDAAPI release(CUmemGenericAllocationHandle handle) {
    Range range("cuMemRelease");
    return real.release(handle);
}

inline CUresult CUDAAPI address_free(CUdeviceptr address, size_t size) {
    Range range("cuMemAddressFree");
    return real.address_free(address, size);
}

inline CUresult CUDAAPI alloc_from_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
    Range range("cuMemAllocFromPoolAsync");
    return real.alloc_from_pool(address, size, pool, stream);
}

inline CUresult CUDAAPI free_async(CUdeviceptr address, CUstream stream) {
    Range range("cuMemFreeAsync");
    return real.free_async(address, stream);
}

inline CUresult CUDAAPI stream_synchronize(CUstream stream) {
    Range range("cuStreamSynchronize");
    return real.stream_synchronize(stream);
}

} // namespace ranges

// Exchange the timed calls for ones with ranges; what is null stays null.
inline void add_ranges(EntryPoints &entry_points) {
    ranges::real = entry_points;
    entry_points.address_reserve = ranges::address_reserve;
    entry_points.create = ranges::create;
    entry_points.map = ranges::map;
    entry_points.set_access = ranges::set_access;
    entry_points.unmap = ranges::unmap;
    entry_points.release = ranges::release;
    entry_points.address_free = ranges::address_free;
    if (entry_points.alloc_from_pool != nullptr) {
        entry_points.alloc_from_pool = ranges::alloc_from_pool;
        entry_points.free_async = ranges::free_async;
        entry_points.stream_synchronize = ranges::stream_synchronize;
    }
}

#else

inline void add_ranges(EntryPoints &) {}

#endif

} // namespace vmmprof
