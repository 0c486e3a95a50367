# SPDX-License-Identifier: MIT
"""`vmmprof model`: every cell is there, the errors are what they are said to be."""

from __future__ import annotations

import json

import pytest

from vmmprof.cli.main import main
from vmmprof.drivers.model import check as check_module
from vmmprof.drivers.model.check import (
    CALLS,
    RM_ROWS,
    TABLE_6,
    TABLE_7,
    Cell,
    all_cells,
    mean_absolute_error_pct,
)
from vmmprof.drivers.model.rm_rows import read_rows, stored_text
from vmmprof.errors import ExitCode
from vmmprof.reference import table

REFERENCES = {
    TABLE_6: "ld_table06_vmm_cycle",
    TABLE_7: "ld_table07_create_patched",
    CALLS: "ld_text_calls_1gib",
}


def cells_of(name: str) -> list[Cell]:
    return [cell for cell in all_cells() if cell.table == name]


@pytest.mark.parametrize("name", REFERENCES)
def test_every_cell_of_the_paper_is_compared_once(name: str) -> None:
    reference = table(REFERENCES[name])
    compared = {(cell.row, cell.column): cell.reference for cell in cells_of(name)}
    expected = {
        (row, column): reference.number(row, column)
        for row in reference.row_names
        for column in reference.columns[1:]
    }
    assert compared == expected
    assert len(cells_of(name)) == len(expected)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_fit_is_within_10_percent_and_says_that_it_is_a_fit(name: str) -> None:
    cells = cells_of(name)
    assert mean_absolute_error_pct(cells) <= 10
    assert all(cell.fitted for cell in cells)


def test_the_measured_arms_alone_are_within_10_percent_too() -> None:
    # Without the bases, which are read off the tables, and without what is derived.
    for name, columns in (
        (TABLE_6, {"ld_us"}),
        (TABLE_7, {"ld_on_us", "b_only_us", "a_only_us", "a_plus_b_us"}),
    ):
        arms = [cell for cell in cells_of(name) if cell.column in columns]
        assert mean_absolute_error_pct(arms) <= 10


def test_rows_of_the_h200_are_a_test_where_nothing_was_fitted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = stored_text() + "512,yes,no,2000,4000,9\n"
    monkeypatch.setattr(check_module, "stored_text", lambda: text)
    cells = cells_of(RM_ROWS)
    assert len(cells) == 2 * len(read_rows(text)[0])
    assert all(cell.fitted == (cell.row in {"2", "64", "1024"}) for cell in cells)
    tested = {cell.column: cell for cell in cells if cell.row == "512" and cell.reference > 1999}
    assert set(tested) == {f"compressible noncontiguous {call}_us" for call in ("alloc", "free")}
    assert main(["model", "check"]) == ExitCode.OK
    test_lines = capsys.readouterr().out.partition("the test of the model")[2].splitlines()
    assert any(line.split()[:3] == ["512", "compressible", "noncontiguous"] for line in test_lines)


def test_errors_are_relative_to_the_reference() -> None:
    cells = [Cell("t", "r", "c", 100, 110, True), Cell("t", "r", "d", 10, 7, True)]
    assert [cell.error_pct for cell in cells] == pytest.approx([10, -30])
    assert mean_absolute_error_pct(cells) == pytest.approx(20)


def test_json_has_parameters_and_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"parameters", "cells"}
    assert {parameter["model"] for parameter in document["parameters"]} == {
        "model:b300",
        "model:b200",
        "model:h200",
    }
    keys = {"table", "row", "column", "reference", "model", "error_pct", "fitted"}
    assert all(set(cell) == keys for cell in document["cells"])
    assert len(document["cells"]) == len(all_cells())


@pytest.mark.parametrize("action", ["check", "show"])
def test_text_fits_80_columns_of_ascii_and_says_model(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", action]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.isascii() and line == line.rstrip() for line in lines)
    assert "MODEL" in lines[0]


def test_text_has_the_numbers_of_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    main(["model", "check"])
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:3] == ["34", "MiB", "paper"])
    assert lines[start].split()[3:5] == ["134.9", "492.0"]
    assert lines[start + 1].split()[0] == "MODEL"
    cell = next(c for c in cells_of(TABLE_6) if (c.row, c.column) == ("34", "ld_us"))
    assert f"{cell.error_pct:+.1f} %" in lines[start + 2]


def test_a_fit_beyond_10_percent_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cells(error: float, name: str) -> list[Cell]:
        return [Cell(name, "2", "baseline_us", 100, 100 + error, True)]

    monkeypatch.setattr(check_module, "all_cells", lambda: cells(-10.1, TABLE_6))
    assert main(["model", "check"]) == ExitCode.FAILED
    monkeypatch.setattr(check_module, "all_cells", lambda: cells(9.9, TABLE_6))
    assert main(["model", "check"]) == ExitCode.OK
    capsys.readouterr()


@pytest.mark.parametrize("arguments", [["model"], ["model", "guess"], ["model", "check", "--xml"]])
def test_bad_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
