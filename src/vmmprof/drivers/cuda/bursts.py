# SPDX-License-Identifier: MIT
"""From the tables of a burst's workers to the protocol's rows, flags and failures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.cuda import api
from vmmprof.drivers.cuda.busy import LIMIT_NS
from vmmprof.drivers.cuda.processes import Death
from vmmprof.drivers.cuda.team import Order, WorkerRows
from vmmprof.drivers.protocol import NO_TIME_NS, Batch, Burst, WorkerFailure, Workers
from vmmprof.drivers.window import Window, WorkerTimes, in_window, window
from vmmprof.operations import VMM_CYCLE, Operation
from vmmprof.recording.schema import Flag

_KERNEL_ENDED = (
    f"did not run throughout the burst (its limit is {LIMIT_NS // 10**9} s: a call may wait for "
    "it, or --burst is too large)"
)

BoolArray = npt.NDArray[np.bool_]

_CALLS = len(VMM_CYCLE.calls)
# Columns of a worker's table, as in CycleCore.run_burst.
_START, _END, _FIRST_CALL = 0, 1, 2
_STATUS, _FAILED_CALL, _ORDINAL, _COMPRESSION, _CPU, _REPEAT, _INTENDED = range(
    2 + _CALLS, 9 + _CALLS
)


def read_back_flags(
    ok: BoolArray, right_ordinal: BoolArray | None, right_compression: BoolArray
) -> npt.NDArray[np.uint16]:
    """Flags of cycles that failed or got other memory than they asked for.

    ``right_ordinal`` is None where the driver does not know locality domains.
    """
    flags = np.zeros(len(ok), np.uint16)
    flags[~ok] |= np.uint16(Flag.FAILED)
    if right_ordinal is not None:
        flags[ok & ~right_ordinal] |= np.uint16(Flag.WRONG_ORDINAL)
    flags[ok & ~right_compression] |= np.uint16(Flag.WRONG_COMPRESSION)
    return flags


def burst_window(
    workers: Sequence[WorkerRows], deaths: Sequence[Death], order: Order
) -> Window | None:
    """When all workers were running; None when they never were."""
    return window(_times(workers, deaths), order.samples, _is_complete(workers, deaths, order))


def _times(workers: Sequence[WorkerRows], deaths: Sequence[Death]) -> list[WorkerTimes]:
    times = [WorkerTimes(w.table[:, _START], w.table[:, _END]) for w in workers]
    return times + [t for death in deaths for t in death.times]


def _is_complete(workers: Sequence[WorkerRows], deaths: Sequence[Death], order: Order) -> bool:
    """Enough rows are what completes a burst: a stop leaves some worker short of them."""
    failed = any(w.context_status != 0 or w.table[-1:, _STATUS].any() for w in workers)
    return not deaths and not failed and all(len(w.table) > order.samples for w in workers)


def to_burst(
    workers: Sequence[WorkerRows],
    deaths: Sequence[Death],
    order: Order,
    operation: Operation,
    *,
    wanted_ordinal: int | None,
    wanted_compression: int,
) -> Burst:
    """The burst that ``order`` made of ``workers``; ``deaths`` are of processes without rows."""
    failures = [death.failure for death in deaths]
    if any(worker.kernel_ended for worker in workers):
        failures.append(WorkerFailure("the kernel in flight", _KERNEL_ENDED))
    failures += [f for f in (_failure(w, operation) for w in workers) if f is not None]
    complete = _is_complete(workers, deaths, order)
    inside = in_window(_times(workers, deaths), order.samples, complete)[: len(workers)]
    table = (
        np.concatenate([w.table for w in workers]) if workers else np.empty((0, _INTENDED + 1), int)
    )
    ok = table[:, _STATUS] == 0
    flags = read_back_flags(
        ok,
        None if wanted_ordinal is None else table[:, _ORDINAL] == wanted_ordinal,
        table[:, _COMPRESSION] == wanted_compression,
    )
    if any(worker.kernel_ended for worker in workers):
        inside = [np.zeros_like(one) for one in inside]
    if inside:
        flags[~np.concatenate(inside)] |= np.uint16(Flag.OUTSIDE_WINDOW)
    calls_ns = np.ascontiguousarray(table[:, _FIRST_CALL : _FIRST_CALL + len(operation.calls)])
    lengths = [len(w.table) for w in workers]
    total_ns = np.where(ok, calls_ns.sum(axis=1), NO_TIME_NS)
    # Read-backs between the calls are in neither.
    late_ns = table[:, _START] - table[:, _INTENDED]
    batch = Batch(
        visit=np.zeros(len(table), np.int32),
        start_ns=table[:, _START],
        calls_ns=calls_ns,
        total_ns=total_ns,
        status=table[:, _STATUS].astype(np.int32),
        failed_call=table[:, _FAILED_CALL].astype(np.int8),
        flags=flags,
        cpu=table[:, _CPU].astype(np.int32),
        latency_ns=np.where(ok, late_ns + total_ns, NO_TIME_NS) if order.spacing_ns else None,
        workers=Workers(
            process=np.repeat(np.array([w.process for w in workers], np.int16), lengths),
            thread=np.repeat(np.array([w.thread for w in workers], np.int16), lengths),
            device=np.repeat(np.array([w.device for w in workers], np.int16), lengths),
            repeat=table[:, _REPEAT].astype(np.int32),
        ),
    )
    return Burst(batch, tuple(failures))


def _failure(worker: WorkerRows, operation: Operation) -> WorkerFailure | None:
    if worker.context_status != 0:
        reason = f"cuCtxSetCurrent failed: {api.status_name(worker.context_status)}"
        return WorkerFailure(worker.name, reason, api.is_sticky(worker.context_status))
    if not len(worker.table) or worker.table[-1, _STATUS] == 0:
        return None
    status = int(worker.table[-1, _STATUS])
    call = operation.api_names[int(worker.table[-1, _FAILED_CALL])]
    reason = f"{call} failed: {api.status_name(status)}"
    if worker.leaked:
        reason += ", and the cycle's memory could not be given back; it goes with its process"
    elif api.is_sticky(status):
        reason += "; its context cannot be used any more"
    return WorkerFailure(
        worker.name,
        f"{reason} (after {int(worker.table[-1, _REPEAT])} cycles)",
        worker.leaked or api.is_sticky(status),
    )
