# SPDX-License-Identifier: MIT
"""The locks of a model: a queue in virtual time, from the simulation to the recording."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.drivers.model.locks import queued_cycles
from vmmprof.recording.reader import load

SERVICES = st.lists(st.integers(1, 1000), min_size=1, max_size=7)


def test_one_worker_waits_for_nobody() -> None:
    (cycles,) = queued_cycles([5, 7], workers=1, cycles=3)
    assert [(c.start_ns, c.calls_ns) for c in cycles] == [(0, (5, 7)), (12, (5, 7)), (24, (5, 7))]


def test_two_workers_take_turns() -> None:
    first, second = queued_cycles([10], workers=2, cycles=3)
    assert [c.calls_ns for c in first] == [(10,), (20,), (20,)]
    assert [c.calls_ns for c in second] == [(20,), (20,), (20,)]
    assert second[0].end_ns == first[1].start_ns + 10


@given(SERVICES, st.integers(1, 9), st.integers(1, 6))
def test_the_locks_serve_one_call_at_a_time_and_are_never_idle(
    services: list[int], workers: int, cycles: int
) -> None:
    done = queued_cycles(services, workers, cycles)
    assert [len(of_worker) for of_worker in done] == [cycles] * workers
    served = []
    for of_worker in done:
        for cycle in of_worker:
            ends = cycle.start_ns + np.cumsum(cycle.calls_ns)
            served += [(int(end) - s, int(end)) for end, s in zip(ends, services, strict=True)]
    served.sort()
    assert all(a[1] == b[0] for a, b in pairwise(served))
    assert served[-1][1] == workers * cycles * sum(services)


def test_once_all_wait_a_cycle_takes_everybodys_time() -> None:
    done = queued_cycles([30, 12], workers=64, cycles=4)
    # The last worker's first cycle ends when all have been served; from then on nothing changes.
    assert {sum(cycle.calls_ns) for of_worker in done for cycle in of_worker[1:]} == {64 * 42}


@pytest.mark.parametrize("model", ["model:b300", "model:h200"])
def test_levels_of_a_model_say_what_the_queue_says(tmp_path: Path, model: str) -> None:
    name = str(tmp_path / "r")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "vmmprof", "sweep", "--driver", model, "--output", name),
            *("--sizes", "64M", "--placement", "device", "--threads", "1,64", "--repeats", "2"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "MODEL" in done.stdout
    recording = load(name)
    times = recording.samples[recording.samples["flags"] == 0]
    medians = times.groupby("threads")[f"{recording.headline}_ns"].median()
    if recording.headline == "total":
        assert medians[64] == 64 * medians[1]
    else:
        assert medians[64] > 32 * medians[1]
    assert set(times["thread"]) == set(range(64))
