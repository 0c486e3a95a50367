// SPDX-License-Identifier: MIT
//
// Bursts: several threads, of one or more processes, that run cycles at the
// same time. All meet at a barrier, and each goes on until every one of them
// has its samples, so that no sample is taken while a worker stands still.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>

#include "cycle_core.hpp"

namespace vmmprof {

constexpr uint32_t MAX_WORKERS = 1024;

// What is known of a worker even if its process is killed; a cache line each.
struct alignas(64) WorkerTrace {
    std::atomic<int64_t> first_start_ns;  // behind the barrier; 0: not yet
    std::atomic<int64_t> last_end_ns;
};

// Where the workers of a burst meet. It lies in the memory of one process, or
// in memory that processes share; zeroed before each burst, while nobody runs.
struct BurstControl {
    std::atomic<uint32_t> arrived;  // workers at the barrier
    std::atomic<uint32_t> reached;  // workers that have their samples
    std::atomic<uint32_t> settled;  // workers with a cycle that ended no earlier than the last one's reaching
    std::atomic<uint32_t> halted;   // not 0: leave after the current cycle
    std::atomic<int64_t> reached_ns;  // when the last of those that reached did
    WorkerTrace traces[MAX_WORKERS];

    // The time is in place before the count says so.
    void reach(int64_t end_ns) {
        int64_t latest_ns = reached_ns.load(std::memory_order_relaxed);
        while (latest_ns < end_ns &&
               !reached_ns.compare_exchange_weak(latest_ns, end_ns, std::memory_order_acq_rel))
            continue;
        reached.fetch_add(1, std::memory_order_acq_rel);
    }

    // A cycle can have ended before the last worker's, and its worker come to ask only
    // afterwards: the count alone would let it leave with a sample missing from the window.
    bool all_reached_by(int64_t end_ns, uint32_t workers) const {
        return reached.load(std::memory_order_acquire) == workers &&
               end_ns >= reached_ns.load(std::memory_order_acquire);
    }

    void reset() {
        arrived = 0;
        reached = 0;
        settled = 0;
        halted = 0;
        reached_ns = 0;
        for (WorkerTrace &trace : traces) {
            trace.first_start_ns.store(0, std::memory_order_relaxed);
            trace.last_end_ns.store(0, std::memory_order_relaxed);
        }
    }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "processes share these");

struct BurstWorker {
    uint32_t index;  // among the workers of all processes
    CUcontext context;
    const Condition *condition;
    CUresult context_status;  // of setting the context; not CUDA_SUCCESS: no row
    bool leaked;
    std::vector<Row> rows;         // the first one ran before the common start
    std::vector<uint32_t> repeat;  // of each row: its cycle's number, 0 the first one
    // Of each row: when its cycle was to start, its start where none was intended.
    std::vector<int64_t> intended_ns;
};

// When cycles are to start: an open loop goes by the clock and not by when the
// cycle before has ended, so that a wait shows as lateness of all that it held up.
struct Schedule {
    int64_t spacing_ns;  // 0: a closed loop
    int64_t begin_ns;    // of the first cycle

    int64_t intended(uint32_t number) const { return begin_ns + static_cast<int64_t>(number) * spacing_ns; }
};

// Awake, so that a start is not late by the timer's slack.
inline void wait_until(int64_t when_ns, const BurstControl &control) {
    while (now_ns() < when_ns && control.halted.load(std::memory_order_acquire) == 0)
        std::this_thread::yield();
}

// Locks are not fair: while one worker waits for its turn another can run
// thousands of cycles. Rows are kept up to this multiple of the samples; from
// then on a worker's last row is that of its latest cycle.
constexpr size_t KEPT_MULTIPLE = 8;

// Spinning alone would starve the workers that are waited for where there are
// more of them than CPUs.
inline void wait_for_all(const std::atomic<uint32_t> &arrived, uint32_t workers, const BurstControl &control) {
    while (arrived.load(std::memory_order_acquire) < workers && control.halted.load(std::memory_order_acquire) == 0)
        std::this_thread::yield();
}

// One worker's part of a burst of `workers` workers with `samples` samples each.
//
// A worker goes on behind its own samples until all have theirs, and then until
// the cycles that were under way at that moment have ended, too: so each cycle
// that began while all were running also ended while all were running, and long
// cycles are not cut off more often than short ones. A failed cycle ends the
// burst for all.
inline void run_worker(const EntryPoints &cuda, BurstWorker &worker, BurstControl &control, uint32_t workers,
                       uint32_t samples, int64_t spacing_ns) {
    worker.leaked = false;
    worker.context_status = cuda.ctx_set_current(worker.context);
    const size_t kept = KEPT_MULTIPLE * samples + 1;
    worker.rows.reserve(kept);
    worker.repeat.reserve(kept);
    worker.intended_ns.reserve(kept);
    uint32_t number = 0;
    auto cycle = [&] {
        if (worker.rows.size() < kept) {
            worker.rows.emplace_back();
            worker.repeat.emplace_back();
            worker.intended_ns.emplace_back();
        }
        worker.repeat.back() = number++;
        const bool ok = run_cycle(cuda, *worker.condition, worker.rows.back(), worker.leaked);
        worker.intended_ns.back() = worker.rows.back().start_ns;
        return ok;
    };
    // The first cycle of a thread pays for what the driver sets up for it.
    if (worker.context_status != CUDA_SUCCESS || !cycle()) {
        control.halted = 1;
        return;
    }
    control.arrived.fetch_add(1, std::memory_order_acq_rel);
    wait_for_all(control.arrived, workers, control);

    // Workers of an open loop take turns, as independent users would on average.
    const Schedule schedule{spacing_ns, now_ns() + spacing_ns * worker.index / workers};
    WorkerTrace &trace = control.traces[worker.index];
    bool settled = false;
    for (uint32_t taken = 0; control.halted.load(std::memory_order_acquire) == 0;) {
        const int64_t intended_ns = schedule.intended(taken);
        if (spacing_ns > 0) {
            wait_until(intended_ns, control);
            if (control.halted.load(std::memory_order_acquire) != 0)
                return;
        }
        if (!cycle()) {
            control.halted = 1;
            return;
        }
        if (spacing_ns > 0)
            worker.intended_ns.back() = intended_ns;
        if (taken == 0)
            trace.first_start_ns.store(worker.rows.back().start_ns, std::memory_order_relaxed);
        const int64_t end_ns = worker.rows.back().end_ns;
        trace.last_end_ns.store(end_ns, std::memory_order_relaxed);
        if (++taken == samples)
            control.reach(end_ns);
        if (!settled && control.all_reached_by(end_ns, workers)) {
            settled = true;
            control.settled.fetch_add(1, std::memory_order_acq_rel);
        }
        if (settled && control.settled.load(std::memory_order_acquire) == workers)
            return;
    }
}

// The workers of one process as threads; they run from the constructor on.
class Burst {
  public:
    Burst(const EntryPoints &cuda, std::vector<BurstWorker> &workers_here, BurstControl &control, uint32_t workers,
          uint32_t samples, int64_t spacing_ns = 0)
        : control_(control), running_(workers_here.size()) {
        // Signals are for the thread that waits: one that met a worker would lengthen a call.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (BurstWorker &worker : workers_here) {
                threads_.emplace_back([this, &cuda, &worker, &control, workers, samples, spacing_ns] {
                    run_worker(cuda, worker, control, workers, samples, spacing_ns);
                    finish_one();
                });
            }
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            halt_and_join();
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~Burst() { halt_and_join(); }

    // Whether all threads have ended, after at most `ms` milliseconds.
    bool wait_ms(int ms) {
        std::unique_lock<std::mutex> lock(mutex_);
        return ended_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return running_ == 0; });
    }

    void halt() { control_.halted = 1; }

  private:
    void finish_one() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (--running_ == 0)
            ended_.notify_all();
    }

    void halt_and_join() {
        if (!threads_.empty() && !wait_ms(0))
            halt();
        for (std::thread &thread : threads_)
            thread.join();
        threads_.clear();
    }

    BurstControl &control_;
    std::mutex mutex_;
    std::condition_variable ended_;
    size_t running_;
    std::vector<std::thread> threads_;
};

}  // namespace vmmprof
