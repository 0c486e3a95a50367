# SPDX-License-Identifier: MIT
"""A traced experiment: every other round is traced, and only those give events."""

from __future__ import annotations

import os
import time

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.protocol import Batch
from vmmprof.experiment.traced import TracedDriver
from vmmprof.kernel.session import open_probe
from vmmprof.recording.events import event_facts
from vmmprof.recording.schema import Flag

from .mock import Mock, Request, loaded


class _MockDriver:
    """As much of a driver as a traced round needs."""

    name = "mock"

    def __init__(self, mock: Mock) -> None:
        self._mock = mock
        self.rounds: list[tuple[int, int]] = []

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        start_ns = time.monotonic_ns()
        for visit in visits:
            self._mock.run(Request(int(visit)))
        self.rounds.append((start_ns, time.monotonic_ns()))
        n = len(visits)
        return Batch(
            visit=np.arange(n, dtype=np.int32),
            start_ns=np.full(n, start_ns),
            calls_ns=np.zeros((n, 1), np.int64),
            total_ns=np.zeros(n, np.int64),
            status=np.zeros(n, np.int32),
            failed_call=np.zeros(n, np.int8),
            flags=np.zeros(n, np.uint16),
        )


def test_every_other_round_is_traced() -> None:
    with (
        loaded("padless", "stock") as mock,
        open_probe("module", os.getpid(), module=mock.name) as probe,
    ):
        driver = _MockDriver(mock)
        traced = TracedDriver(driver, probe)  # type: ignore[arg-type]
        assert traced.name == "mock"
        batches = [traced.run(np.array([first, first + 1], np.int32)) for first in (1, 11, 21, 31)]
        events = traced.events()
    marks = [int(Flag.TRACED), 0] * 2
    assert [batch.flags.tolist() for batch in batches] == [[mark] * 2 for mark in marks]
    assert events["iterations"].to_pylist() == [1, 2, 21, 22]
    windows = event_facts(events)["traced_windows_ns"]
    assert len(windows) == 2
    for (start, end), (first_ns, last_ns) in zip(windows, driver.rounds[::2], strict=True):
        assert start <= first_ns <= last_ns <= end
    times = events["time_ns"].to_pylist()
    assert all(
        windows[index // 2][0] < moment < windows[index // 2][1]
        for index, moment in enumerate(times)
    )
    assert sum(event_facts(events)["losses"].values()) == 0
