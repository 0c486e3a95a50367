# SPDX-License-Identifier: MIT
"""Write a recording so that whatever ends the run, what was measured is there.

While a run goes on its rows are appended to an Arrow stream (the journal),
which stays readable up to its last whole batch even after SIGKILL. Closing
turns the journal into samples.parquet.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.errors import PartialError, UsageError
from vmmprof.operations import Operation
from vmmprof.recording.schema import (
    DEFAULTS,
    ENVIRONMENT_FILE,
    JOURNAL_FILE,
    SAMPLES_FILE,
    SUFFIX,
    VICTIMS_FILE,
    VICTIMS_JOURNAL_FILE,
    samples_schema,
    victims_schema,
)

RUNNING = "running"


def recording_path(name: str) -> Path:
    """``NAME`` as the path of a recording folder, the suffix added where it is missing.

    UsageError for a name that ends in no name of its own, such as ``.`` and ``/``.
    """
    path = Path(name)
    if not path.name:
        raise UsageError(f"{name!r} names no recording; NAME is a folder NAME{SUFFIX}")
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


class UnsavedError(PartialError):
    """A recording cannot be written any more, so nothing more can be measured into it."""


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    """UnsavedError in place of what the system says when it takes no more."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise UnsavedError(
            f"{path} cannot be written any more: {reason}; what was saved until then is there"
        ) from None


class _Table:
    """One table of a recording: a journal while it grows, a Parquet file once it is closed."""

    def __init__(self, folder: Path, journal: str, file: str, schema: pa.Schema) -> None:
        self._journal, self._file, self._schema = folder / journal, folder / file, schema
        self._sink = pa.OSFile(str(self._journal), "wb")
        # Deltas, so that a placement that first shows up in a later batch can be added.
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        self._stream = pa.ipc.new_stream(self._sink, schema, options=options)
        # Arrow writes the schema with the first batch; a run may be killed before it has one.
        self._stream.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        self._sink.flush()

    def append(self, columns: Mapping[str, object]) -> None:
        self._stream.write_batch(_record_batch(columns, self._schema))
        self._sink.flush()

    def close(self) -> None:
        self._stream.close()
        self._sink.close()
        partial = self._file.with_name(self._file.name + ".partial")
        try:
            pq.write_table(read_journal(self._journal), partial, compression="zstd")
        except OSError:
            partial.unlink(missing_ok=True)  # the journal has it all, and the room is short
            raise
        partial.rename(self._file)
        self._journal.unlink()


class RecordingWriter:
    """A recording being written. Use as a context manager.

    The folder is made on entry, before anything is measured: UsageError when
    it exists already or cannot be written. ``environment["outcome"]`` is
    ``running`` until :meth:`finish` says how the run ended.
    """

    def __init__(
        self,
        path: Path,
        operation: Operation,
        environment: Mapping[str, object],
        *,
        victims: bool = False,
    ) -> None:
        self.path = path
        self.environment = dict(environment) | {"outcome": RUNNING}
        self._operation = operation
        self._with_victims = victims
        self._samples: _Table | None = None
        self._victims: _Table | None = None

    def __enter__(self) -> RecordingWriter:
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"{self.path} exists already; choose another --output or remove it"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {self.path}: {error.strerror}; choose another --output"
            ) from None
        try:
            self._begin()
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise UsageError(
                f"cannot write {self.path}: {os.strerror(error.errno or 0)}; choose another "
                "--output"
            ) from None
        return self

    def _begin(self) -> None:
        self._write_environment()
        samples = _Table(self.path, JOURNAL_FILE, SAMPLES_FILE, samples_schema(self._operation))
        if self._with_victims:
            self._victims = _Table(self.path, VICTIMS_JOURNAL_FILE, VICTIMS_FILE, victims_schema())
        self._samples = samples

    def append(self, columns: Mapping[str, object]) -> None:
        """Add rows: the columns of the schema, as arrays of one length (docs/recording.md).

        Columns in schema.DEFAULTS may be left out. UnsavedError when they cannot be saved.
        """
        assert self._samples is not None
        with _saving(self.path):
            self._samples.append(columns)

    def append_victims(self, columns: Mapping[str, object]) -> None:
        """Add operations of a victim, as :meth:`append` adds cycles."""
        assert self._victims is not None
        with _saving(self.path):
            self._victims.append(columns)

    def finish(self, outcome: str, **facts: object) -> None:
        """Say how the run ended, with facts that were only known at its end."""
        self.environment |= facts | {"outcome": outcome}

    def __exit__(self, *exc: object) -> None:
        if self._samples is None:
            return
        try:
            with _saving(self.path):
                self._samples.close()
                if self._victims is not None:
                    self._victims.close()
        finally:
            if self.environment["outcome"] == RUNNING:
                self.environment["outcome"] = "failed"
            with _saving(self.path):
                self._write_environment()

    def _write_environment(self) -> None:
        text = json.dumps(self.environment, indent=2, default=str) + "\n"
        partial = self.path / (ENVIRONMENT_FILE + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.rename(self.path / ENVIRONMENT_FILE)


def _record_batch(columns: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    length = len(np.asarray(columns["round"]))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = np.full(length, DEFAULTS[field.name])
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        elif field.nullable:
            array = np.asarray(values, np.int64)
            arrays.append(pa.array(array, field.type, mask=array < 0))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_journal(path: Path) -> pa.Table:
    """All whole batches of a journal, also of one that a kill cut short."""
    batches = []
    with pa.OSFile(os.fspath(path)) as source:
        reader = pa.ipc.open_stream(source)
        schema = reader.schema
        with contextlib.suppress(pa.ArrowInvalid, OSError):
            batches.extend(reader)
    return pa.Table.from_batches(batches, schema).unify_dictionaries()
