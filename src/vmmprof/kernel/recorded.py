# SPDX-License-Identifier: MIT
"""The kernel side of a traced recording, read and joined with its samples once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from vmmprof.kernel.calls import (
    CallShare,
    ProbeEffect,
    TracedCalls,
    call_share,
    probe_effect,
    traced_calls,
)
from vmmprof.recording.events import SAMPLE, event_facts, read_events
from vmmprof.recording.readable import readable
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import EVENTS_FILE

# The calls that take and give back memory: those that the update path is part of.
TRACED_CALLS = {"vmm_cycle": ("create", "release"), "rm_alloc": ("alloc", "free")}


@dataclass(frozen=True)
class TracedRecording:
    """Events of a recording, its calls with what they spent in the path, the probe's effect."""

    table: pa.Table
    events: pd.DataFrame
    facts: dict[str, Any]
    calls: list[TracedCalls]
    effects: list[ProbeEffect]

    @property
    def shares(self) -> list[CallShare]:
        """Every call of every condition in sum."""
        return [call_share([calls]) for calls in self.calls]

    @property
    def is_sampled(self) -> bool:
        if len(self.events):
            return bool(self.events["kind"].iloc[0] == SAMPLE)
        return self.facts.get("period_ns") is not None

    @property
    def losses(self) -> dict[str, int]:
        """What went missing, by name; only what is not 0."""
        return losses_of(self.facts)


def losses_of(facts: dict[str, Any]) -> dict[str, int]:
    """What a trace lost, by name; only what is not 0."""
    lost = facts.get("losses") or {
        name: facts.get(name, 0) for name in ("lost_samples", "throttled")
    }
    return {name: int(number) for name, number in lost.items() if number}


def load_traced(recording: Recording) -> TracedRecording | None:
    """The kernel side of a recording, None when it was not traced."""
    path = recording.path / EVENTS_FILE
    if not path.is_file():
        return None
    with readable(path):
        table = read_events(recording.path)
    facts = event_facts(table)
    events = table.to_pandas()
    windows = np.array(facts.get("traced_windows_ns", ()), np.int64).reshape(-1, 2)
    calls = traced_calls(
        recording.samples,
        events,
        windows,
        recording.operation,
        TRACED_CALLS.get(recording.operation.name, ()),
        period_ns=facts.get("period_ns"),
    )
    effects = probe_effect(recording.samples, windows, f"{recording.headline}_ns")
    return TracedRecording(table, events, facts, calls, effects)
