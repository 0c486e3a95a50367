# SPDX-License-Identifier: MIT
"""A burst on a model: workers that wait for the locks, as rows of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vmmprof.drivers.model.locks import QueuedCycle, queued_cycles
from vmmprof.drivers.protocol import NO_FAILED_CALL, NO_TIME_NS, Batch, Burst, Workers
from vmmprof.drivers.window import WorkerTimes, in_window
from vmmprof.placement import Level
from vmmprof.recording.schema import Flag

# Behind the samples, until the cycles that were under way have ended: as in docs/concurrency.md.
_CYCLES_MORE = 2


def burst_of(
    calls_ns: Sequence[int], total_ns: int, level: Level, samples: int, now_ns: int
) -> Burst:
    """What a burst of ``level`` gives when a cycle alone takes ``calls_ns`` and ``total_ns``.

    NO_TIME_NS where the model has no source. Where it has a total but not all
    calls, nothing says what of it holds the locks, so all of it does.
    """
    known = [call for call, ns in enumerate(calls_ns) if ns != NO_TIME_NS]
    by_call = total_ns == NO_TIME_NS or len(known) == len(calls_ns)
    service_ns = tuple(calls_ns[call] for call in known) if by_call else (total_ns,)
    queued = _queued(service_ns, level.workers, samples + _CYCLES_MORE)
    rows = [cycle for cycles in queued for cycle in cycles]
    n = len(rows)
    table = np.full((n, len(calls_ns)), NO_TIME_NS, np.int64)
    times = np.array([cycle.calls_ns for cycle in rows], np.int64)
    if by_call:
        table[:, known] = times
    has_total = total_ns != NO_TIME_NS
    start_ns = np.array([cycle.start_ns for cycle in rows], np.int64)
    flags = np.where(np.concatenate(_inside(queued, samples)), 0, Flag.OUTSIDE_WINDOW)
    each = samples + _CYCLES_MORE
    worker = np.repeat(np.arange(level.workers), each)
    batch = Batch(
        visit=np.zeros(n, np.int32),
        start_ns=now_ns + start_ns,
        calls_ns=table,
        total_ns=times.sum(axis=1) if has_total else np.full(n, NO_TIME_NS, np.int64),
        status=np.zeros(n, np.int32),
        failed_call=np.full(n, NO_FAILED_CALL, np.int8),
        flags=flags.astype(np.uint16),
        workers=Workers(
            process=(worker // level.threads).astype(np.int16),
            thread=(worker % level.threads).astype(np.int16),
            device=np.zeros(n, np.int16),
            repeat=np.tile(np.arange(each, dtype=np.int32), level.workers),
        ),
    )
    return Burst(batch)


def _inside(queued: list[list[QueuedCycle]], samples: int) -> list[np.ndarray]:
    times = [
        WorkerTimes(
            np.array([cycle.start_ns for cycle in cycles], np.int64),
            np.array([cycle.end_ns for cycle in cycles], np.int64),
        )
        for cycles in queued
    ]
    return in_window(times, samples, complete=True)


@lru_cache(maxsize=256)
def _queued(service_ns: tuple[int, ...], workers: int, cycles: int) -> list[list[QueuedCycle]]:
    # Without noise every burst of a condition is the same.
    return queued_cycles(service_ns, workers, cycles)
