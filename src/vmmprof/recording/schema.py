# SPDX-License-Identifier: MIT
"""The columns of samples.parquet (docs/recording.md) and their meaning."""

from __future__ import annotations

from enum import IntFlag

import pyarrow as pa

from vmmprof.operations import Operation

FORMAT_VERSION = 1
SUFFIX = ".vmmprof"
SAMPLES_FILE = "samples.parquet"
JOURNAL_FILE = "samples.arrows"
ENVIRONMENT_FILE = "environment.json"
VICTIMS_FILE = "victims.parquet"
VICTIMS_JOURNAL_FILE = "victims.arrows"
EVENTS_FILE = "events.parquet"
FILES = (
    ENVIRONMENT_FILE,
    SAMPLES_FILE,
    JOURNAL_FILE,
    VICTIMS_FILE,
    VICTIMS_JOURNAL_FILE,
    EVENTS_FILE,
)


class Flag(IntFlag):
    """Why a row is not a plain sample. Rows are kept; analysis leaves flagged ones out."""

    WARMUP = 1
    WRONG_ORDINAL = 2
    """The memory was not on the locality domain that was asked for."""
    WRONG_COMPRESSION = 4
    """The driver granted another compression type than asked for."""
    OUTSIDE_WINDOW = 8
    """Not begun and ended while all workers of the burst were running."""
    FAILED = 16
    """A call of the cycle failed; the calls from it on have no time."""
    COMPANY = 32
    """Of a second attempt that was for other conditions, which meet here what they met before."""
    TRACED = 64
    """Taken while probes stood in the kernel: of the kernel's phases, not of the times."""


# What a row says that does not say it: one thread of one process on one device,
# one usual cycle a visit, on a CPU that nobody noted (-1 = null).
DEFAULTS: dict[str, int | str] = {
    "process": 0,
    "thread": 0,
    "repeat": 0,
    "cpu": -1,
    "processes": 1,
    "threads": 1,
    "devices": 1,
    "variant": "",
    "latency_ns": -1,
}

DISCARDED = Flag.WRONG_ORDINAL | Flag.WRONG_COMPRESSION
"""Read-back mismatches: counted and shown, never measured as something else."""


def samples_schema(operation: Operation) -> pa.Schema:
    """Arrow schema of one row a cycle; times are int64 ns, null = not measured."""
    return pa.schema(
        [
            pa.field("round", pa.int32(), nullable=False),
            pa.field("order", pa.int32(), nullable=False),
            pa.field("process", pa.int16(), nullable=False),
            pa.field("thread", pa.int16(), nullable=False),
            pa.field("repeat", pa.int32(), nullable=False),
            pa.field("cpu", pa.int32()),
            pa.field("processes", pa.int16(), nullable=False),
            pa.field("threads", pa.int16(), nullable=False),
            pa.field("devices", pa.int16(), nullable=False),
            pa.field("variant", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("device", pa.int16(), nullable=False),
            pa.field("placement", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("size_bytes", pa.int64(), nullable=False),
            pa.field("scattered", pa.bool_(), nullable=False),
            pa.field("attempt", pa.int8(), nullable=False),
            pa.field("start_ns", pa.int64(), nullable=False),
            *(pa.field(f"{call}_ns", pa.int64()) for call in operation.calls),
            pa.field("total_ns", pa.int64()),
            pa.field("latency_ns", pa.int64()),
            pa.field("flags", pa.uint16(), nullable=False),
        ]
    )


def victims_schema() -> pa.Schema:
    """Arrow schema of one row an operation of a victim; times are int64 ns."""
    return pa.schema(
        [
            pa.field("round", pa.int32(), nullable=False),
            pa.field("repeat", pa.int32(), nullable=False),
            pa.field("cpu", pa.int32()),
            pa.field("processes", pa.int16(), nullable=False),
            pa.field("threads", pa.int16(), nullable=False),
            pa.field("devices", pa.int16(), nullable=False),
            pa.field("variant", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("placement", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("size_bytes", pa.int64(), nullable=False),
            pa.field("scattered", pa.bool_(), nullable=False),
            pa.field("attempt", pa.int8(), nullable=False),
            pa.field("start_ns", pa.int64(), nullable=False),
            pa.field("latency_ns", pa.int64(), nullable=False),
            pa.field("flags", pa.uint16(), nullable=False),
        ]
    )
