// SPDX-License-Identifier: MIT
//
// A victim: one thread that does a single small thing again and again while the
// workers of a burst allocate, so that what they cost others can be read off it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "burst.hpp"

namespace vmmprof {

enum class VictimKind : int { QUERY, ALLOC, LAUNCH };

struct VictimEntryPoints {
    CUresult(CUDAAPI *ctx_set_current)(CUcontext);
    CUresult(CUDAAPI *mem_get_info)(size_t *, size_t *);
    CUresult(CUDAAPI *create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult(CUDAAPI *release)(CUmemGenericAllocationHandle);
    CUresult(CUDAAPI *launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     CUstream, void **, void **);
    CUresult(CUDAAPI *stream_synchronize)(CUstream);
};

struct VictimJob {
    VictimKind kind;
    CUcontext context;
    Condition memory;     // that ALLOC takes and gives back
    CUfunction function;  // that LAUNCH starts on the stream, and waits for
    CUstream stream;
    int64_t pause_ns;  // between two operations
    uint32_t workers;  // that it is the victim of; 0: it is alone, for `operations` of them
    uint32_t operations;
};

struct VictimRow {
    int64_t start_ns, end_ns;
    int32_t cpu;
};

// Rows are kept up to here; a burst that takes longer is seen by its beginning.
constexpr size_t VICTIM_ROWS = size_t{1} << 16;

class Victim {
  public:
    Victim(const VictimEntryPoints &cuda, const VictimJob &job, BurstControl &control)
        : cuda_(cuda), job_(job), control_(control) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] {
                run();
                std::lock_guard<std::mutex> lock(mutex_);
                ended_ = true;
                ending_.notify_all();
            });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~Victim() {
        if (!wait_ms(0))
            halt();
        thread_.join();
    }

    bool wait_ms(int ms) {
        std::unique_lock<std::mutex> lock(mutex_);
        return ending_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return ended_; });
    }

    void halt() { control_.halted = 1; }

    // Once it has ended. The first row ran before the common start.
    const std::vector<VictimRow> &rows() const { return rows_; }
    CUresult status() const { return status_; }

  private:
    void run() {
        if ((status_ = cuda_.ctx_set_current(job_.context)) != CUDA_SUCCESS) {
            halt();
            return;
        }
        rows_.reserve(VICTIM_ROWS);
        if (!operate())
            return;
        wait_for_all(control_.arrived, job_.workers, control_);
        for (uint32_t done = 0; goes_on(done); ++done) {
            if (!operate())
                return;
            pause();
        }
    }

    bool goes_on(uint32_t done) const {
        if (control_.halted.load(std::memory_order_acquire) != 0)
            return false;
        if (job_.workers == 0)
            return done < job_.operations;
        return control_.settled.load(std::memory_order_acquire) < job_.workers;
    }

    bool operate() {
        VictimRow row;
        row.start_ns = now_ns();
        status_ = operation();
        row.end_ns = now_ns();
        row.cpu = sched_getcpu();
        if (status_ != CUDA_SUCCESS) {
            halt();
            return false;
        }
        if (rows_.size() < VICTIM_ROWS)
            rows_.push_back(row);
        return true;
    }

    CUresult operation() {
        size_t free_bytes, total_bytes;
        CUmemGenericAllocationHandle handle;
        CUresult status;
        switch (job_.kind) {
        case VictimKind::QUERY:
            return cuda_.mem_get_info(&free_bytes, &total_bytes);
        case VictimKind::ALLOC:
            status = cuda_.create(&handle, job_.memory.size_bytes, &job_.memory.prop, 0);
            return status != CUDA_SUCCESS ? status : cuda_.release(handle);
        case VictimKind::LAUNCH:
            status = cuda_.launch_kernel(job_.function, 1, 1, 1, 1, 1, 1, 0, job_.stream, nullptr, nullptr);
            return status != CUDA_SUCCESS ? status : cuda_.stream_synchronize(job_.stream);
        }
        return CUDA_ERROR_INVALID_VALUE;
    }

    // Awake: a sleep would add the timer's slack and a cold CPU to what follows.
    void pause() const {
        for (const int64_t end = now_ns() + job_.pause_ns; now_ns() < end;)
            std::this_thread::yield();
    }

    const VictimEntryPoints &cuda_;
    const VictimJob job_;
    BurstControl &control_;
    std::vector<VictimRow> rows_;
    CUresult status_ = CUDA_SUCCESS;
    std::mutex mutex_;
    std::condition_variable ending_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace vmmprof
