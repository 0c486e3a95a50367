# SPDX-License-Identifier: MIT
"""Load a recording: its samples as a data frame, its environment as a dict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.errors import UsageError
from vmmprof.operations import OPERATIONS, Operation
from vmmprof.recording.schema import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    EVENTS_FILE,
    FORMAT_VERSION,
    JOURNAL_FILE,
    SAMPLES_FILE,
    VICTIMS_FILE,
    VICTIMS_JOURNAL_FILE,
)
from vmmprof.recording.writer import read_journal, recording_path


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


def load(name: str) -> Recording:
    """The recording called ``name`` (with or without its suffix).

    UsageError when there is none, or when it is not readable as a recording of
    this or an older format.
    """
    path = Path(name) if Path(name).is_dir() else recording_path(name)
    environment = _load_environment(path)
    version = environment.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UsageError(
            f"{path} has recording format {version}; this vmmprof reads up to "
            f"{FORMAT_VERSION}, so use a newer one"
        )
    operation = OPERATIONS.get(str(environment.get("operation")))
    if operation is None:
        raise UsageError(
            f"{path} times operation {environment.get('operation')!r}, which this vmmprof does "
            f"not know; it knows {', '.join(OPERATIONS)}"
        )
    missing = {"is_model", "headline", "command"} - environment.keys()
    if missing:
        raise UsageError(f"{path / ENVIRONMENT_FILE} lacks {', '.join(sorted(missing))}")
    return Recording(path, _load_samples(path), environment, operation)


def _load_environment(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise UsageError(f"{path} is not there; name a recording folder made by vmmprof sweep")
    try:
        environment = json.loads((path / ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} is not a recording: its {ENVIRONMENT_FILE} cannot be read "
            f"({' '.join(str(error).split())})"
        ) from None
    if not isinstance(environment, dict):
        raise UsageError(f"{path} is not a recording: its {ENVIRONMENT_FILE} is not an object")
    return environment


def _load_samples(path: Path) -> pd.DataFrame:
    try:
        if (path / SAMPLES_FILE).is_file():
            table = pq.read_table(path / SAMPLES_FILE)
        else:
            # The run was killed before it could close: its journal has what was measured.
            table = read_journal(path / JOURNAL_FILE)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"{path} is not a recording: its samples cannot be read "
            f"({' '.join(str(error).split())})"
        ) from None
    samples: pd.DataFrame = table.to_pandas()
    for name, default in DEFAULTS.items():
        if name not in samples.columns:
            samples[name] = np.nan if name.endswith("_ns") else default
    samples["cpu"] = samples["cpu"].fillna(-1).astype("int32")
    times = [name for name in samples.columns if name.endswith("_ns") and name != "start_ns"]
    return samples.astype(dict.fromkeys(times, "float64"))


def load_victims(recording: Recording) -> pd.DataFrame | None:
    """What a victim met while others allocated, None when the run had none."""
    path, journal = recording.path / VICTIMS_FILE, recording.path / VICTIMS_JOURNAL_FILE
    if path.is_file():
        table = pq.read_table(path)
    elif journal.is_file():
        table = read_journal(journal)
    else:
        return None
    victims: pd.DataFrame = table.to_pandas()
    victims["cpu"] = victims["cpu"].fillna(-1).astype("int32")
    return victims


def load_events(recording: Recording) -> pd.DataFrame | None:
    """The kernel events of a traced recording, None when it was not traced."""
    path = recording.path / EVENTS_FILE
    return pq.read_table(path).to_pandas() if path.is_file() else None
