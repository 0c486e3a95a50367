# SPDX-License-Identifier: MIT
"""What a traced recording says of its calls: the same numbers in every form, unknown never 0."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from vmmprof.errors import ExitCode
from vmmprof.kernel.recorded import load_traced
from vmmprof.recording.reader import load
from vmmprof.report.html import page

from .cli_runs import run, save
from .recordings import measured
from .traced import COUNTING, counted, sampled


def kernel_of(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run("report", name, "--json") is ExitCode.OK
    kernel: dict[str, Any] = json.loads(capsys.readouterr().out)["kernel"]
    return kernel


def one(calls: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    (found,) = [call for call in calls if wanted.items() <= call.items()]
    return found


def test_times_are_of_the_untraced_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("report", counted(tmp_path / "one"), "--json")
    document = json.loads(capsys.readouterr().out)
    for size in document["placements"][1]["sizes"]:
        assert (size["n"], size["traced"], size["p50_us"]) == (15, 15, 2000)
    assert one(document["kernel"]["probe_effect"], placement="domain:0")["ratio"] == 2


def test_json_has_counts_and_shares_of_every_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = kernel_of(counted(tmp_path / "one"), capsys)
    assert (kernel["method"], kernel["period_us"], kernel["losses"]) == ("module", None, {})
    create = one(kernel["calls"], placement="domain:0", size_mib=1024, call="create")
    assert create["direction"] == "commit"
    assert [create[n] for n in ("updates", "iterations", "runs", "barriers", "invalidates")] == [
        *(1, 512, 1, 512, 512)
    ]
    assert (create["path_share"], create["path_us"]) == (0.8, 800)
    assert create["path_share_lo"] <= 0.8 <= create["path_share_hi"]
    shares = [create[f"{part}_share"] for part in ("pte", "barrier", "tlb", "barrier_tlb")]
    assert shares == pytest.approx([0.1875, 0.3125, 0.4375, 0.75])
    plain = one(kernel["calls"], placement="device", size_mib=64, call="release")
    assert (plain["iterations"], plain["path_share"], plain["barrier_tlb_share"]) == (0, 0, None)
    release = one(kernel["updates"], direction="release", bytes=64 << 20)
    assert (release["calls"], release["iterations"], release["us_per_iteration"]) == (15, 32, 25)
    assert kernel["updates_by_iterations"] == [
        {"from": 32, "updates": 30},
        {"from": 512, "updates": 30},
    ]


def test_what_sampling_does_not_give_is_null_and_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sampled(tmp_path / "one")
    kernel = kernel_of(path, capsys)
    assert (kernel["period_us"], kernel["updates"]) == (1, None)
    create = one(kernel["calls"], placement="domain:0", size_mib=64, call="create")
    for name in ("updates", "iterations", "runs", "barriers", "invalidates", "path_us"):
        assert create[name] is None
    # Flushes of single page-table writes are of the page tables.
    shares = [create[f"{part}_share"] for part in ("path", "pte", "barrier", "tlb", "barrier_tlb")]
    assert shares == pytest.approx([0.8, 0.5, 0.25, 0.25, 0.5])
    run("compare", f"counted={counted(tmp_path / 'two')}", f"sampled={path}")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["1", "GiB", "sampled", *["unknown"] * 4, "80.0", "50.0", "(50.0-50.0)"] in rows


def test_compare_puts_the_synchronisations_of_two_drivers_below_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [f"stock={counted(tmp_path / 'a')}", f"b={counted(tmp_path / 'b', deferred=True)}"]
    run("compare", *arms)
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    rows = [line.split() for line in text.splitlines() if line.split()[:2] == ["1", "GiB"]]
    assert ["1", "GiB", "stock", "512", "1", "512", "800.0", "80.0", "75.0", "(75.0-75.0)"] in rows
    assert ["1", "GiB", "b", "512", "1", "1", "200.0", "20.0", "20.0", "(20.0-20.0)"] in rows
    run("compare", *arms, "--format", "markdown")
    assert "| 1 GiB | b | 512 | 1 | 1 | 200.0 | 20.0 |" in capsys.readouterr().out
    run("compare", *arms, "--format", "csv")
    of_csv = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    run("compare", *arms, "--json")
    of_json = json.loads(capsys.readouterr().out)["rows"]
    for row, plain in zip(of_json, of_csv, strict=True):
        if row["call"] not in ("create", "release"):
            assert row["update_path"] is None and plain["invalidates"] == ""
            continue
        syncs = 1 if row["arm"] == "b" else row["size_mib"] / 2
        assert row["update_path"]["invalidates"] == float(plain["invalidates"]) == syncs
        assert row["update_path"]["barrier_tlb_share"] == float(plain["barrier_tlb_share"])


def test_recordings_of_one_arm_are_pooled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few, many = counted(tmp_path / "a", deferred=True), counted(tmp_path / "b")
    run("compare", f"base={few}", f"both={few}", f"both={many}", "--json")
    rows = json.loads(capsys.readouterr().out)["rows"]
    both = one(rows, arm="both", call="create", size_mib=1024)["update_path"]
    assert (both["traced_cycles"], both["invalidates"], both["path_us"]) == (30, 256.5, 500)
    assert 0.2 < both["path_share_lo"] < both["path_share"] < both["path_share_hi"] < 0.8


def test_an_arm_without_events_is_not_traced_and_losses_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lossy = counted(tmp_path / "lossy", facts={"losses": {"records_lost": 3}})
    bare = save(tmp_path / "bare", load(counted(tmp_path / "traced")))
    run("compare", f"bare={bare}", f"lossy={lossy}")
    text = capsys.readouterr().out
    assert "not traced" in text
    assert "lost kernel events: its counts are lower bounds" in " ".join(text.split())
    untraced = save(tmp_path / "untraced", measured())
    run("compare", f"a={untraced}:device", f"b={untraced}:domain:0", "--format", "csv")
    assert "invalidates" not in capsys.readouterr().out.splitlines()[0]


def test_report_and_page_show_the_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = counted(tmp_path / "one")
    run("report", path)
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    rows = [line.split() for line in text.splitlines() if line.startswith("domain:0 1 GiB")]
    assert rows == [
        ["domain:0", "1", "GiB", "create", "80.0", "(80.0-80.0)", "75.0", "(75.0-75.0)"],
        ["domain:0", "1", "GiB", "release", "80.0", "(80.0-80.0)", "75.0", "(75.0-75.0)"],
        ["domain:0", "1", "GiB", "create", "commit", "18.8", "31.2", "43.8"],
        ["domain:0", "1", "GiB", "release", "release", "18.8", "31.2", "43.8"],
        ["domain:0", "1", "GiB", "create", "512", "1", "512", "800.0", "1.56"],
        ["domain:0", "1", "GiB", "release", "512", "1", "512", "800.0", "1.56"],
    ]
    assert "update calls: 60 in the traced rounds, 60 of them in the calls above" in text
    html = page(load(path))
    assert "<td>512</td><td>1</td><td>512</td><td>800.0</td>" in html
    assert "Inside the calls" not in page(measured())


def test_perfetto_says_what_was_sampled_in_a_call(tmp_path: Path) -> None:
    run("export", sampled(tmp_path / "one"), "--perfetto", str(tmp_path / "out.json"))
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    traced = [e for e in events if e.get("cat") == "call" and e.get("args", {}).get("samples")]
    assert len(traced) == 60
    assert {e["name"] for e in traced} == {"cuMemCreate", "cuMemRelease"}
    assert all(e["args"]["samples in tlb"] == 2 for e in traced)


def test_a_column_that_the_method_lacks_is_unknown(tmp_path: Path) -> None:
    path = Path(counted(tmp_path / "one") + ".vmmprof")
    from vmmprof.recording.events import events_table, read_events, write_events

    events = read_events(path)
    columns = {name: events[name].to_pylist() for name in events.column_names}
    windows = load_traced(load(str(path)))
    assert windows is not None
    write_events(path, events_table(columns | {"runs": None, "tlb_ns": None}, windows.facts))
    traced = load_traced(load(str(path)))
    assert traced is not None and COUNTING.items() <= traced.facts.items()
    create = next(s for s in traced.shares if s.placement == "domain:0" and s.name == "create")
    assert (create.runs, create.tlb, create.sync, create.iterations) == (None, None, None, 32)
    assert create.barrier is not None


def test_a_merge_says_that_events_stay_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [counted(tmp_path / "a"), counted(tmp_path / "b")]
    assert run("merge", str(tmp_path / "both"), *names) is ExitCode.OK
    assert "kernel events stay behind: 2 of the 2 recordings" in capsys.readouterr().err
    assert load_traced(load(str(tmp_path / "both"))) is None
