# SPDX-License-Identifier: MIT
# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language=c++
"""The timing core of cycle_core.hpp for Python; the GIL is free while cycles run."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector
from cpython.exc cimport PyErr_CheckSignals

cimport cuda.bindings.cydriver as cydriver

import numpy as np


cdef extern from "<atomic>" namespace "std" nogil:
    cdef cppclass atomic_bool "std::atomic<bool>":
        atomic_bool()
        void store(cbool)
        cbool load()
    cdef cppclass atomic_uint32 "std::atomic<uint32_t>":
        void store(uint32_t)
    cdef cppclass atomic_int64 "std::atomic<int64_t>":
        int64_t load()


cdef extern from "cuda.h" nogil:
    ctypedef int CUresult


cdef extern from "cycle_core.hpp" namespace "vmmprof" nogil:
    const int CALL_COUNT
    const int32_t NOT_READ_BACK_ "vmmprof::NOT_READ_BACK"

    cdef cppclass EntryPoints:
        void *address_reserve
    cdef cppclass Condition:
        size_t chunk_bytes
        cbool call_a_peer
        cydriver.CUmemoryPool pool
    const uint32_t MAX_PEERS_ "vmmprof::MAX_PEERS"
    void add_peer(Condition &, int device)
    cdef struct Rows:
        int64_t *start_ns
        int64_t *calls_ns
        int32_t *status
        int8_t *failed_call
        int32_t *ordinal
        int32_t *compression
        int32_t *cpu
    cdef struct Row:
        int64_t start_ns
        int64_t end_ns
        int64_t *calls_ns
        int32_t status
        int8_t failed_call
        int32_t ordinal
        int32_t compression
        int32_t cpu

    CUresult get_granularity(const EntryPoints &, const Condition &, size_t *)
    Condition make_condition(int device, size_t size_bytes, int domain, cbool compressible, cbool rdma)
    double empty_interval_ns(int repeats)
    size_t run_visits(const EntryPoints &, const Condition *, const int32_t *visits, size_t n,
                      const Rows &, const atomic_bool &stop, cbool &leaked)


cdef extern from "nvtx.hpp" namespace "vmmprof" nogil:
    const cbool HAS_NVTX_ "vmmprof::HAS_NVTX"
    void add_ranges(EntryPoints &)


cdef extern from "burst.hpp" namespace "vmmprof" nogil:
    const uint32_t MAX_WORKERS_ "vmmprof::MAX_WORKERS"
    cdef cppclass WorkerTrace:
        atomic_int64 first_start_ns
        atomic_int64 last_end_ns
    cdef cppclass BurstControl:
        atomic_uint32 halted
        WorkerTrace *traces
        void reset()
    cdef cppclass BurstWorker:
        uint32_t index
        cydriver.CUcontext context
        const Condition *condition
        CUresult context_status
        cbool leaked
        vector[Row] rows
        vector[uint32_t] repeat
        vector[int64_t] intended_ns
    cdef cppclass Burst:
        Burst(const EntryPoints &, vector[BurstWorker] &, BurstControl &, uint32_t workers,
              uint32_t samples, int64_t spacing_ns) except +
        cbool wait_ms(int)
        void halt()


cdef extern from "victim.hpp" namespace "vmmprof" nogil:
    cdef cppclass VictimEntryPoints:
        void *ctx_set_current
    cdef enum VictimKind "vmmprof::VictimKind":
        pass
    cdef cppclass VictimJob:
        VictimKind kind
        cydriver.CUcontext context
        Condition memory
        cydriver.CUfunction function
        cydriver.CUstream stream
        int64_t pause_ns
        uint32_t workers
        uint32_t operations
    cdef struct VictimRow:
        int64_t start_ns
        int64_t end_ns
        int32_t cpu
    cdef cppclass Victim:
        Victim(const VictimEntryPoints &, const VictimJob &, BurstControl &) except +
        cbool wait_ms(int)
        void halt()
        const vector[VictimRow] &rows()
        CUresult status()


NOT_READ_BACK = NOT_READ_BACK_

# In the order of the EntryPoints table; each symbol is at the version that the
# VMM interface was introduced with, which every later driver still gives.
_SYMBOLS = (
    b"cuMemAddressReserve",
    b"cuMemCreate",
    b"cuMemMap",
    b"cuMemSetAccess",
    b"cuMemUnmap",
    b"cuMemRelease",
    b"cuMemAddressFree",
    b"cuMemGetAllocationPropertiesFromHandle",
    b"cuMemGetAllocationGranularity",
    b"cuPointerGetAttribute",
    b"cuCtxSetCurrent",
    b"cuMemAllocFromPoolAsync",
    b"cuMemFreeAsync",
    b"cuStreamSynchronize",
)
# What only cycles of a pool call.
_POOL_SYMBOLS = (b"cuMemAllocFromPoolAsync", b"cuMemFreeAsync", b"cuStreamSynchronize")
cdef int _SYMBOL_VERSION = 12000


class MissingSymbolError(Exception):
    """The driver has no entry point of that name."""


cdef void *_resolve(bytes symbol) except NULL:
    cdef void *entry = NULL
    cdef cydriver.CUdriverProcAddressQueryResult found
    cdef cydriver.CUresult status = cydriver.cuGetProcAddress(symbol, &entry, _SYMBOL_VERSION, 0, &found)
    if status != cydriver.CUresult.CUDA_SUCCESS or entry == NULL:
        raise MissingSymbolError(symbol.decode())
    return entry


def empty_interval_cost_ns(int repeats=100_000):
    """Mean ns between two successive clock readings, the part of each call that is not the call."""
    return empty_interval_ns(repeats)


MAX_WORKERS = MAX_WORKERS_
HAS_NVTX = HAS_NVTX_
# Bytes, aligned to 64, that the workers of a burst meet in; memory that processes share must hold them.
BURST_CONTROL_BYTES = sizeof(BurstControl)
# How often the thread that waits for a burst lets signal handlers run.
cdef int _WAIT_MS = 20


cdef BurstControl *_control(unsigned char[::1] memory) except NULL:
    if memory.shape[0] < <Py_ssize_t>sizeof(BurstControl) or <uintptr_t>&memory[0] % 64:
        raise ValueError(f"a burst needs {sizeof(BurstControl)} aligned bytes to meet in")
    return <BurstControl *>&memory[0]


def reset_burst(unsigned char[::1] memory not None):
    """Make ready for the next burst; only while no worker runs."""
    _control(memory).reset()


def halt_burst(unsigned char[::1] memory not None):
    """Let every worker of the burst leave after its current cycle."""
    _control(memory).halted.store(1)


def worker_trace(unsigned char[::1] memory not None, uint32_t worker):
    """(first start, last end) in ns of a worker's cycles behind the barrier, 0 where there is none.

    Known also of a worker whose process was killed.
    """
    if worker >= MAX_WORKERS_:
        raise IndexError(f"worker {worker} of {MAX_WORKERS_}")
    cdef BurstControl *control = _control(memory)
    return control.traces[worker].first_start_ns.load(), control.traces[worker].last_end_ns.load()


cdef class CycleCore:
    """Runs timed cycles on one device, in the context current to the calling thread.

    run_burst() starts threads of its own, each in the context that it is given.
    """

    cdef EntryPoints entry_points
    cdef vector[Condition] conditions
    cdef atomic_bool stop

    def __cinit__(self, *, cbool knows_locality_domains, cbool pools=False, cbool nvtx=False):
        cdef void **table = <void **>&self.entry_points
        for i, symbol in enumerate(_SYMBOLS):
            table[i] = NULL if symbol in _POOL_SYMBOLS and not pools else _resolve(symbol)
        if not knows_locality_domains:
            table[_SYMBOLS.index(b"cuPointerGetAttribute")] = NULL
        if nvtx:
            add_ranges(self.entry_points)

    def prepare(self, conditions):
        """Take the conditions that visits index, as tuples.

        (device, size_bytes, domain or -1, compressible, rdma, chunk_bytes or 0
        for one chunk, other devices that access is granted to, whether each of
        them has a call of its own, address of a memory pool or 0). Also clears
        an earlier request_stop(): between two run() it stays.
        """
        cdef Condition condition
        self.stop.store(False)
        self.conditions.clear()
        for device, size, domain, compressible, rdma, chunk, peers, call_a_peer, pool in conditions:
            condition = make_condition(device, size, domain, compressible, rdma)
            if chunk:
                if size % chunk:
                    raise ValueError(f"chunks of {chunk} bytes do not make {size}")
                condition.chunk_bytes = chunk
            if len(peers) >= MAX_PEERS_:
                raise ValueError(f"{len(peers)} peers; the most is {MAX_PEERS_ - 1}")
            for peer in peers:
                add_peer(condition, peer)
            condition.call_a_peer = call_a_peer
            condition.pool = <cydriver.CUmemoryPool><uintptr_t>pool
            self.conditions.push_back(condition)

    def granularity(self, device, domain, compressible, rdma):
        """(status, bytes) of the minimum allocation granularity of a placement."""
        cdef Condition condition = make_condition(device, 0, domain, compressible, rdma)
        cdef size_t granularity_bytes = 0
        cdef int status = get_granularity(self.entry_points, condition, &granularity_bytes)
        return status, granularity_bytes

    def request_stop(self):
        """End the running batch after its current cycle; safe in a signal handler."""
        self.stop.store(True)

    def run(self, int32_t[::1] visits not None):
        """Run one cycle a visit; stops after a failed one, or after request_stop().

        Returns (start_ns (n,), calls_ns (n, 7), status (n,), failed_call (n,),
        ordinal (n,), compression (n,), cpu (n,), leaked) of the cycles that ran.
        """
        cdef Py_ssize_t n = visits.shape[0], done = 0, i
        cdef size_t condition_count = self.conditions.size()
        for i in range(n):
            if not 0 <= visits[i] < <Py_ssize_t>condition_count:
                raise IndexError(f"visit {visits[i]} of {condition_count} conditions")
        start = np.zeros(n, np.int64)
        calls = np.zeros((n, CALL_COUNT), np.int64)
        status = np.zeros(n, np.int32)
        failed = np.zeros(n, np.int8)
        ordinal = np.zeros(n, np.int32)
        compression = np.zeros(n, np.int32)
        cdef int64_t[::1] start_v = start
        cdef int64_t[:, ::1] calls_v = calls
        cpu = np.zeros(n, np.int32)
        cdef int32_t[::1] status_v = status, ordinal_v = ordinal, compression_v = compression, cpu_v = cpu
        cdef int8_t[::1] failed_v = failed
        cdef Rows rows
        cdef cbool leaked = False
        # One cycle a native call, so that signal handlers run between cycles:
        # a cycle of scattered memory can take 20 ms, a round of them a second.
        while done < n and not self.stop.load():
            rows.start_ns = &start_v[done]
            rows.calls_ns = &calls_v[done, 0]
            rows.status = &status_v[done]
            rows.failed_call = &failed_v[done]
            rows.ordinal = &ordinal_v[done]
            rows.compression = &compression_v[done]
            rows.cpu = &cpu_v[done]
            with nogil:
                run_visits(self.entry_points, self.conditions.data(), &visits[done], 1, rows, self.stop, leaked)
            done += 1
            PyErr_CheckSignals()
            if status_v[done - 1] != 0:
                break
        return (start[:done], calls[:done], status[:done], failed[:done], ordinal[:done], compression[:done],
                cpu[:done], leaked)

    def run_burst(self, workers, unsigned char[::1] control not None, uint32_t first_worker,
                  uint32_t worker_count, uint32_t samples, int64_t spacing_ns=0):
        """Run a thread for each of ``workers``, (context address, condition index) pairs.

        ``worker_count`` is that of all processes that meet in ``control``;
        ``first_worker`` is how many of them other processes have before. Each
        thread runs one cycle, waits for all, and goes on until every one of
        them has ``samples`` more (burst.hpp); the burst ends early when a cycle
        fails, when control is halted, or after request_stop(). With
        ``spacing_ns`` each thread starts a cycle every so often, or at once when
        that is past.

        Returns a (rows, context_status, leaked) of each worker. ``rows`` is
        int64 of shape (n, 16): start, end, the seven calls, status, failed
        call, ordinal, compression, cpu, number of the cycle, intended start, in
        that order.
        """
        cdef vector[BurstWorker] here
        cdef BurstWorker *worker
        cdef BurstControl *meeting = _control(control)
        cdef Burst *burst = NULL
        cdef cbool ended = False
        cdef size_t i, condition_count = self.conditions.size()
        if first_worker + len(workers) > MAX_WORKERS_:
            raise IndexError(f"worker {first_worker + len(workers) - 1} of {MAX_WORKERS_}")
        here.resize(len(workers))
        for i, (context, condition) in enumerate(workers):
            if not 0 <= condition < condition_count:
                raise IndexError(f"condition {condition} of {condition_count}")
            here[i].index = first_worker + <uint32_t>i
            here[i].context = <cydriver.CUcontext><uintptr_t>context
            here[i].condition = &self.conditions[<size_t>condition]
        burst = new Burst(self.entry_points, here, meeting[0], worker_count, samples, spacing_ns)
        try:
            while not ended:
                if self.stop.load():
                    burst.halt()
                with nogil:
                    ended = burst.wait_ms(_WAIT_MS)
                PyErr_CheckSignals()
        finally:
            with nogil:
                del burst
        return [(_burst_rows(&here[i]), here[i].context_status, here[i].leaked) for i in range(here.size())]


cdef object _burst_rows(const BurstWorker *worker):
    cdef size_t n = worker.rows.size(), i
    cdef int c
    cdef const Row *row
    table = np.empty((n, CALL_COUNT + 9), np.int64)
    cdef int64_t[:, ::1] view = table
    for i in range(n):
        row = &worker.rows[i]
        view[i, 0] = row.start_ns
        view[i, 1] = row.end_ns
        for c in range(CALL_COUNT):
            view[i, 2 + c] = row.calls_ns[c]
        view[i, CALL_COUNT + 2] = row.status
        view[i, CALL_COUNT + 3] = row.failed_call
        view[i, CALL_COUNT + 4] = row.ordinal
        view[i, CALL_COUNT + 5] = row.compression
        view[i, CALL_COUNT + 6] = row.cpu
        view[i, CALL_COUNT + 7] = worker.repeat[i]
        view[i, CALL_COUNT + 8] = worker.intended_ns[i]
    return table


# In the order of the VictimEntryPoints table.
_VICTIM_SYMBOLS = (
    b"cuCtxSetCurrent",
    b"cuMemGetInfo",
    b"cuMemCreate",
    b"cuMemRelease",
    b"cuLaunchKernel",
    b"cuStreamSynchronize",
)
VICTIM_KINDS = ("query", "alloc", "launch")


cdef class VictimThread:
    """A thread that does one small thing again and again beside a burst (victim.hpp).

    It ends when the burst that meets in ``control`` has
    settled or is halted, or alone (``workers`` = 0) after ``operations``.
    """

    cdef VictimEntryPoints entry_points
    cdef VictimJob job
    cdef Victim *victim
    cdef object control

    def __cinit__(self, kind, context, device, *, memory_bytes, function=0, stream=0, pause_ns):
        cdef void **table = <void **>&self.entry_points
        for i, symbol in enumerate(_VICTIM_SYMBOLS):
            # What a kind does not call need not be there.
            if kind != "launch" and symbol in (b"cuLaunchKernel", b"cuStreamSynchronize"):
                table[i] = NULL
            else:
                table[i] = _resolve(symbol)
        self.job.kind = <VictimKind><int>VICTIM_KINDS.index(kind)
        self.job.context = <cydriver.CUcontext><uintptr_t>context
        self.job.memory = make_condition(device, memory_bytes, -1, False, False)
        self.job.function = <cydriver.CUfunction><uintptr_t>function
        self.job.stream = <cydriver.CUstream><uintptr_t>stream
        self.job.pause_ns = pause_ns
        self.victim = NULL

    def __dealloc__(self):
        if self.victim != NULL:
            with nogil:
                del self.victim

    def start(self, unsigned char[::1] control not None, uint32_t workers, uint32_t operations):
        """Start beside a burst of ``workers`` workers, before they are started."""
        if self.victim != NULL:
            raise ValueError("the victim runs already")
        self.job.workers = workers
        self.job.operations = operations
        self.control = control
        self.victim = new Victim(self.entry_points, self.job, _control(control)[0])

    def finish(self):
        """Wait for its end: (rows, status), int64 (n, 3) of start, end and cpu.

        The first row ran before the common start.
        """
        cdef cbool ended = False
        cdef size_t i, n
        cdef int64_t[:, ::1] view
        if self.victim == NULL:
            raise ValueError("the victim does not run")
        try:
            while not ended:
                with nogil:
                    ended = self.victim.wait_ms(_WAIT_MS)
                PyErr_CheckSignals()
            n = self.victim.rows().size()
            table = np.empty((n, 3), np.int64)
            view = table
            for i in range(n):
                view[i, 0] = self.victim.rows()[i].start_ns
                view[i, 1] = self.victim.rows()[i].end_ns
                view[i, 2] = self.victim.rows()[i].cpu
            return table, self.victim.status()
        finally:
            with nogil:
                del self.victim
            self.victim = NULL
            self.control = None
