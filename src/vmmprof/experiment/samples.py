# SPDX-License-Identifier: MIT
"""The samples of a run: kept in memory for decisions, appended to the recording for good."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.drivers.protocol import Batch, VictimRows, Workers
from vmmprof.experiment.schedule import Visits
from vmmprof.operations import Operation
from vmmprof.placement import Condition
from vmmprof.recording.schema import DISCARDED, Flag
from vmmprof.recording.writer import RecordingWriter

# Rows wait at most this long in memory; a kill loses no more.
_FLUSH_SECONDS = 2.0

_LEFT_OUT = int(
    Flag.WARMUP | Flag.FAILED | DISCARDED | Flag.TRACED | Flag.OUTSIDE_WINDOW | Flag.COMPANY
)


class Samples:
    """Rows of one run, as columns. ``add`` takes them batch by batch, in the order taken."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        operation: Operation,
        headline: str,
        device: int,
        writer: RecordingWriter,
    ) -> None:
        self._conditions = list(conditions)
        self._placements = np.array([str(condition.placement) for condition in conditions], object)
        self._sizes = np.array([condition.size_bytes for condition in conditions], np.int64)
        self._scattered = np.array([condition.scattered for condition in conditions], np.bool_)
        levels = [condition.level for condition in conditions]
        self._processes = np.array([level.processes for level in levels], np.int16)
        self._threads = np.array([level.threads for level in levels], np.int16)
        self._devices = np.array([level.devices for level in levels], np.int16)
        self._variants = np.array([str(condition.variant) for condition in conditions], object)
        self._operation = operation
        self._headline = headline
        self._device = device
        self._writer = writer
        self._waiting: list[pd.DataFrame] = []
        self._waiting_victims: list[pd.DataFrame] = []
        self._kept: list[pd.DataFrame] = []
        self._last_flush = time.monotonic()
        self._headline_ns: dict[tuple[int, int], list[float]] = {}
        self._discarded = np.zeros(len(conditions), np.int64)
        self.company = np.zeros(len(conditions), np.bool_)
        """Conditions whose cycles are, from now on, company for others."""
        self.usable = 0
        """Number of rows that count as samples."""

    def add(self, batch: Batch, visits: Visits, attempt: int, flag: Flag) -> None:
        """Add the rows of a batch that ran ``visits`` (or the first of them)."""
        condition = visits.condition[batch.visit]
        flags = batch.flags | np.uint16(flag)
        flags[self.company[condition]] |= np.uint16(Flag.COMPANY)
        workers = batch.workers or self._lone_worker(len(batch))
        frame = pd.DataFrame(
            {
                "round": visits.round[batch.visit],
                "order": visits.order[batch.visit],
                "process": workers.process,
                "thread": workers.thread,
                "repeat": workers.repeat,
                "cpu": np.full(len(batch), -1, np.int32) if batch.cpu is None else batch.cpu,
                "processes": self._processes[condition],
                "threads": self._threads[condition],
                "devices": self._devices[condition],
                "variant": self._variants[condition],
                "device": workers.device,
                "placement": self._placements[condition],
                "size_bytes": self._sizes[condition],
                "scattered": self._scattered[condition],
                "attempt": np.full(len(batch), attempt, np.int8),
                "start_ns": batch.start_ns,
                **{
                    f"{call}_ns": batch.calls_ns[:, i]
                    for i, call in enumerate(self._operation.calls)
                },
                "total_ns": batch.total_ns,
                "latency_ns": (
                    np.full(len(batch), -1, np.int64)
                    if batch.latency_ns is None
                    else batch.latency_ns
                ),
                "flags": flags,
            }
        )
        self._waiting.append(frame)
        self._note_headlines(condition, frame, attempt, is_burst=batch.workers is not None)
        np.add.at(self._discarded, condition[(flags & np.uint16(DISCARDED)) != 0], 1)
        if time.monotonic() - self._last_flush > _FLUSH_SECONDS:
            self.flush()

    def add_victim(self, rows: VictimRows, visits: Visits, attempt: int, flag: Flag) -> None:
        """Add what a victim met beside the burst of the one visit."""
        n = len(rows.start_ns)
        condition = np.repeat(visits.condition, n)
        flags = np.full(n, flag, np.uint16)
        flags[~rows.counts] |= np.uint16(Flag.OUTSIDE_WINDOW)
        self._waiting_victims.append(
            pd.DataFrame(
                {
                    "round": np.repeat(visits.round, n),
                    "repeat": np.arange(n, dtype=np.int32),
                    "cpu": rows.cpu,
                    "processes": self._processes[condition],
                    "threads": self._threads[condition],
                    "devices": self._devices[condition],
                    "variant": self._variants[condition],
                    "placement": self._placements[condition],
                    "size_bytes": self._sizes[condition],
                    "scattered": self._scattered[condition],
                    "attempt": np.full(n, attempt, np.int8),
                    "start_ns": rows.start_ns,
                    "latency_ns": rows.latency_ns,
                    "flags": flags,
                }
            )
        )

    def _lone_worker(self, n: int) -> Workers:
        return Workers(
            process=np.zeros(n, np.int16),
            thread=np.zeros(n, np.int16),
            device=np.full(n, self._device, np.int16),
            repeat=np.zeros(n, np.int32),
        )

    def _note_headlines(
        self,
        condition: npt.NDArray[np.int32],
        frame: pd.DataFrame,
        attempt: int,
        is_burst: bool,
    ) -> None:
        usable = (frame["flags"].to_numpy() & _LEFT_OUT) == 0
        values = frame[f"{self._headline}_ns"].to_numpy()
        usable &= values >= 0
        condition, values = condition[usable], values[usable].astype(np.float64)
        self.usable += len(values)
        if is_burst and len(values):
            # Cycles of one burst depend on each other; its median is one observation.
            condition, values = condition[:1], np.array([np.median(values)])
        for index, value in zip(condition, values, strict=True):
            self._headline_ns.setdefault((int(index), attempt), []).append(float(value))

    def headline_ns(self, condition: int, attempt: int) -> npt.NDArray[np.float64]:
        """Usable headline times of a condition's visits so far, in the order taken.

        The visit of a burst gives the median of its cycles.
        """
        return np.array(self._headline_ns.get((condition, attempt), ()), np.float64)

    def discarded(self, condition: int) -> int:
        """Rows of a condition whose memory was not what was asked for, warm-up included."""
        return int(self._discarded[condition])

    def flush(self) -> None:
        """Append what waits to the recording."""
        self._last_flush = time.monotonic()
        if self._waiting:
            frame = pd.concat(self._waiting, ignore_index=True)
            self._writer.append(_columns(frame))
            self._kept.append(frame)
            self._waiting.clear()
        if self._waiting_victims:
            self._writer.append_victims(
                _columns(pd.concat(self._waiting_victims, ignore_index=True))
            )
            self._waiting_victims.clear()

    def frame(self) -> pd.DataFrame:
        """All rows so far as a recording would load them: NaN where there is no time."""
        self.flush()
        frame = pd.concat(self._kept, ignore_index=True)
        frame["placement"] = frame["placement"].astype("category")
        for name in (*self._operation.calls, "total", "latency"):
            values = frame[f"{name}_ns"].astype("float64")
            frame[f"{name}_ns"] = values.where(values >= 0)
        return frame


def _columns(frame: pd.DataFrame) -> dict[str, object]:
    return {str(name): frame[name].to_numpy() for name in frame.columns}
