# SPDX-License-Identifier: MIT
"""A recording as a trace that ui.perfetto.dev opens (the JSON trace event format).

Every cycle is a slice on its thread's track with its calls as slices inside.
A recording holds when a cycle began and how long each call took, so calls are
laid end to end; what lies between two calls (clock reads) is not shown. Calls
of the kernel's update path stand on a track of their own under the thread,
split into page-table writes, barriers and TLB invalidates, whose times are sums
and laid end to end as well. Sampled moments are instants there, and the traced
calls say how many of their samples were in which phase.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from vmmprof.analysis.groups import times_ns
from vmmprof.analysis.intervals import IntArray
from vmmprof.errors import UsageError
from vmmprof.kernel.calls import UNKNOWN
from vmmprof.kernel.recorded import TracedRecording, load_traced
from vmmprof.recording.events import SAMPLE, UPDATE
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import Flag
from vmmprof.report.context import context
from vmmprof.report.numbers import NS_PER_US
from vmmprof.sizes import format_size

# Track numbers: threads count from 1, their kernel tracks from this on.
_KERNEL_TRACKS = 1_000_000
# Phases of an update call: the column that holds their time and their name on the track.
_PHASES = (("pte_ns", "page-table writes"), ("barrier_ns", "barrier"), ("tlb_ns", "TLB invalidate"))

Event = dict[str, Any]


@dataclass(frozen=True)
class Exported:
    """How many slices were written."""

    cycles: int
    calls: int
    updates: int
    samples: int


def export(recording: Recording, out: str) -> Exported:
    """Write the trace to ``out``; UsageError when that cannot be written."""
    try:
        with Path(out).open("w", encoding="utf-8") as stream:
            return _write(recording, stream)
    except OSError as error:
        raise UsageError(
            f"trace cannot be written to {out} ({error.strerror}); name a file that can"
        ) from None


def _write(recording: Recording, stream: TextIO) -> Exported:
    facts = context(recording)
    about = {
        "recording": str(recording.path),
        "model": recording.is_model,
        "machine": facts.machine,
        "command": facts.command,
        "layout": "calls are laid end to end from the start of their cycle, the phases of an "
        "update call, which are sums, from its start",
    }
    stream.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
    counts = {"cycle": 0, "call": 0, "update": 0, "sample": 0}
    separator = ""
    for event in _events(recording, facts.title):
        stream.write(separator + json.dumps(event, separators=(",", ":"), allow_nan=False))
        separator = ",\n"
        if event.get("cat") in counts:
            counts[event["cat"]] += 1
    stream.write("\n]}\n")
    return Exported(counts["cycle"], counts["call"], counts["update"], counts["sample"])


def _events(recording: Recording, title: str) -> Iterator[Event]:
    tracks = _Tracks(recording.samples)
    yield from tracks.names(title)
    traced = load_traced(recording)
    yield from _cycles(recording, tracks, {} if traced is None else _sampled_calls(traced))
    if traced is not None:
        yield from _kernel(traced.events, tracks)


def _sampled_calls(traced: TracedRecording) -> dict[tuple[int, str], dict[str, int]]:
    """Samples by phase, by row and name of the call; nothing for counted calls."""
    found = {}
    for calls in traced.calls:
        if calls.period_ns is None:
            continue
        numbers = {"samples": calls.whole} | {
            f"samples in {name}": part for name, part in calls.parts.items() if part is not None
        }
        for at, row in enumerate(calls.rows.tolist()):
            found[row, calls.name] = {name: int(values[at]) for name, values in numbers.items()}
    return found


class _Tracks:
    """The track of each row, and of each moment: which thread's cycle was running."""

    def __init__(self, samples: pd.DataFrame) -> None:
        self.process = _process_numbers(samples)
        self.thread = samples["thread"].to_numpy(np.int64) + 1
        begin = samples["start_ns"].to_numpy(np.int64)
        self._order = np.argsort(begin, kind="stable")
        self._begin = begin[self._order]
        self._samples = samples

    def names(self, title: str) -> Iterator[Event]:
        devices = self._samples["device"].to_numpy()
        processes = self._samples["process"].to_numpy()
        for number, row in _first_rows(self.process):
            name = f"{title}: device {devices[row]}, process {processes[row]}"
            yield _name_event("process_name", number, 0, name)
        for (process, thread), row in _first_rows(
            self.process * _KERNEL_TRACKS + self.thread, split=True
        ):
            own = int(self._samples["thread"].iloc[row])
            yield _name_event("thread_name", process, thread, f"thread {own}")
            kernel = f"kernel under thread {own}"
            yield _name_event("thread_name", process, thread + _KERNEL_TRACKS, kernel)

    def at(self, time_ns: int) -> tuple[int, int]:
        """Process and thread track of the latest cycle begun at a moment (the first if none)."""
        at = max(0, int(np.searchsorted(self._begin, time_ns, side="right")) - 1)
        row = self._order[at]
        return int(self.process[row]), int(self.thread[row])


def _process_numbers(samples: pd.DataFrame) -> IntArray:
    numbers: IntArray = (
        samples["device"].to_numpy(np.int64) * 1000 + samples["process"].to_numpy(np.int64) + 1
    )
    return numbers


def _first_rows(codes: IntArray, split: bool = False) -> Iterator[tuple[Any, int]]:
    values, rows = np.unique(codes, return_index=True)
    for value, row in zip(values.tolist(), rows.tolist(), strict=True):
        yield (divmod(value, _KERNEL_TRACKS) if split else value), row


def _name_event(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(
    category: str, name: str, begin_ns: float, duration_ns: float, track: tuple[int, int]
) -> Event:
    process, thread = track
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": round(begin_ns / NS_PER_US, 3),
        "dur": round(duration_ns / NS_PER_US, 3),
        "pid": process,
        "tid": thread,
    }


def _cycles(
    recording: Recording, tracks: _Tracks, sampled: Mapping[tuple[int, str], dict[str, int]]
) -> Iterator[Event]:
    samples, operation = recording.samples, recording.operation
    calls = np.stack([times_ns(samples, call) for call in operation.calls], axis=1)
    totals = times_ns(samples, "total")
    # A model may not know the whole cycle; then what it knows of the calls is its length.
    lengths = np.where(np.isnan(totals), np.nansum(calls, axis=1), totals)
    begins = samples["start_ns"].to_numpy(np.int64)
    placements = samples["placement"].astype(str).to_numpy()
    sizes = samples["size_bytes"].to_numpy(np.int64)
    flags = samples["flags"].to_numpy(np.int64)
    details = {name: samples[name].to_numpy(np.int64) for name in ("round", "attempt")}
    for row in range(len(samples)):
        track = int(tracks.process[row]), int(tracks.thread[row])
        name = f"{placements[row]} {format_size(int(sizes[row]))}"
        cycle = _slice("cycle", name, begins[row], lengths[row], track)
        cycle["args"] = {key: int(values[row]) for key, values in details.items()}
        cycle["args"]["flags"] = _flag_words(int(flags[row]))
        yield cycle
        begin = float(begins[row])
        for call, duration in zip(operation.calls, calls[row].tolist(), strict=True):
            if not math.isnan(duration):
                event = _slice("call", operation.api_name(call), begin, duration, track)
                if (row, call) in sampled:
                    event["args"] = sampled[row, call]
                yield event
                begin += duration


def _flag_words(flags: int) -> str:
    return ", ".join(flag.name.lower() for flag in Flag if flag.name and flags & flag) or "none"


def _kernel(events: pd.DataFrame, tracks: _Tracks) -> Iterator[Event]:
    for event in events.to_dict("records"):
        process, thread = tracks.at(int(event["time_ns"]))
        track = process, thread + _KERNEL_TRACKS
        if event["kind"] == UPDATE:
            yield from _update(event, track)
        elif event["kind"] == SAMPLE:
            yield {
                "ph": "i",
                "s": "t",
                "cat": "sample",
                "name": str(event["phase"]),
                "ts": round(event["time_ns"] / NS_PER_US, 3),
                "pid": track[0],
                "tid": track[1],
            }


def _update(event: Mapping[Hashable, Any], track: tuple[int, int]) -> Iterator[Event]:
    duration = _known(event["duration_ns"])
    if duration is None:
        return
    direction = event["direction"] if isinstance(event["direction"], str) else UNKNOWN
    whole = _slice("update", f"update, {direction}", event["time_ns"], duration, track)
    counted = ("iterations", "runs", "bytes", "barriers", "invalidates", "status")
    whole["args"] = {name: _known(event[name]) for name in counted}
    yield whole
    begin = float(event["time_ns"])
    for column, name in _PHASES:
        spent = _known(event[column])
        if spent is not None:
            yield _slice("phase", name, begin, spent, track)
            begin += spent


def _known(value: Any) -> int | None:
    """A number of an event, None where its method does not give it."""
    return None if value is None or pd.isna(value) else int(value)
