# SPDX-License-Identifier: MIT
"""``vmmprof export --perfetto``: counts and sums are the recording's, slices nest."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from vmmprof.errors import ExitCode, UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.events import events_table, write_events
from vmmprof.recording.schema import SUFFIX

from .cli_runs import run, save
from .recordings import measured, modelled


def trace_of(path: Path, out: Path) -> list[dict[str, Any]]:
    assert run("export", str(path), "--perfetto", str(out)) is ExitCode.OK
    events: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    return events


def of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category]


def test_slice_counts_and_sums_are_the_recording_s(tmp_path: Path) -> None:
    recording = measured()
    events = trace_of(save(tmp_path / "one", recording), tmp_path / "out.json")
    rows = recording.samples
    assert len(of(events, "cycle")) == len(rows)
    assert sum(e["dur"] for e in of(events, "cycle")) == pytest.approx(
        rows["total_ns"].sum() / 1000
    )
    for call, api_name in zip(VMM_CYCLE.calls, VMM_CYCLE.api_names, strict=True):
        slices = [e for e in of(events, "call") if e["name"] == api_name]
        assert len(slices) == len(rows)
        assert sum(e["dur"] for e in slices) == pytest.approx(rows[f"{call}_ns"].sum() / 1000)


def test_calls_lie_inside_their_cycle(tmp_path: Path) -> None:
    events = trace_of(save(tmp_path / "one", modelled()), tmp_path / "out.json")
    slices = [e for e in events if e["ph"] == "X"]
    for at, cycle in enumerate(slices):
        if cycle["cat"] != "cycle":
            continue
        inside = []
        for event in slices[at + 1 :]:
            if event["cat"] == "cycle":
                break
            inside.append(event)
        assert len(inside) == 6, "one of the seven calls is not modelled"
        assert inside[0]["ts"] == cycle["ts"]
        for earlier, later in itertools.pairwise(inside):
            assert later["ts"] == pytest.approx(earlier["ts"] + earlier["dur"], abs=1e-3)
        assert all(e["ts"] + e["dur"] <= cycle["ts"] + cycle["dur"] + 0.01 for e in inside)


def test_flags_and_names_are_there(tmp_path: Path) -> None:
    events = trace_of(save(tmp_path / "one", measured()), tmp_path / "out.json")
    flags = [e["args"]["flags"] for e in of(events, "cycle")]
    assert flags.count("wrong_ordinal") == 1
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert "one: device 0, process 0" in names
    assert {"thread 0", "kernel under thread 0"} <= set(names)


def test_kernel_phases_stand_under_the_thread(tmp_path: Path) -> None:
    recording = measured()
    path = save(tmp_path / "one", recording)
    begin = int(recording.samples["start_ns"].iloc[5])
    columns = {
        "kind": ["update", "sample", "update"],
        "time_ns": [begin + 10, begin + 20, begin + 30],
        "pid": [1, 1, 1],
        "tid": [2, 2, 2],
        "direction": ["commit", None, "release"],
        "duration_ns": [5000, None, 700],
        "pte_ns": [1000, None, None],
        "barrier_ns": [2500, None, None],
        "tlb_ns": [1500, None, None],
        "iterations": [32, None, 1],
        "phase": [None, "barrier", None],
    }
    write_events(path.with_name(path.name + SUFFIX), events_table(columns, {"method": "test"}))
    events = trace_of(path, tmp_path / "out.json")
    updates = of(events, "update")
    assert [(e["dur"], e["args"]["iterations"]) for e in updates] == [(5.0, 32), (0.7, 1)]
    phases = of(events, "phase")
    assert sum(e["dur"] for e in phases) == pytest.approx(5.0)
    assert [e["name"] for e in of(events, "sample")] == ["barrier"]
    kernel_tracks = {e["tid"] for e in (*updates, *phases)}
    assert len(kernel_tracks) == 1 and not kernel_tracks & {e["tid"] for e in of(events, "cycle")}


def test_a_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_of(save(tmp_path / "m", modelled()), tmp_path / "out.json")
    assert capsys.readouterr().out.startswith("MODEL: ")
    about = json.loads((tmp_path / "out.json").read_text())["otherData"]
    assert about["model"] is True and about["machine"].startswith("MODEL")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = save(tmp_path / "one", measured())
    with pytest.raises(UsageError, match="trace cannot be written"):
        run("export", str(path), "--perfetto", str(tmp_path / "no" / "out.json"))
