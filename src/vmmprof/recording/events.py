# SPDX-License-Identifier: MIT
"""The columns of events.parquet (docs/recording.md): what ran inside the kernel.

Two kinds of row share one table. An ``update`` is one call of the driver's
update function, counted by a probe; a ``sample`` is one moment at which a
sampling clock looked. Columns that a row's kind or its method does not give
are null, which reads 'unknown' and never 0.

Times are int64 ns; ``time_ns`` is CLOCK_MONOTONIC, the clock of ``start_ns``
in samples.parquet. A ``*_raw_ns`` column is as measured, its partner without
``raw`` has the probe's own cost taken out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.recording.schema import EVENTS_FILE

UPDATE = "update"
SAMPLE = "sample"

_METADATA_KEY = b"vmmprof"
_TEXT = pa.dictionary(pa.int32(), pa.string())

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("kind", _TEXT, nullable=False),
        # Start of the update call, or the moment of the sample.
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("pid", pa.int32(), nullable=False),
        pa.field("tid", pa.int32(), nullable=False),
        # commit or release.
        pa.field("direction", _TEXT),
        # Of an update call: mapping calls made, physical runs they cover, bytes mapped.
        pa.field("iterations", pa.int64()),
        pa.field("runs", pa.int64()),
        pa.field("bytes", pa.int64()),
        # The whole call; the mapping calls in it, page-table writes and their flushes included,
        # barrier and TLB invalidate of the loop taken out.
        pa.field("duration_ns", pa.int64()),
        pa.field("duration_raw_ns", pa.int64()),
        pa.field("pte_ns", pa.int64()),
        pa.field("pte_raw_ns", pa.int64()),
        # The loop's own memory barriers and TLB invalidates.
        pa.field("barriers", pa.int64()),
        pa.field("barrier_ns", pa.int64()),
        pa.field("barrier_raw_ns", pa.int64()),
        pa.field("invalidates", pa.int64()),
        pa.field("tlb_ns", pa.int64()),
        pa.field("tlb_raw_ns", pa.int64()),
        # Flushes that end single page-table writes; their time is part of pte_ns.
        pa.field("page_flushes", pa.int64()),
        pa.field("page_flush_ns", pa.int64()),
        pa.field("page_flush_raw_ns", pa.int64()),
        # The update call's return value; the first mapping call that failed (from 0) and with what.
        pa.field("status", pa.int64()),
        pa.field("failed_iteration", pa.int64()),
        pa.field("failed_status", pa.int64()),
        # Of a sample: its phase (vmmprof.kernel.attribution.Phase), and its kernel functions from
        # the outermost in, joined by ';' and empty in user space.
        pa.field("phase", _TEXT),
        pa.field("stack", _TEXT),
    ]
)


def events_table(columns: Mapping[str, Any], facts: Mapping[str, object]) -> pa.Table:
    """A table of events; columns that are not given are null. ``facts`` must be JSON-ready."""
    length = len(columns["kind"])
    arrays = []
    for field in EVENTS_SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(length, field.type))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    metadata = {_METADATA_KEY: json.dumps(dict(facts)).encode()}
    return pa.Table.from_arrays(arrays, schema=EVENTS_SCHEMA.with_metadata(metadata))


def write_events(recording: Path, events: pa.Table) -> None:
    """Put events into a recording's folder."""
    partial = recording / (EVENTS_FILE + ".partial")
    pq.write_table(events, partial, compression="zstd")
    partial.rename(recording / EVENTS_FILE)


def read_events(recording: Path) -> pa.Table:
    """The events of a traced recording, with their facts."""
    return pq.read_table(recording / EVENTS_FILE)


def event_facts(events: pa.Table) -> dict[str, Any]:
    """How the events were taken: method, module, calibration, losses, unknown fields."""
    metadata = events.schema.metadata or {}
    facts: dict[str, Any] = json.loads(metadata.get(_METADATA_KEY, b"{}"))
    return facts


def with_facts(events: pa.Table, facts: Mapping[str, object]) -> pa.Table:
    """The same events with more facts about how they were taken."""
    merged = event_facts(events) | dict(facts)
    return events.replace_schema_metadata({_METADATA_KEY: json.dumps(merged).encode()})
