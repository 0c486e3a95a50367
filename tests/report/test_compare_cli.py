# SPDX-License-Identifier: MIT
"""``vmmprof compare`` on recordings on disk: layouts, exit codes, one-line errors."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from vmmprof.errors import ExitCode, UsageError
from vmmprof.recording.reader import Recording
from vmmprof.reference import table

from .cli_runs import five_arms, run, save
from .recordings import measured, modelled


def test_five_arms_print_table_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recordings that hold the paper's table 7 give its rows and its gain column back."""
    assert run("compare", *five_arms(tmp_path)) is ExitCode.OK
    out = capsys.readouterr().out
    head = next(line for line in out.splitlines() if line.split()[:1] == ["size"])
    assert head.split() == ["size", "off", "on", "b", "a", "ab", "gain", "verdict"]
    rows = [line.split() for line in out.splitlines() if "iB" in line and "[" in line]
    gains = {f"{row[0]} {row[1]}": float(row[7]) for row in rows if len(row) == 11}
    paper = table("ld_table07_create_patched")
    assert gains["64 MiB"] == pytest.approx(paper.number("64", "gain_x"), abs=0.02)
    assert gains["1 GiB"] == pytest.approx(paper.number("1024", "gain_x"), abs=0.02)
    assert gains["2 MiB"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_two_arms_print_one_table_with_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    path = save(tmp_path / "one", measured())
    run("compare", f"off={path}:device", f"on={path}:domain:0", "--format", form)
    lines = capsys.readouterr().out.replace("|", "").splitlines()
    heads = [line.split() for line in lines if line.split()[:1] == ["size"]]
    assert heads == [["size", "off", "on", "gain", "effect", "verdict", "reason"]]
    rows = [" ".join(line.split()) for line in lines if "34 MiB" in line]
    assert len(rows) == 1
    assert rows[0].startswith("34 MiB 146.8 504.2 0.29 [0.29, 0.29] 0.00 slower 30 pairs")
    assert form == "markdown" or max(map(len, lines)) <= 80


def test_json_has_the_agreed_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("compare", *five_arms(tmp_path), "--json")
    document = json.loads(capsys.readouterr().out)
    row = next(r for r in document["rows"] if (r["arm"], r["size_mib"]) == ("ab", 64))
    agreed = {"size_mib", "call", "arm", "n", "p50_us", "lo_us", "hi_us", "gain", "verdict"}
    assert agreed | {"reason"} <= row.keys()
    assert (row["call"], row["verdict"], row["p50_us"]) == ("create", "faster", 50.0)
    assert document["baseline"] == "on"


def test_csv_and_markdown_hold_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = five_arms(tmp_path)
    run("compare", *arms, "--format", "csv")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# MODEL: not measured"
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[1:]))))
    assert {row["arm"] for row in rows} == {"off", "on", "b", "a", "ab"}
    run("compare", *arms, "--format", "markdown")
    text = capsys.readouterr().out
    assert "| size | off | on | b | a | ab | gain | verdict |" in text
    assert "MODEL" in text


def test_fail_if_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "one", measured())
    arms = (f"off={path}:device", f"on={path}:domain:0")
    assert run("compare", *arms) is ExitCode.OK
    assert run("compare", *arms, "--fail-if-slower", "5%") is ExitCode.FAILED
    reverse = (arms[1], arms[0])
    assert run("compare", *reverse, "--fail-if-slower", "5%") is ExitCode.OK


def test_a_gate_does_not_pass_for_want_of_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = measured()
    few = samples.__class__(
        samples.path,
        samples.samples[samples.samples["round"] < 3],
        samples.environment,
        samples.operation,
    )
    path = save(tmp_path / "few", few)
    arms = (f"off={path}:device", f"on={path}:domain:0")
    assert run("compare", *arms, "--fail-if-slower", "5%") is ExitCode.PARTIAL
    assert "more repeats or recordings would tell" in capsys.readouterr().err


def test_model_against_measured_only_when_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = (f"gpu={save(tmp_path / 'gpu', measured())}", f"m={save(tmp_path / 'm', modelled())}")
    with pytest.raises(UsageError, match="--allow-model compares them"):
        run("compare", *arms)
    assert run("compare", *arms, "--allow-model") is ExitCode.OK
    assert "MODEL" in capsys.readouterr().out


def test_placements_saved_as_plain_text_are_found(tmp_path: Path) -> None:
    recording = measured()
    rows = recording.samples.astype({"placement": str})
    text = Recording(recording.path, rows, recording.environment, recording.operation)
    path = save(tmp_path / "text", text)
    assert run("compare", f"off={path}:device", f"on={path}") is ExitCode.OK


def test_a_recording_without_samples_is_said_to_have_none(tmp_path: Path) -> None:
    recording = measured()
    empty = Recording(
        recording.path, recording.samples.iloc[:0], recording.environment, recording.operation
    )
    path = save(tmp_path / "empty", empty)
    with pytest.raises(UsageError, match="has no samples; name another recording"):
        run("compare", f"off={path}:device", f"on={path}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("off={path}",), "at least two arms"),
        (("{path}", "on={path}"), "is not ARM=RECORDING"),
        (("off={path}:device", "on={path}:domain:7"), "has no placement 'domain:7'"),
        (("off={path}:device", "on={path}:domain:all"), "'domain:all' is several"),
        (("off={path}:device", "on={path}:somewhere"), "placement 'somewhere'"),
        (("off=nowhere", "on={path}"), "nowhere"),
        (("off={path}:device", "off={path}:domain:0"), "mixes placements"),
        (("a={path}:device", "b={path}:domain:0", "--baseline", "c"), "none of the arms"),
        (("a={path}:device", "b={path}:domain:0", "--margin", "x"), "--margin 'x'"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    path = save(tmp_path / "one", measured())
    with pytest.raises(UsageError, match=message) as caught:
        run("compare", *(word.format(path=path) for word in words))
    assert "\n" not in str(caught.value)
