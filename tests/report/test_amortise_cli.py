# SPDX-License-Identifier: MIT
"""``vmmprof amortise`` on recordings on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vmmprof.errors import ExitCode, UsageError

from .cli_runs import run, save
from .recordings import measured, modelled, plain_only


def test_arms_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stock = save(tmp_path / "stock", measured())
    words = (f"stock={stock}", "paper", "--saves", "193.4ns", "--saves", "7.18us")
    assert run("amortise", *words) is ExitCode.OK
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("one use saves") == 2
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("1 GiB")]
    assert [row[2] for row in rows] == ["paper", "stock"] * 2 or [row[2] for row in rows] == [
        "stock",
        "paper",
    ] * 2


def test_json_carries_intervals_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m", modelled())
    run("amortise", str(path), "--saves", "10us", "--json")
    document = json.loads(capsys.readouterr().out)
    row = next(row for row in document["rows"] if row["size_mib"] == 2)
    assert document["model"] is True
    assert (row["extra_us"], row["uses"], row["repaid_after"]) == (22.0, 2.2, 3)
    assert row["uses_lo"] <= row["uses"] <= row["uses_hi"]


def test_savings_from_primitives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "m", modelled())
    run("amortise", str(path), "--saves-from", "paper")
    assert "read_latency 256MiB, cross-die less same-die" in capsys.readouterr().out
    mine = tmp_path / "primitives.csv"
    mine.write_text("metric,working_set,same_die,cross_die,unit\nread_latency,1MiB,200,190,ns\n")
    run("amortise", str(path), "--saves-from", str(mine), "--json")
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["verdict"] for row in rows} == {"never"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{path}",), "say what one use saves"),
        (("{path}", "--saves", "5"), "is not a time such as"),
        (("{path}", "--saves", "9" * 400 + "ns"), "is not a time such as"),
        (("{path}:device", "--saves", "5ns"), "is plain memory"),
        (("{path}", "--saves-from", "nowhere.csv"), "cannot be read"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    path = save(tmp_path / "m", modelled())
    with pytest.raises(UsageError, match=message):
        run("amortise", *(word.format(path=path) for word in words))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("read,1MiB,nan,200,ns", "holds latencies that are no numbers"),
        ("read,1MiB,1,1e308,s", "holds latencies that are no numbers"),
        ("read,1MiB,1,2,GB/s", "has no row in ns, us"),
        ("read,1MiB", "rows of different lengths"),
        ("x" * 200_000 + ",1MiB,1,2,ns", "is no CSV: field larger"),
    ],
)
def test_bad_primitives_are_one_line(tmp_path: Path, row: str, message: str) -> None:
    mine = tmp_path / "primitives.csv"
    mine.write_text(f"metric,working_set,same_die,cross_die,unit\n{row}\n")
    with pytest.raises(UsageError, match=message):
        run("amortise", "paper", "--saves-from", str(mine))


def test_primitives_as_spreadsheets_save_them_are_read(tmp_path: Path) -> None:
    mine = tmp_path / "primitives.csv"
    text = "metric,working_set,same_die,cross_die,unit\nread,1MiB,1,2,ns\n"
    mine.write_text(text, encoding="utf-8-sig")
    assert run("amortise", "paper", "--saves-from", str(mine)) is ExitCode.OK


def test_plain_alone_has_no_extra_cost(tmp_path: Path) -> None:
    path = save(tmp_path / "p", plain_only())
    with pytest.raises(UsageError, match="plain memory"):
        run("amortise", str(path), "--saves", "5ns")
