# SPDX-License-Identifier: MIT
"""Load a recording: its samples as a data frame, its environment as a dict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import pyarrow.parquet as pq

from vmmprof.errors import UsageError
from vmmprof.operations import OPERATIONS, Operation
from vmmprof.recording.columns import StoredColumns
from vmmprof.recording.readable import is_folder, readable, require_regular_files
from vmmprof.recording.schema import (
    ENVIRONMENT_FILE,
    FILES,
    VICTIMS_FILE,
    VICTIMS_JOURNAL_FILE,
)
from vmmprof.recording.validity import require_columns, require_facts, require_version
from vmmprof.recording.writer import read_journal, recording_path


class SampleColumns(Protocol):
    """Samples by column name; a data frame is one."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Recording:
    """A loaded recording.

    ``samples`` has the columns of docs/recording.md, one row a cycle; times are
    float64 ns with NaN where nothing was measured, ``placement`` is a category,
    ``cpu`` is -1 where nobody noted it.
    """

    path: Path
    samples: pd.DataFrame
    environment: dict[str, Any]
    operation: Operation

    @property
    def columns(self) -> SampleColumns:
        """The samples by column, without a need for all of them at once."""
        return self.samples

    @property
    def is_model(self) -> bool:
        """Whether the times were modelled, not measured."""
        return bool(self.environment["is_model"])

    @property
    def headline(self) -> str:
        """``total``, or the one call that stands for the cycle."""
        return str(self.environment["headline"])

    @property
    def command(self) -> str:
        """The command line that made it."""
        return str(self.environment["command"])


class _StoredRecording(Recording):
    """A recording on disk: its columns are read when asked for, its data frame once."""

    def __init__(
        self,
        path: Path,
        stored: StoredColumns,
        environment: dict[str, Any],
        operation: Operation,
    ) -> None:
        for name, value in (
            ("path", path),
            ("_stored", stored),
            ("environment", environment),
            ("operation", operation),
        ):
            object.__setattr__(self, name, value)

    @cached_property
    def samples(self) -> pd.DataFrame:
        stored: StoredColumns = self._stored  # type: ignore[attr-defined]  # set in __init__
        return stored.frame()

    @property
    def columns(self) -> SampleColumns:
        stored: StoredColumns = self._stored  # type: ignore[attr-defined]  # set in __init__
        return stored


def load(name: str) -> Recording:
    """The recording called ``name`` (with or without its suffix).

    UsageError when there is none, or when it is not readable as a recording of
    this or an older format.
    """
    path = Path(name) if is_folder(Path(name)) else recording_path(name)
    environment = _load_environment(path)
    require_version(path, environment.get("format_version"))
    operation = OPERATIONS.get(str(environment.get("operation")))
    if operation is None:
        raise UsageError(
            f"{path} times operation {environment.get('operation')!r}, which this vmmprof does "
            f"not know; it knows {', '.join(OPERATIONS)}"
        )
    require_facts(path, environment, operation)
    require_columns(path, operation)
    return _StoredRecording(path, StoredColumns(path), environment, operation)


def _load_environment(path: Path) -> dict[str, Any]:
    if not is_folder(path):
        raise UsageError(f"{path} is not there; name a recording folder made by vmmprof sweep")
    require_regular_files(path, FILES)
    try:
        environment = json.loads((path / ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not a recording: its {ENVIRONMENT_FILE} cannot be read "
            f"({' '.join(str(error).split())})"
        ) from None
    if not isinstance(environment, dict):
        raise UsageError(f"{path} is not a recording: its {ENVIRONMENT_FILE} is not an object")
    return environment


def load_victims(recording: Recording) -> pd.DataFrame | None:
    """What a victim met while others allocated, None when the run had none."""
    path, journal = recording.path / VICTIMS_FILE, recording.path / VICTIMS_JOURNAL_FILE
    if path.is_file():
        with readable(path):
            table = pq.read_table(path)
    elif journal.is_file():
        with readable(journal):
            table = read_journal(journal)
    else:
        return None
    victims: pd.DataFrame = table.to_pandas()
    victims["cpu"] = victims["cpu"].fillna(-1).astype("int32")
    return victims
