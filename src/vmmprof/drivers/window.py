# SPDX-License-Identifier: MIT
"""Which cycles of a burst count: those during which every worker was running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WorkerTimes:
    """Start and end of one worker's cycles in ns, shape (n,) each; cycle 0 is before the start."""

    start_ns: IntArray
    end_ns: IntArray


def in_window(
    workers: Sequence[WorkerTimes], samples: int, complete: bool
) -> list[npt.NDArray[np.bool_]]:
    """For each worker, which of its cycles count.

    The window opens at the latest of the workers' first starts behind the
    barrier. In a ``complete`` burst it closes when the last worker has its
    ``samples`` cycles, and cycles that began in it count: the workers went on
    until those had ended. In one that was cut short it closes when the first
    worker left, and only cycles that ended in it count.
    """
    if any(len(worker.start_ns) < 2 for worker in workers):
        return [np.zeros(len(worker.start_ns), np.bool_) for worker in workers]
    opens_ns = max(worker.start_ns[1] for worker in workers)
    if complete:
        closes_ns = max(worker.end_ns[samples] for worker in workers)
    else:
        closes_ns = min(worker.end_ns[-1] for worker in workers)
    counts = []
    for worker in workers:
        last_ns = worker.start_ns if complete else worker.end_ns
        inside = (worker.start_ns >= opens_ns) & (last_ns <= closes_ns)
        inside[0] = False
        counts.append(inside)
    return counts
