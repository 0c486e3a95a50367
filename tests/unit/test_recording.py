# SPDX-License-Identifier: MIT
from __future__ import annotations

import io
import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from vmmprof.errors import UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.reader import load
from vmmprof.recording.schema import FORMAT_VERSION, JOURNAL_FILE, SAMPLES_FILE
from vmmprof.recording.writer import RecordingWriter, UnsavedError, recording_path
from vmmprof.report.terminal import print_recording

ENVIRONMENT = {
    "format_version": FORMAT_VERSION,
    "operation": "vmm_cycle",
    "is_model": False,
    "headline": "total",
    "command": "vmmprof sweep",
}


def rows(placements: list[str], total_ns: list[int], first_round: int = 0) -> dict[str, object]:
    n = len(placements)
    return {
        "round": np.arange(first_round, first_round + n, dtype=np.int32),
        "order": np.zeros(n, np.int32),
        "thread": np.zeros(n, np.int16),
        "device": np.zeros(n, np.int16),
        "placement": np.array(placements, object),
        "size_bytes": np.full(n, 2 << 20),
        "scattered": np.zeros(n, np.bool_),
        "attempt": np.ones(n, np.int8),
        "start_ns": np.arange(n),
        **{f"{call}_ns": np.full(n, 5) for call in VMM_CYCLE.calls},
        "total_ns": np.array(total_ns),
        "flags": np.zeros(n, np.uint16),
    }


def write(path: Path) -> RecordingWriter:
    return RecordingWriter(path, VMM_CYCLE, ENVIRONMENT)


def test_what_is_appended_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.vmmprof"
    with write(path) as writer:
        writer.append(rows(["device", "domain:0"], [10, -1]))
        # A placement that the first batch did not have, and one fewer of those it had.
        writer.append(rows(["domain:1", "device"], [30, 40], first_round=2))
        writer.finish("complete", duration_s=1.5)
    recording = load(str(tmp_path / "a"))
    assert list(recording.samples["placement"]) == ["device", "domain:0", "domain:1", "device"]
    assert list(recording.samples["round"]) == [0, 1, 2, 3]
    totals = recording.samples["total_ns"]
    assert totals.isna().tolist() == [False, True, False, False]
    assert totals.dropna().tolist() == [10, 30, 40]
    assert recording.environment["outcome"] == "complete"
    assert recording.environment["duration_s"] == 1.5
    assert not (path / JOURNAL_FILE).exists()


def test_an_error_in_the_run_keeps_the_rows_and_says_failed(tmp_path: Path) -> None:
    path = tmp_path / "a.vmmprof"
    with pytest.raises(RuntimeError), write(path) as writer:
        writer.append(rows(["device"], [10]))
        raise RuntimeError
    recording = load(str(path))
    assert len(recording.samples) == 1
    assert recording.environment["outcome"] == "failed"


@pytest.mark.parametrize("cut_bytes", [0, 1, 200])
def test_a_killed_run_is_read_from_its_journal(tmp_path: Path, cut_bytes: int) -> None:
    path = tmp_path / "a.vmmprof"
    writer = write(path).__enter__()
    writer.append(rows(["device"], [10]))
    writer.append(rows(["domain:0"], [20]))
    journal = path / JOURNAL_FILE
    whole = journal.read_bytes()
    killed = tmp_path / "killed.vmmprof"
    killed.mkdir()
    (killed / JOURNAL_FILE).write_bytes(whole[: len(whole) - cut_bytes])
    (killed / "environment.json").write_bytes((path / "environment.json").read_bytes())
    recording = load(str(killed))
    assert list(recording.samples["placement"]) == ["device", "domain:0"][: 2 - bool(cut_bytes)]
    assert recording.environment["outcome"] == "running"
    writer.__exit__(None, None, None)


def test_a_run_killed_before_its_first_row_is_an_empty_recording(tmp_path: Path) -> None:
    writer = write(tmp_path / "a.vmmprof").__enter__()
    killed = tmp_path / "killed.vmmprof"
    shutil.copytree(tmp_path / "a.vmmprof", killed)
    recording = load(str(killed))
    assert len(recording.samples) == 0
    assert recording.environment["outcome"] == "running"
    writer.__exit__(None, None, None)


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """As a full disk: a file that would grow beyond it cannot be written (EFBIG)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_ends_in_one_line_and_keeps_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.vmmprof"
    with (
        file_size_limit(20_000),
        pytest.raises(UnsavedError, match="cannot be written any more: File too large"),
        write(path) as writer,
    ):
        for n in range(100):
            writer.append(rows(["device"], [10], first_round=n))
    recording = load(str(path))
    assert 0 < len(recording.samples) < 100
    assert recording.environment["outcome"] == "failed"


def test_a_full_disk_leaves_no_recording_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.vmmprof"
    with (
        file_size_limit(10),
        pytest.raises(UsageError, match=r"cannot write .*: File too large"),
        write(path),
    ):
        pass
    assert not path.exists()


def test_an_existing_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.vmmprof"
    with write(path):
        pass
    with pytest.raises(UsageError, match="exists already"), write(path):
        pass


def test_an_unwritable_place_is_bad_input() -> None:
    with (
        pytest.raises(UsageError, match=r"cannot write /proc/x/a\.vmmprof"),
        write(Path("/proc/x/a.vmmprof")),
    ):
        pass


def test_the_suffix_is_added_once() -> None:
    assert recording_path("d/a") == Path("d/a.vmmprof")
    assert recording_path("d/a.vmmprof") == Path("d/a.vmmprof")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format_version": FORMAT_VERSION + 1}, "use a newer one"),
        ({"format_version": None}, "recording format None"),
        ({"operation": "juggling"}, "'juggling'"),
        ({"headline": ...}, "lacks headline"),
    ],
)
def test_a_recording_of_another_kind_is_refused(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    path = tmp_path / "a.vmmprof"
    with write(path):
        pass
    environment = json.loads((path / "environment.json").read_text()) | change
    environment = {key: value for key, value in environment.items() if value is not ...}
    (path / "environment.json").write_text(json.dumps(environment))
    with pytest.raises(UsageError, match=complaint):
        load(str(path))


def test_what_is_no_recording_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        load(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be looked up: File name too long"):
        load(str(tmp_path / ("x" * 300)))
    (tmp_path / "empty.vmmprof").mkdir()
    with pytest.raises(UsageError, match=r"environment\.json cannot be read"):
        load(str(tmp_path / "empty"))
    path = tmp_path / "a.vmmprof"
    with write(path):
        pass
    (path / SAMPLES_FILE).write_bytes(b"not parquet")
    with pytest.raises(UsageError, match="its samples cannot be read"):
        load(str(path))


@pytest.mark.parametrize("name", ["", ".", "/", "./"])
def test_a_name_that_is_none_is_bad_input(name: str) -> None:
    with pytest.raises(UsageError, match="names no recording"):
        recording_path(name)


PUBLISHED = sorted((Path(__file__).parents[2] / "docs" / "results").rglob("*.vmmprof"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_recordings_stay_loadable(path: Path) -> None:
    recording = load(str(path))
    assert not recording.is_model
    assert (recording.samples["flags"] == 0).any()
    console = Console(file=io.StringIO(), width=80)
    print_recording(recording, console=console)
