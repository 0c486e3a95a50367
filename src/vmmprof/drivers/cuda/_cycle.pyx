# SPDX-License-Identifier: MIT
# cython: language_level=3, boundscheck=False, wraparound=False
# distutils: language=c++
"""The timing core of cycle_core.hpp for Python; the GIL is free while cycles run."""

from libc.stdint cimport int8_t, int32_t, int64_t
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


cdef extern from "cuda.h" nogil:
    ctypedef int CUresult


cdef extern from "cycle_core.hpp" namespace "vmmprof" nogil:
    const int CALL_COUNT
    const int32_t NOT_READ_BACK_ "vmmprof::NOT_READ_BACK"

    cdef cppclass EntryPoints:
        void *address_reserve
    cdef cppclass Condition:
        pass
    cdef struct Rows:
        int64_t *start_ns
        int64_t *calls_ns
        int32_t *status
        int8_t *failed_call
        int32_t *ordinal
        int32_t *compression

    CUresult get_granularity(const EntryPoints &, const Condition &, size_t *)
    Condition make_condition(int device, size_t size_bytes, int domain, cbool compressible, cbool rdma)
    double empty_interval_ns(int repeats)
    size_t run_visits(const EntryPoints &, const Condition *, const int32_t *visits, size_t n,
                      const Rows &, const atomic_bool &stop, cbool &leaked)


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
)
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


cdef class CycleCore:
    """Runs timed cycles on one device, in the context current to the calling thread."""

    cdef EntryPoints entry_points
    cdef vector[Condition] conditions
    cdef atomic_bool stop

    def __cinit__(self, *, cbool knows_locality_domains):
        cdef void **table = <void **>&self.entry_points
        for i, symbol in enumerate(_SYMBOLS):
            table[i] = _resolve(symbol)
        if not knows_locality_domains:
            table[len(_SYMBOLS) - 1] = NULL

    def prepare(self, conditions):
        """Take (device, size_bytes, domain or -1, compressible, rdma) tuples that visits index.

        Also clears an earlier request_stop(): between two run() it stays.
        """
        self.stop.store(False)
        self.conditions.clear()
        for device, size_bytes, domain, compressible, rdma in conditions:
            self.conditions.push_back(make_condition(device, size_bytes, domain, compressible, rdma))

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
        ordinal (n,), compression (n,), leaked) of the cycles that ran.
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
        cdef int32_t[::1] status_v = status, ordinal_v = ordinal, compression_v = compression
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
            with nogil:
                run_visits(self.entry_points, self.conditions.data(), &visits[done], 1, rows, self.stop, leaked)
            done += 1
            PyErr_CheckSignals()
            if status_v[done - 1] != 0:
                break
        return start[:done], calls[:done], status[:done], failed[:done], ordinal[:done], compression[:done], leaked
