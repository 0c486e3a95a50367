# SPDX-License-Identifier: MIT
"""Whether a folder's facts and columns are a recording's, before anything is made of them.

A recording may come from another machine, an older vmmprof or an editor. What
reports rely on is checked once, on loading, so that no report has to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vmmprof.errors import UsageError
from vmmprof.operations import Operation
from vmmprof.recording.readable import readable
from vmmprof.recording.schema import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    FORMAT_VERSION,
    JOURNAL_FILE,
    SAMPLES_FILE,
    samples_schema,
)
from vmmprof.recording.writer import read_journal

# What reports read of environment.json without asking, and the JSON kind it must have.
_REQUIRED: dict[str, tuple[type, str]] = {
    "is_model": (bool, "true or false"),
    "headline": (str, "a text"),
    "command": (str, "a text"),
}
_OPTIONAL: dict[str, tuple[type, str]] = {
    "gpu": (dict, "an object"),
    "machine": (dict, "an object"),
    "nvidia_module": (dict, "an object"),
    "victim": (dict, "an object"),
    "missing": (dict, "an object"),
    "remeasured": (dict, "an object"),
    "not_converged": (dict, "an object"),
    "plan_notes": (list, "a list"),
    "outcome": (str, "a text"),
}

# The least value of a column of numbers, where it is not 0: a CPU of -1 is a null that was saved.
_LEAST = {"size_bytes": 1, "cpu": -1}

_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),  # what pandas saves
)


def require_version(path: Path, version: object) -> None:
    """UsageError unless ``version`` is a format that this vmmprof reads."""
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise UsageError(
            f"{path} has recording format {version!r}; this vmmprof reads 1 to "
            f"{FORMAT_VERSION}, so use a newer one"
        )


def require_facts(path: Path, facts: Mapping[str, Any], operation: Operation) -> None:
    """UsageError when environment.json lacks a fact that reports need, or has another kind."""
    file = path / ENVIRONMENT_FILE
    missing = _REQUIRED.keys() - facts.keys()
    if missing:
        raise UsageError(f"{file} lacks {', '.join(sorted(missing))}")
    for name, (kind, words) in (_REQUIRED | _OPTIONAL).items():
        value = facts.get(name)
        absent = value is None and name in _OPTIONAL
        if not absent and not isinstance(value, kind):
            raise UsageError(f"{file} has {name} {value!r}; it must be {words}")
    for condition, width in (facts.get("not_converged") or {}).items():
        if not isinstance(width, (int, float)):
            raise UsageError(
                f"{file} has not_converged {width!r} for {condition}; it must be a number"
            )
    columns = samples_schema(operation).names
    times = [name.removesuffix("_ns") for name in columns if name.endswith("_ns")]
    times.remove("start")
    if facts["headline"] not in times:
        raise UsageError(
            f"{file} has headline {facts['headline']!r}; it must be one of {', '.join(times)}"
        )


def require_columns(path: Path, operation: Operation) -> None:
    """UsageError when the samples lack a column, or one has a type, nulls or values it cannot."""
    with readable(path, "samples"):
        if (path / SAMPLES_FILE).is_file():
            with pq.ParquetFile(path / SAMPLES_FILE) as file:
                schema = file.schema_arrow
                nulls, least = _stored_nulls(file.metadata), _stored_least(file.metadata)
        else:
            journal = read_journal(path / JOURNAL_FILE)
            schema = journal.schema
            nulls = {name: journal.column(name).null_count for name in schema.names}
            least = {
                field.name: pc.min(journal.column(field.name)).as_py()
                for field in schema
                if pa.types.is_integer(field.type)
            }
    for wanted in samples_schema(operation):
        if wanted.name not in schema.names:
            if wanted.name not in DEFAULTS:
                raise UsageError(f"{path} is not a recording: its samples lack {wanted.name}")
            continue
        if schema.names.count(wanted.name) > 1:
            raise UsageError(f"{path} is not a recording: its samples have {wanted.name} twice")
        found = schema.field(wanted.name).type
        # A data frame that was saved has times as floats, since its integers know no null.
        as_saved = wanted.nullable and pa.types.is_floating(found)
        if _kind(found) != _kind(wanted.type) and not as_saved:
            raise UsageError(
                f"{path} is not a recording: its column {wanted.name} has type {found}; it must "
                f"be {_kind(wanted.type)}"
            )
        if not wanted.nullable and nulls.get(wanted.name):
            raise UsageError(
                f"{path} is not a recording: its column {wanted.name} has missing values"
            )
        smallest = least.get(wanted.name)
        if smallest is not None and smallest < _LEAST.get(wanted.name, 0):
            raise UsageError(
                f"{path} is not a recording: its column {wanted.name} has {smallest:g}; the least "
                f"is {_LEAST.get(wanted.name, 0)}"
            )


def _kind(found: pa.DataType) -> str:
    plain = found.value_type if pa.types.is_dictionary(found) else found
    return next((words for matches, words in _KINDS if matches(plain)), str(plain))


def _stored_statistics(metadata: pq.FileMetaData) -> Iterator[tuple[str, pq.Statistics]]:
    """Column and statistics of every chunk, as far as the file has them."""
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            if column.statistics is not None:
                yield column.path_in_schema, column.statistics


def _stored_nulls(metadata: pq.FileMetaData) -> dict[str, int]:
    """Nulls a column."""
    nulls: dict[str, int] = {}
    for name, statistics in _stored_statistics(metadata):
        if statistics.has_null_count:
            nulls[name] = nulls.get(name, 0) + statistics.null_count
    return nulls


def _stored_least(metadata: pq.FileMetaData) -> dict[str, float]:
    """The smallest value of each column of numbers."""
    least: dict[str, float] = {}
    for name, statistics in _stored_statistics(metadata):
        if statistics.has_min_max and isinstance(statistics.min, (int, float)):
            least[name] = min(statistics.min, least.get(name, statistics.min))
    return least
