# SPDX-License-Identifier: MIT
"""Whatever a recording's files hold, loading and reporting it works or is one line of bad input."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.test_recording import rows
from vmmprof.errors import UsageError
from vmmprof.kernel.recorded import load_traced
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.reader import load
from vmmprof.recording.schema import (
    DEFAULTS,
    FILES,
    FORMAT_VERSION,
    JOURNAL_FILE,
    SAMPLES_FILE,
    samples_schema,
)
from vmmprof.recording.writer import RecordingWriter
from vmmprof.report.json import dumps
from vmmprof.report.terminal import print_recording

FACTS: dict[str, object] = {
    "format_version": FORMAT_VERSION,
    "operation": "vmm_cycle",
    "is_model": False,
    "headline": "total",
    "command": "vmmprof sweep",
    "gpu": {"name": "GPU"},
    "machine": {"kernel": "6.1"},
    "plan_notes": [],
    "missing": {},
    "remeasured": {},
    "not_converged": {"device 2 MiB": 0.03},
    "outcome": "complete",
}
COLUMNS = samples_schema(VMM_CYCLE).names
Recorded = Callable[[], Path]


def report(path: Path) -> None:
    """Everything that reads a recording's facts and columns."""
    recording = load(str(path))
    print_recording(recording, calls=True, console=Console(file=io.StringIO(), width=80))
    json.loads(dumps(recording))


def report_or_complain(path: Path) -> None:
    try:
        report(path)
    except UsageError as error:
        assert "\n" not in str(error)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A fresh copy of one good recording, at the same path every time."""
    good = tmp_path / "good.vmmprof"
    with RecordingWriter(good, VMM_CYCLE, FACTS) as writer:
        writer.append(rows(["device", "domain:0", "device"], [10, -1, 30]))
        writer.finish("complete")

    def copy() -> Path:
        path = tmp_path / "copy.vmmprof"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(good, path)
        return path

    return copy


def edit(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    pq.write_table(change(pq.read_table(path / SAMPLES_FILE)), path / SAMPLES_FILE)
    return path


def replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
SAME_PATH = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_PATH
@given(name=st.sampled_from(sorted({*FACTS, "victim", "nvidia_module"})), value=JSON)
@example(name="format_version", value="\n")
def test_any_fact_of_any_kind(recorded: Recorded, name: str, value: object) -> None:
    path = recorded()
    (path / "environment.json").write_text(json.dumps(FACTS | {name: value}))
    report_or_complain(path)


@SAME_PATH
@given(
    name=st.sampled_from(COLUMNS),
    values=st.one_of(
        *(
            st.lists(st.none() | kind, min_size=3, max_size=3)
            for kind in (st.integers(-5, 100), st.booleans(), st.floats(), st.text(max_size=5))
        )
    ),
)
def test_any_column_of_any_type(recorded: Recorded, name: str, values: list[object]) -> None:
    path = edit(recorded(), lambda table: replaced(table, name, pa.array(values)))
    report_or_complain(path)


@SAME_PATH
@given(kept=st.floats(0, 1, exclude_max=True), journal=st.booleans())
def test_any_file_cut_short(recorded: Recorded, kept: float, journal: bool) -> None:
    path = recorded()
    table = pq.read_table(path / SAMPLES_FILE)
    file = path / (JOURNAL_FILE if journal else SAMPLES_FILE)
    if journal:
        (path / SAMPLES_FILE).unlink()
        with pa.ipc.new_stream(str(file), table.schema) as stream:
            stream.write_table(table)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole))])
    try:
        cycles = len(load(str(path)).samples)
    except UsageError:
        return
    # A journal is read up to its last whole batch; there is one here.
    assert journal and cycles in (0, 3)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_is_gone_is_named_or_has_a_default(recorded: Recorded, name: str) -> None:
    path = edit(recorded(), lambda table: table.drop_columns([name]))
    if name in DEFAULTS:
        report(path)
        return
    with pytest.raises(UsageError, match=f"its samples lack {name}"):
        report(path)


@pytest.mark.parametrize("name", ["round", "size_bytes", "placement", "flags"])
def test_a_column_with_missing_values_is_refused(recorded: Recorded, name: str) -> None:
    path = edit(recorded(), lambda t: replaced(t, name, pa.nulls(3, t.schema.field(name).type)))
    with pytest.raises(UsageError, match=f"its column {name} has missing values"):
        report(path)


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("size_bytes", 0, 1), ("total_ns", -5, 0), ("round", -1, 0), ("threads", -3, 0)],
)
def test_a_value_that_cannot_be_is_named(
    recorded: Recorded, name: str, value: int, least: int, journal: bool
) -> None:
    path = edit(
        recorded(),
        lambda table: replaced(
            table, name, pa.array([value, 1, 2], table.schema.field(name).type)
        ).cast(samples_schema(VMM_CYCLE)),
    )
    if journal:
        rows = pq.read_table(path / SAMPLES_FILE)
        (path / SAMPLES_FILE).unlink()
        with pa.ipc.new_stream(str(path / JOURNAL_FILE), rows.schema) as stream:
            stream.write_table(rows)
    with pytest.raises(UsageError, match=f"column {name} has {value}; the least is {least}$"):
        load(str(path))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"headline": "juggle"}, "headline 'juggle'; it must be one of reserve, create"),
        ({"is_model": "no"}, "is_model 'no'; it must be true or false"),
        ({"plan_notes": 5}, "plan_notes 5; it must be a list"),
        ({"missing": ["x"]}, r"missing \['x'\]; it must be an object"),
        ({"not_converged": {"a": "b"}}, "not_converged 'b' for a; it must be a number"),
        ({"format_version": True}, "recording format True"),
        ({"format_version": 0}, "recording format 0"),
    ],
)
def test_a_fact_of_another_kind_is_named(
    recorded: Recorded, change: dict[str, object], complaint: str
) -> None:
    path = recorded()
    (path / "environment.json").write_text(json.dumps(FACTS | change))
    with pytest.raises(UsageError, match=complaint):
        load(str(path))


@pytest.mark.parametrize("name", ["victims.parquet", "victims.arrows"])
def test_victims_that_cannot_be_read_are_one_line(recorded: Recorded, name: str) -> None:
    path = recorded()
    (path / name).write_bytes(b"neither parquet nor arrow")
    with pytest.raises(UsageError, match=f"its {name} cannot be read"):
        report(path)


def test_events_that_cannot_be_read_are_one_line(recorded: Recorded) -> None:
    path = recorded()
    (path / "events.parquet").write_bytes(b"not parquet")
    with pytest.raises(UsageError, match=r"its events\.parquet cannot be read"):
        load_traced(load(str(path)))


def _listen(path: Path) -> None:
    # The address of a socket has 108 bytes; a folder of pytest's is longer.
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a socket": _listen,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_refused_and_not_read(recorded: Recorded, name: str, kind: str) -> None:
    path = recorded()
    (path / name).unlink(missing_ok=True)
    NO_FILES[kind](path / name)
    with pytest.raises(UsageError, match=f"its {name} is {kind}; it must be a regular file"):
        load(str(path))


def test_a_column_that_is_there_twice_is_named(recorded: Recorded) -> None:
    path = edit(recorded(), lambda table: table.append_column("flags", table["flags"]))
    with pytest.raises(UsageError, match="its samples have flags twice"):
        report(path)


def test_an_environment_nested_too_deep_is_bad_input(recorded: Recorded) -> None:
    path = recorded()
    (path / "environment.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"its environment\.json cannot be read"):
        load(str(path))


def test_words_as_pandas_saves_them_are_text(recorded: Recorded) -> None:
    words = pa.array([""] * 3, pa.large_string())
    path = edit(recorded(), lambda table: replaced(table, "variant", words))
    report(path)
