# SPDX-License-Identifier: MIT
"""The resource manager's locks as a queue in virtual time.

A call that allocates or frees holds the API lock and its GPU's lock from
beginning to end. On one GPU the two are taken together, so they serve callers
as one: first come, first served, each for the time that the call takes alone.
Processes and threads wait in the same queue.

That is all there is to it, so what a real lock adds is what a measurement shows
beyond it: the cost of handing a lock over, and a lock that is not fair.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

SOURCE = (
    "every modelled call holds the API and GPU locks throughout; first come, first served; "
    "no cost of handing over"
)


@dataclass(frozen=True)
class QueuedCycle:
    """One cycle of one worker: when it began, and each call's time with the wait before it."""

    start_ns: int
    calls_ns: tuple[int, ...]

    @property
    def end_ns(self) -> int:
        return self.start_ns + sum(self.calls_ns)


def queued_cycles(service_ns: Sequence[int], workers: int, cycles: int) -> list[list[QueuedCycle]]:
    """The cycles of each worker, all beginning at 0, ``cycles`` each.

    ``service_ns``: the times of a cycle's calls when nobody else is there, in
    the order in which they are made; at least one.
    """
    done: list[list[QueuedCycle]] = [[] for _ in range(workers)]
    waits: list[list[int]] = [[] for _ in range(workers)]
    begun = [0] * workers
    free_ns = 0
    # When a call comes to the queue; of two at the same time the lower worker is first.
    queue = [(0, worker) for worker in range(workers)]
    while queue:
        came_ns, worker = heapq.heappop(queue)
        served = service_ns[len(waits[worker])]
        free_ns = max(free_ns, came_ns) + served
        waits[worker].append(free_ns - came_ns)
        if len(waits[worker]) == len(service_ns):
            done[worker].append(QueuedCycle(begun[worker], tuple(waits[worker])))
            waits[worker].clear()
            begun[worker] = free_ns
        if len(done[worker]) < cycles:
            heapq.heappush(queue, (free_ns, worker))
    return done
