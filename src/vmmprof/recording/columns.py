# SPDX-License-Identifier: MIT
"""A recording's samples read column by column, as many as are asked for.

Ten million cycles take over a gigabyte as a data frame; a summary needs a few
columns at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.recording.readable import readable
from vmmprof.recording.schema import DEFAULTS, JOURNAL_FILE, SAMPLES_FILE
from vmmprof.recording.writer import read_journal

# What pairs are made of, asked for again and again; of times the last one is kept.
_KEPT_COLUMNS = ("round", "device", "thread")


class StoredColumns:
    """Samples of the recording at ``path``; UsageError where they cannot be read.

    ``columns[name]`` is the column: ``placement`` as a pandas Categorical, times
    as float64 ns with NaN for null, the rest as numpy arrays. A column that an
    older recording lacks has its default (schema.DEFAULTS); any other unknown
    name is a KeyError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Any] = {}
        self._last_time: tuple[str, Any] = ("", None)
        self._journal: pa.Table | None = None
        self._file: pq.ParquetFile | None = None
        with readable(path, "samples"):
            if (path / SAMPLES_FILE).is_file():
                self._file = pq.ParquetFile(path / SAMPLES_FILE)
                self._names = self._file.schema_arrow.names
                self._length = int(self._file.metadata.num_rows)
            else:
                # The run was killed before it could close: its journal has what was measured.
                self._journal = read_journal(path / JOURNAL_FILE)
                self._names = self._journal.schema.names
                self._length = int(self._journal.num_rows)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Any:
        if name in self._kept:
            return self._kept[name]
        if name == self._last_time[0]:
            return self._last_time[1]
        if name not in self._names:
            if name not in DEFAULTS:
                raise KeyError(name)
            return _missing(name, self._length)
        if name.endswith("_ns"):
            self._last_time = ("", None)  # given up first, so that two are never held
            self._last_time = (name, self._read(name))
            return self._last_time[1]
        column = self._read(name)
        if name in _KEPT_COLUMNS:
            self._kept[name] = column
        return column

    def _read(self, name: str) -> Any:
        with readable(self._path, "samples"):
            if self._file is not None:
                column = self._file.read(columns=[name]).column(0)
            else:
                assert self._journal is not None
                column = self._journal.column(name)
            if pa.types.is_dictionary(column.type):
                return _categorical(column)
            if name.endswith("_ns") and name != "start_ns":
                return _float64(column)
            if name == "cpu":
                column = column.fill_null(DEFAULTS["cpu"])
            return column.to_numpy()

    def frame(self) -> pd.DataFrame:
        """All samples as a data frame, what an older recording lacks filled in."""
        with readable(self._path, "samples"):
            table: Any = self._journal if self._file is None else self._file.read()
            samples: pd.DataFrame = table.to_pandas()
        for name, default in DEFAULTS.items():
            if name not in samples.columns:
                samples[name] = np.nan if name.endswith("_ns") else default
        samples["cpu"] = samples["cpu"].fillna(DEFAULTS["cpu"]).astype("int32")
        times = [name for name in samples.columns if name.endswith("_ns") and name != "start_ns"]
        return samples.astype(dict.fromkeys(times, "float64"))


def _missing(name: str, length: int) -> Any:
    """A column that a recording lacks: its default in every row, no time as NaN."""
    value = DEFAULTS[name]
    if name.endswith("_ns"):
        return np.full(length, np.nan)
    if isinstance(value, str):
        return pd.Categorical([value]).take(np.zeros(length, np.intp))
    return np.full(length, value, np.int32)


def _categorical(column: pa.ChunkedArray) -> pd.Categorical:
    whole = column.unify_dictionaries()
    codes = np.concatenate(
        [chunk.indices.to_numpy(zero_copy_only=False) for chunk in whole.chunks]
        or [np.empty(0, np.int32)]
    )
    categories = whole.chunk(0).dictionary.to_pylist() if whole.num_chunks else []
    return pd.Categorical.from_codes(codes, pd.Index(categories, dtype=object))


def _float64(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """int64 with nulls as float64 with NaN, chunk by chunk so that no second whole copy exists."""
    values = np.empty(len(column), np.float64)
    at = 0
    for chunk in column.chunks:
        part = values[at : at + len(chunk)]
        if chunk.null_count:
            part[:] = chunk.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        else:
            part[:] = chunk.to_numpy()
        at += len(chunk)
    return values
