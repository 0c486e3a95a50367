# SPDX-License-Identifier: MIT
"""Which cycles of a burst count."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.drivers.window import WorkerTimes, in_window


def worker(*cycles: tuple[int, int]) -> WorkerTimes:
    """Cycle 0 ran before the start, then the given starts and ends."""
    starts, ends = zip((-10, -5), *cycles, strict=True)
    return WorkerTimes(np.array(starts), np.array(ends))


def counted(*workers: WorkerTimes, samples: int, complete: bool = True) -> list[list[int]]:
    return [np.flatnonzero(w).tolist() for w in in_window(workers, samples, complete)]


def test_the_window_opens_with_the_latest_first_start() -> None:
    early = worker((0, 4), (4, 8), (8, 12), (12, 16))
    late = worker((5, 9), (9, 13))
    assert counted(early, late, samples=2)[0] == [3, 4]
    assert counted(early, late, samples=2)[1] == [1, 2]


def test_a_long_cycle_that_begins_in_the_window_counts_and_later_ones_do_not() -> None:
    quick = worker((0, 2), (2, 4), (4, 5), (11, 12))
    slow = worker((0, 5), (5, 10))
    straddling = worker((0, 3), (3, 6), (9, 30))
    # The last to have two samples has them at 10.
    assert counted(quick, slow, straddling, samples=2) == [[1, 2, 3], [1, 2], [1, 2, 3]]


def test_a_burst_cut_short_counts_what_ended_before_the_first_worker_left() -> None:
    left_at_6 = worker((0, 3), (3, 6))
    others = worker((0, 4), (4, 6), (6, 8))
    straddling = worker((0, 5), (5, 9))
    counts = counted(left_at_6, others, straddling, samples=50, complete=False)
    assert counts == [[1, 2], [1, 2], [1]]


def test_nothing_counts_when_a_worker_never_started() -> None:
    assert counted(worker((0, 4), (4, 8)), worker(), samples=1, complete=False) == [[], []]
    no_context = WorkerTimes(np.empty(0, np.int64), np.empty(0, np.int64))
    assert counted(worker((0, 4)), no_context, samples=1, complete=False) == [[], []]


@given(st.lists(st.lists(st.integers(1, 50), min_size=4, max_size=9), min_size=1, max_size=5))
def test_each_worker_keeps_a_sample_of_a_complete_burst(durations: list[list[int]]) -> None:
    """Workers that start together and have three samples each at least keep one each."""
    workers = []
    for row in durations:
        edges = np.cumsum([0, *row])
        workers.append(worker(*zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))
    for counts in counted(*workers, samples=3):
        assert counts[:3] == [1, 2, 3]
