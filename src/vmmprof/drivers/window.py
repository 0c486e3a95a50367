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


@dataclass(frozen=True)
class Window:
    """While all workers were running.

    In a ``complete`` burst they went on until what began in the window had
    ended, so beginning in it is enough; in one that was cut short only what
    ended in it, too, ran beside all workers.
    """

    opens_ns: int
    closes_ns: int
    complete: bool

    def holds(self, start_ns: IntArray, end_ns: IntArray) -> npt.NDArray[np.bool_]:
        """Which of the spans count, shape (n,)."""
        last_ns = start_ns if self.complete else end_ns
        inside: npt.NDArray[np.bool_] = (start_ns >= self.opens_ns) & (last_ns <= self.closes_ns)
        return inside


def window(workers: Sequence[WorkerTimes], samples: int, complete: bool) -> Window | None:
    """The window of a burst; None when a worker never got behind the barrier.

    It opens at the latest of the workers' first starts there. In a
    ``complete`` burst it closes when the last worker has its ``samples``
    cycles, in one that was cut short when the first worker left.
    """
    if not workers or any(len(worker.start_ns) < 2 for worker in workers):
        return None
    if complete:
        closes_ns = max(worker.end_ns[samples] for worker in workers)
    else:
        closes_ns = min(worker.end_ns[-1] for worker in workers)
    return Window(max(int(w.start_ns[1]) for w in workers), int(closes_ns), complete)


def in_window(
    workers: Sequence[WorkerTimes], samples: int, complete: bool
) -> list[npt.NDArray[np.bool_]]:
    """For each worker, which of its cycles count."""
    found = window(workers, samples, complete)
    if found is None:
        return [np.zeros(len(worker.start_ns), np.bool_) for worker in workers]
    counts = []
    for worker in workers:
        inside = found.holds(worker.start_ns, worker.end_ns)
        inside[0] = False
        counts.append(inside)
    return counts
