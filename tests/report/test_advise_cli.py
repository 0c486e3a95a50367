# SPDX-License-Identifier: MIT
"""``vmmprof advise``: costs add up, rules follow the costs, and each names its evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vmmprof.analysis.advise import CostCurve, read_trace
from vmmprof.errors import ExitCode, UsageError
from vmmprof.placement import PLAIN, Placement
from vmmprof.recording.reader import Recording
from vmmprof.reference import table
from vmmprof.sizes import MIB

from .cli_runs import run, save
from .recordings import measured, modelled, plain_only

TRACE = """time_s,event,size,placement,id
0.0,allocate,64M,domain:0,a
0.1,allocate,64M,domain:0,b
0.2,free,64M,domain:0,a
0.3,allocate,2097152,device,c
0.5,free,2097152,device,c
1.0,free,64M,domain:0,b
"""


def advice(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run("advise", *words, "--json") is ExitCode.OK
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def option(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(o for o in document["options"] if o["option"] == name)
    return found


def test_costs_add_up_from_the_paper_when_nothing_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = advice(capsys, "--allocate", "64M@100:domain:1", "--allocate", "2M@50:device")
    paper = table("ld_table06_vmm_cycle")
    expected_us = 100 * paper.number("64", "ld_us") + 50 * paper.number("2", "baseline_us")
    today = option(document, "today")
    assert today["ms_per_s"] == pytest.approx(expected_us / 1000)
    assert today["evidence"] == "paper, table 6"
    assert "model" in option(document, "ab")["evidence"]
    assert option(document, "ab")["ms_per_s"] < today["ms_per_s"]
    pool = option(document, "warm pool")
    assert pool["ms_per_s"] is None, "what a pool takes is not in the sources"
    assert "paper, figure 5" in pool["evidence"]


def test_recordings_of_this_machine_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = measured()
    path = save(tmp_path / "stock", recording)
    document = advice(capsys, str(path), "--allocate", "1G@10")
    rows = recording.samples
    own = rows[(rows["placement"] == "domain:0") & (rows["size_bytes"] == 1024 * MIB)]
    today = option(document, "today")
    assert today["ms_per_s"] == pytest.approx(10 * own["total_ns"].median() / 1e6, rel=1e-3)
    assert today["evidence"] == "measured here"
    assert document["interpolated"] == []
    assert advice(capsys, str(path), "--allocate", "40M@10")["interpolated"] == [
        "40 MiB at domain:0"
    ]


def test_rules_follow_the_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = [r["advice"] for r in advice(capsys, "--allocate", "64M@100")["rules"]]
    assert busy[0].startswith("keep memory in a pool")
    assert "where a pool is not possible, use the driver with patch ab" in busy
    assert "build 64 MiB at domain:0 from pieces of 32 MiB" in busy
    small = [r["advice"] for r in advice(capsys, "--allocate", "32M@100")["rules"]]
    assert not any("patch" in rule or "pieces" in rule for rule in small)
    idle = [r["advice"] for r in advice(capsys, "--allocate", "64M@0.5")["rules"]]
    assert idle == ["leave it as it is"]


def test_plain_memory_is_not_told_to_take_a_patch(capsys: pytest.CaptureFixture[str]) -> None:
    document = advice(capsys, "--allocate", "64M@100:device")
    assert option(document, "ab")["ms_per_s"] == option(document, "today")["ms_per_s"]
    assert not any("patch" in rule["advice"] for rule in document["rules"])


def test_a_model_s_recording_is_evidence_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m", modelled())
    document = advice(capsys, str(path), f"ab={path}", "--allocate", "64M@100")
    assert option(document, "today")["evidence"] == "model"
    assert all("model" in rule["evidence"] for rule in document["rules"])


def test_a_trace_becomes_rates_and_peaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = read_trace(TRACE.splitlines(), "t")
    assert [(x.size_bytes // MIB, x.placement, x.per_s, x.peak_alive) for x in loads] == [
        (64, Placement(domain=0), 2.0, 2),
        (2, PLAIN, 1.0, 1),
    ]
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    document = advice(capsys, "--trace", str(path))
    paper = table("ld_table06_vmm_cycle")
    once_us = 2 * paper.number("64", "ld_us") + paper.number("2", "baseline_us")
    assert option(document, "warm pool")["once_ms"] == pytest.approx(once_us / 1000)


def test_costs_between_and_beyond_known_sizes() -> None:
    curve = CostCurve("", (2.0, 32.0, 64.0), (10.0, 40.0, 72.0))
    assert [curve.at(int(size * MIB)) for size in (1, 2, 17, 48, 128)] == [10, 10, 25, 56, 136]


def test_text_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    run("advise", "--allocate", "64M@100", "--allocate", "2M@50:device")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("evidence: ") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--allocate", "64M"), "is not SIZE@RATE"),
        (("--allocate", "64M@0"), "rate '0' is not a number of allocations a second"),
        (("--allocate", "64M@-5"), "rate '-5' is not a number"),
        (("--allocate", "64M@nan"), "rate 'nan' is not a number"),
        (("--allocate", "64M@99999999999"), "from 0.001 to 10000000"),
        (("--allocate", "0@5"), "the smallest is 1K"),
        (("--allocate", "999999999T@5"), "the largest is 65536T"),
        (("--allocate", "64M@5:domain:7"), "2 locality domain.s., so N is at most 1"),
        (("--allocate", "64M@5:domain:all"), "is several; name one"),
        (("--allocate", "64M@5:domain:99999999999999"), "is unknown; placements are"),
        (("--allocate", "64M@10:compressible"), "give a recording of it"),
        (("--allocate", "64M@10:somewhere"), "placement 'somewhere'"),
        (("--trace", "nowhere.csv"), "cannot be read"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        run("advise", *words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "lacks column time_s, event, size, placement; it has a, b"),
        ("", "it has none"),
        (TRACE.replace("free,64M,domain:0,a", "free,64M,domain:0,z"), "frees what is not"),
        (TRACE.replace("0.2,free", "0.2,drop"), "has event 'drop'"),
        (TRACE.replace("0.2,free", "soon,free"), "has time 'soon'"),
        (TRACE.replace("0.2,free", "1e300,free"), "has time '1e300'"),
        (TRACE.replace("2097152", "0"), "trace t line 5: size '0'"),
        ("time_s,event,size,placement\n0,allocate,2M,device\n1e-320,free,2M,device", "spans less"),
        (TRACE.replace("0.2,free", "0.05,free"), "line 4 is earlier than the line before"),
        (TRACE + "2.0,allocate", "line 8 has fewer values than columns"),
        ("time_s,event,size,placement\n1,allocate,2M,device\n", "spans less than 1 us"),
    ],
)
def test_a_bad_trace_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_trace(text.splitlines(), "t")


def test_domains_are_those_of_the_recorded_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = measured()
    three = recording.environment | {"gpu": {"locality_domains": 3}}
    path = save(
        tmp_path / "a", Recording(recording.path, recording.samples, three, recording.operation)
    )
    assert run("advise", str(path), "--allocate", "64M@5:domain:2") is ExitCode.OK
    with pytest.raises(UsageError, match=r"3 locality domain\(s\), so N is at most 2"):
        run("advise", str(path), "--allocate", "64M@5:domain:3")
    unknown = save(tmp_path / "b", recording)
    assert run("advise", str(unknown), "--allocate", "64M@5:domain:9") is ExitCode.OK


def test_a_trace_as_spreadsheets_save_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8-sig")
    assert run("advise", "--trace", str(path)) is ExitCode.OK


def test_a_trace_that_is_no_csv_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE + "x" * 200_000)
    with pytest.raises(UsageError, match=r"cannot be read \(field larger"):
        run("advise", "--trace", str(path))


def test_recordings_without_placement_of_the_pattern(tmp_path: Path) -> None:
    path = save(tmp_path / "plain", plain_only())
    with pytest.raises(UsageError, match="give a recording of it"):
        run("advise", str(path), "--allocate", "64M@10")
