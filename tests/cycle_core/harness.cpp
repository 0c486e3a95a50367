// SPDX-License-Identifier: MIT
//
// The timing core alone, on the stub libcuda, under a sanitizer: threads that
// start together, share the conditions and the stop flag, and write rows of
// their own.
//
//     harness THREADS CYCLES
//
// SIGTERM sets the stop flag. Prints one line, "rows R failed F leaked L
// mismatched M", summed over threads; mismatched rows read back something else
// than was asked for. A thread goes on behind a failed cycle, as the profiler
// does, but not behind memory that could not be given back.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cycle_core.hpp"

namespace {

using namespace vmmprof;

constexpr size_t MIB = size_t{1} << 20;

const EntryPoints DRIVER = {
    cuMemAddressReserve, cuMemCreate,  cuMemMap,
    cuMemSetAccess,      cuMemUnmap,   cuMemRelease,
    cuMemAddressFree,    cuMemGetAllocationPropertiesFromHandle,
    cuMemGetAllocationGranularity, cuPointerGetAttribute, cuCtxSetCurrent,
};

struct Wanted {
    int ordinal;
    int compression;
};

const std::vector<Condition> CONDITIONS = {
    make_condition(0, 2 * MIB, -1, false, false),
    make_condition(0, 4 * MIB, 0, false, false),
    make_condition(0, 2 * MIB, 1, true, false),
    make_condition(0, 6 * MIB, -1, true, true),
};
const std::vector<Wanted> WANTED = {{-1, 0}, {0, 0}, {1, 1}, {-1, 1}};

struct Totals {
    size_t rows = 0, failed = 0, leaked = 0, mismatched = 0;
};

struct Worker {
    std::vector<int32_t> visits;
    std::vector<int64_t> start_ns, calls_ns;
    std::vector<int32_t> status, ordinal, compression, cpu;
    std::vector<int8_t> failed_call;
    Totals totals;

    Worker(size_t cycles, size_t offset)
        : visits(cycles), start_ns(cycles), calls_ns(cycles * CALL_COUNT), status(cycles), ordinal(cycles),
          compression(cycles), cpu(cycles), failed_call(cycles) {
        for (size_t i = 0; i < cycles; ++i)
            visits[i] = static_cast<int32_t>((i + offset) % CONDITIONS.size());
    }

    void count(size_t first, size_t rows, bool leaked) {
        totals.rows += rows;
        totals.leaked += leaked;
        for (size_t i = first; i < first + rows; ++i) {
            const Wanted &wanted = WANTED[static_cast<size_t>(visits[i])];
            if (status[i] != CUDA_SUCCESS)
                ++totals.failed;
            else if (ordinal[i] != wanted.ordinal || compression[i] != wanted.compression)
                ++totals.mismatched;
        }
    }

    void run(CUcontext context, const std::atomic<bool> &stop) {
        cuCtxSetCurrent(context);
        bool leaked = false;
        for (size_t done = 0; done < visits.size() && !leaked && !stop.load();) {
            const Rows rows{&start_ns[done], &calls_ns[done * CALL_COUNT], &status[done],
                            &failed_call[done], &ordinal[done], &compression[done],
                            &cpu[done]};
            const size_t n =
                run_visits(DRIVER, CONDITIONS.data(), &visits[done], visits.size() - done, rows, stop, leaked);
            count(done, n, leaked);
            done += n;
        }
    }
};

std::atomic<bool> stop{false};

void request_stop(int) {
    stop.store(true);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    const size_t thread_count = std::strtoul(argv[1], nullptr, 10);
    const size_t cycles = std::strtoul(argv[2], nullptr, 10);
    std::signal(SIGTERM, request_stop);

    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        return 3;

    std::vector<Worker> workers;
    for (size_t i = 0; i < thread_count; ++i)
        workers.emplace_back(cycles, i);
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (Worker &worker : workers)
        threads.emplace_back([&worker, &go, context] {
            while (!go.load())
                std::this_thread::yield();
            worker.run(context, stop);
        });
    go.store(true);
    for (std::thread &thread : threads)
        thread.join();
    cuDevicePrimaryCtxRelease(0);

    Totals sum;
    for (const Worker &worker : workers) {
        sum.rows += worker.totals.rows;
        sum.failed += worker.totals.failed;
        sum.leaked += worker.totals.leaked;
        sum.mismatched += worker.totals.mismatched;
    }
    std::printf("rows %zu failed %zu leaked %zu mismatched %zu\n", sum.rows, sum.failed, sum.leaked, sum.mismatched);
    return 0;
}
