// SPDX-License-Identifier: MIT
//
// Bursts alone, on the stub libcuda, under a sanitizer.
//
//     burst_harness THREADS SAMPLES BURSTS [VICTIM]
//
// VICTIM, query or alloc, runs beside every burst; with 0 THREADS it is alone.
// SIGTERM halts the running burst and is the last. Prints one line, "bursts B
// rows R short S failed F leaked L early E victim V", summed over bursts: rows behind the
// common start, workers with fewer samples than asked for, failed cycles, and
// workers that left before another one had its samples.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "burst.hpp"
#include "victim.hpp"

namespace {

using namespace vmmprof;

const EntryPoints DRIVER = {
    cuMemAddressReserve, cuMemCreate,  cuMemMap,
    cuMemSetAccess,      cuMemUnmap,   cuMemRelease,
    cuMemAddressFree,    cuMemGetAllocationPropertiesFromHandle,
    cuMemGetAllocationGranularity, cuPointerGetAttribute, cuCtxSetCurrent,
};

const VictimEntryPoints VICTIM_DRIVER = {
    cuCtxSetCurrent, cuMemGetInfo, cuMemCreate, cuMemRelease, cuLaunchKernel, cuStreamSynchronize,
};

std::atomic<bool> stop{false};

void request_stop(int) {
    stop.store(true);
}

struct Totals {
    size_t bursts = 0, rows = 0, short_of_samples = 0, failed = 0, leaked = 0, left_early = 0, victim = 0;
};

void count(Totals &totals, const std::vector<BurstWorker> &workers, size_t samples) {
    ++totals.bursts;
    int64_t last_reached_ns = 0, first_left_ns = INT64_MAX;
    for (const BurstWorker &worker : workers) {
        totals.rows += worker.rows.empty() ? 0 : worker.rows.size() - 1;
        totals.leaked += worker.leaked;
        totals.failed += !worker.rows.empty() && worker.rows.back().status != CUDA_SUCCESS;
        totals.short_of_samples += worker.rows.size() < samples + 1;
        if (worker.rows.size() > samples) {
            last_reached_ns = std::max(last_reached_ns, worker.rows[samples].end_ns);
            first_left_ns = std::min(first_left_ns, worker.rows.back().end_ns);
        }
    }
    totals.left_early += first_left_ns < last_reached_ns;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    const size_t threads = std::strtoul(argv[1], nullptr, 10);
    const uint32_t samples = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
    const size_t bursts = std::strtoul(argv[3], nullptr, 10);
    std::signal(SIGTERM, request_stop);

    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        return 3;
    const Condition condition = make_condition(0, size_t{2} << 20, -1, false, false);
    VictimJob job{};
    job.kind = argc > 4 && std::strcmp(argv[4], "alloc") == 0 ? VictimKind::ALLOC : VictimKind::QUERY;
    job.context = context;
    job.memory = condition;
    job.pause_ns = 1000;
    job.workers = static_cast<uint32_t>(threads);
    job.operations = samples;
    const auto control = std::make_unique<BurstControl>();
    Totals totals;
    for (size_t i = 0; i < bursts && !stop.load(); ++i) {
        control->reset();
        std::vector<BurstWorker> workers(threads);
        for (size_t w = 0; w < threads; ++w) {
            workers[w].index = static_cast<uint32_t>(w);
            workers[w].context = context;
            workers[w].condition = &condition;
        }
        std::unique_ptr<Victim> victim;
        if (argc > 4)
            victim = std::make_unique<Victim>(VICTIM_DRIVER, job, *control);
        if (threads > 0) {
            Burst burst(DRIVER, workers, *control, static_cast<uint32_t>(threads), samples);
            while (!burst.wait_ms(5))
                if (stop.load())
                    burst.halt();
        }
        while (victim && !victim->wait_ms(5))
            if (stop.load())
                victim->halt();
        if (victim) {
            totals.victim += victim->rows().size();
            totals.failed += victim->status() != CUDA_SUCCESS;
        }
        count(totals, workers, samples);
    }
    cuDevicePrimaryCtxRelease(0);
    std::printf("bursts %zu rows %zu short %zu failed %zu leaked %zu early %zu victim %zu\n", totals.bursts, totals.rows,
                totals.short_of_samples, totals.failed, totals.leaked, totals.left_early, totals.victim);
    return 0;
}
