# SPDX-License-Identifier: MIT
"""Write several recordings as one: rounds numbered through, every environment kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof import __version__
from vmmprof.errors import UsageError
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    FORMAT_VERSION,
    SAMPLES_FILE,
    samples_schema,
)

# Facts that are about the run as a whole and must be the same to be one data set.
_SHARED = ("operation", "headline", "is_model")


def check_alike(recordings: Sequence[Recording]) -> None:
    """UsageError when the recordings do not measure the same thing."""
    first = recordings[0]
    for other in recordings[1:]:
        for fact in _SHARED:
            mine, its = first.environment.get(fact), other.environment.get(fact)
            if mine != its:
                raise UsageError(
                    f"{first.path} has {fact} {mine} and {other.path} has {its}; only alike "
                    "recordings are one data set"
                )


def write_merged(
    path: Path,
    recordings: Sequence[Recording],
    kept: Sequence[npt.NDArray[np.bool_]],
    command: Sequence[str],
) -> None:
    """Write the ``kept`` rows of each recording to the new folder ``path``.

    Rounds are numbered through, attempts apart, so that no pair spans two
    recordings; the attempt becomes 1. UsageError when the folder exists or
    cannot be written; what was begun is removed.
    """
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise UsageError(
            f"merged recording cannot be written to {path} ({error.strerror}); choose another name"
        ) from None
    try:
        _write(path, recordings, kept, command)
    except BaseException:
        shutil.rmtree(path)
        raise


def _write(
    path: Path,
    recordings: Sequence[Recording],
    kept: Sequence[npt.NDArray[np.bool_]],
    command: Sequence[str],
) -> None:
    schema = samples_schema(recordings[0].operation)
    parts = []
    next_round = 0
    with pq.ParquetWriter(path / SAMPLES_FILE, schema, compression="zstd") as writer:
        for recording, mask in zip(recordings, kept, strict=True):
            table, rounds = _renumbered(recording, mask, schema, next_round)
            writer.write_table(table)
            parts.append(
                {
                    "recording": str(recording.path),
                    "first_round": next_round,
                    "rounds": rounds,
                    "environment": recording.environment,
                }
            )
            next_round += rounds
    environment = _environment(recordings, parts, command)
    (path / ENVIRONMENT_FILE).write_text(json.dumps(environment, indent=2), encoding="utf-8")


def _renumbered(
    recording: Recording, mask: npt.NDArray[np.bool_], schema: pa.Schema, first_round: int
) -> tuple[pa.Table, int]:
    """The kept rows under new round numbers, and how many numbers they take."""
    rows = np.flatnonzero(mask)
    attempts = np.asarray(recording.columns["attempt"])[rows].astype(np.int64)
    rounds = np.asarray(recording.columns["round"])[rows].astype(np.int64)
    span = int(rounds.max(initial=-1)) + 1
    _, attempt_places = np.unique(attempts, return_inverse=True)
    numbers = first_round + attempt_places * span + rounds
    arrays = []
    for field in schema:
        if field.name == "round":
            values: Any = pa.array(numbers)
        elif field.name == "attempt":
            values = pa.array(np.ones(len(rows), np.int8))
        elif pa.types.is_dictionary(field.type):
            names = np.asarray(recording.columns[field.name], dtype=object)[rows]
            values = pa.array(names, pa.string()).dictionary_encode()
        else:
            column = np.asarray(recording.columns[field.name])[rows]
            values = pa.array(column, mask=_unknown(field, column))
        arrays.append(values.cast(field.type))
    taken = span * (int(attempt_places.max(initial=-1)) + 1)
    return pa.Table.from_arrays(arrays, schema=schema), taken


def _unknown(field: pa.Field, column: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
    """Which values of a column stand for null."""
    if not field.nullable:
        return None
    unknown: npt.NDArray[np.bool_] = (
        column == DEFAULTS["cpu"] if field.name == "cpu" else np.isnan(column)
    )
    return unknown


def _environment(
    recordings: Sequence[Recording], parts: list[dict[str, Any]], command: Sequence[str]
) -> dict[str, Any]:
    """What all share as it is, what differs said to differ, the whole of each in ``merged``."""
    environments = [recording.environment for recording in recordings]
    outcomes = {str(one.get("outcome", "complete")) for one in environments}
    return {
        "format_version": FORMAT_VERSION,
        "vmmprof_version": __version__,
        "command": " ".join(command),
        **{fact: environments[0].get(fact) for fact in _SHARED},
        "driver": _same(environments, "driver"),
        "gpu": {"name": _same([_section(one, "gpu") for one in environments], "name")},
        "nvidia_module": {
            "version": _same([_section(one, "nvidia_module") for one in environments], "version")
        },
        "machine": {"kernel": _same([_section(one, "machine") for one in environments], "kernel")},
        "plan_notes": [f"merged from {len(recordings)} recordings"],
        "outcome": "complete" if outcomes == {"complete"} else "; ".join(sorted(outcomes)),
        "merged": parts,
    }


def _section(environment: dict[str, Any], name: str) -> dict[str, Any]:
    section = environment.get(name)
    return section if isinstance(section, dict) else {}


def _same(facts: Sequence[dict[str, Any]], name: str) -> str:
    values = sorted({str(one.get(name, "unknown")) for one in facts})
    return " / ".join(values)
