# SPDX-License-Identifier: MIT
"""Parameters come from their sources by the documented fit, and from nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.drivers.model import GPUS, fit
from vmmprof.drivers.model.costs import ColumnCost
from vmmprof.drivers.model.fit import Equation, fit_h200, solve, work_of
from vmmprof.drivers.model.parameters import Curve, load
from vmmprof.drivers.model.rm_rows import ROWS, RmRow, read_rows, rows_text, stored_text
from vmmprof.errors import ExitCode, UsageError
from vmmprof.operations import OPERATIONS
from vmmprof.placement import parse_placement
from vmmprof.recording.reader import Recording
from vmmprof.recording.reader import load as load_recording
from vmmprof.recording.schema import Flag
from vmmprof.recording.writer import RecordingWriter
from vmmprof.sizes import MIB

ENVIRONMENT: dict[str, object] = {
    "format_version": 1,
    "operation": RM_ALLOC.name,
    "is_model": False,
    "headline": "total",
    "command": "vmmprof sweep --driver rm",
    "gpu": {"driver_version": "999.1"},
}


def test_the_stored_parameters_are_what_the_fit_gives(tmp_path: Path) -> None:
    assert fit.main(["--output", str(tmp_path)]) == 0
    for gpu in GPUS:
        fitted = json.loads((tmp_path / f"{gpu}.json").read_text())
        assert fitted == json.loads(load(gpu).to_json())
    assert (tmp_path / ROWS).read_text() == stored_text()


def test_b300_takes_its_update_loop_from_the_b200() -> None:
    for name in ("update_us", "call_us", "sync_us", "page_array_us"):
        assert load("b300").value(name) == load("b200").value(name)


def test_the_fit_finds_the_costs_that_made_the_rows() -> None:
    cost = ColumnCost(
        Curve(((2, 10.0), (64, 20.0), (1024, 90.0))),
        passes=1,
        call_us=1.0,
        sync_us=4.0,
        page_write_us=0.25,
        page_array_us=0.5,
        compressible_us=200.0,
    )
    rows = []
    for size_mib in (2, 64, 1024):
        for text in ("device", "noncontiguous", "compressible", "compressible+noncontiguous"):
            (placement,) = parse_placement(text, None)
            contiguous = not placement.noncontiguous
            us = cost.us(work_of(size_mib, placement, "none", contiguous=contiguous))
            assert us is not None
            rows.append(RmRow(size_mib, placement.compressible, contiguous, us, 2 * us, 9))
    # A size that the fit must not look at.
    rows.append(RmRow(128, True, False, 1.0, 1.0, 9))
    parameters = fit_h200(rows, "made up")
    assert parameters.value("alloc_iteration_us") == pytest.approx(5, abs=0.01)
    assert parameters.value("alloc_page_array_us") == pytest.approx(0.5, abs=0.01)
    assert parameters.value("alloc_page_write_us") == pytest.approx(0.25, abs=0.01)
    assert parameters.value("alloc_compressible_us") == pytest.approx(200, abs=0.1)
    assert parameters.value("free_iteration_us") == pytest.approx(10, abs=0.01)
    base = parameters.curve("alloc_base_us")
    assert [base.at(mib) for mib in (2, 64, 1024)] == pytest.approx([10, 20, 90], abs=0.01)


def test_a_fit_without_one_of_its_rows_is_refused() -> None:
    rows, _ = read_rows(stored_text())
    for lacking in [(64, "plain contiguous"), (2, "compressible noncontiguous")]:
        with pytest.raises(UsageError, match=r"no row of {} MiB, {}".format(*lacking)):
            fit_h200([row for row in rows if (row.size_mib, row.kind) != lacking], "mine")


def test_no_unknown_comes_out_negative() -> None:
    # y = 10 - x fits best with a negative slope; without it the mean remains.
    equations = [Equation((1, x), 10 - x) for x in (1, 2, 3)]
    assert list(solve(equations, [1, 1, 1])) == pytest.approx([8, 0])


@given(st.floats(2, 1024))
def test_a_curve_stays_between_its_knots(size_mib: float) -> None:
    curve = Curve(((2, 10.0), (64, 20.0), (1024, 90.0)))
    us = curve.at(size_mib)
    assert us is not None
    assert 10 <= us <= 90
    assert us == pytest.approx(
        10 + (size_mib - 2) * 10 / 62 if size_mib <= 64 else 20 + (size_mib - 64) * 70 / 960
    )


@pytest.mark.parametrize("size_mib", [0.5, 1.999, 1024.001, 4096])
def test_a_curve_says_nothing_beyond_its_knots(size_mib: float) -> None:
    assert Curve(((2, 10.0), (1024, 90.0))).at(size_mib) is None


WORDS = {
    (False, True): "device",
    (False, False): "noncontiguous",
    (True, True): "compressible",
    (True, False): "compressible+noncontiguous",
}


def rm_recording(
    folder: Path, rows: list[RmRow], *, environment: dict[str, object] | None = None
) -> Recording:
    """A recording whose P50s are the rows, among samples that must not count.

    A row's samples are its time, 1 us less and 3 us more; beside them there are
    a flagged one, an earlier attempt, a scattered card and an unknown placement.
    """
    samples = pd.DataFrame(
        [
            (WORDS[row.compressible, row.contiguous], row.size_mib * MIB, *rest, more, row)
            for row in rows
            for *rest, more in (
                (False, 2, 0, -1),
                (False, 2, 0, 0),
                (False, 2, 0, 3),
                (False, 2, int(Flag.WARMUP), 5000),
                (False, 1, 0, 7000),
                (True, 2, 0, 9000),
            )
        ],
        columns=["placement", "size_bytes", "scattered", "attempt", "flags", "more", "row"],
    )
    n = len(samples)
    more = list(zip(samples["row"], samples["more"], strict=True))
    alloc_ns = [round(1000 * (row.alloc_us + more_us)) for row, more_us in more]
    free_ns = [round(1000 * (row.free_us + more_us)) for row, more_us in more]
    path = folder / "rm.vmmprof"
    facts = ENVIRONMENT | (environment or {})
    operation = OPERATIONS[str(facts["operation"])]
    with RecordingWriter(path, operation, facts) as writer:
        writer.append(
            {
                **{name: samples[name].tolist() for name in samples if name not in ("more", "row")},
                **dict.fromkeys(("round", "order", "thread", "device", "start_ns"), [0] * n),
                **{f"{c}_ns": free_ns if c == "free" else alloc_ns for c in operation.calls},
                "total_ns": np.add(alloc_ns, free_ns),
            }
        )
        writer.finish("complete")
    return load_recording(str(path))


def test_a_recording_becomes_the_rows_that_it_measured(tmp_path: Path) -> None:
    stored, _ = read_rows(stored_text())
    stored = [row for row in stored if row.size_mib != 128]
    stored.append(RmRow(128, True, False, 900.0, 950.5, 9))
    rows, reference = read_rows(rows_text(rm_recording(tmp_path, stored)))
    measured = {(r.size_mib, r.kind): (r.alloc_us, r.free_us, r.samples) for r in rows}
    assert measured == {(r.size_mib, r.kind): (r.alloc_us, r.free_us, 3) for r in stored}
    assert "driver 999.1" in reference.platform
    assert reference.source == "vmmprof sweep --driver rm"


def test_the_command_fits_a_recording_and_stores_rows_and_parameters(tmp_path: Path) -> None:
    stored, _ = read_rows(stored_text())
    slower = [replace(row, alloc_us=2 * row.alloc_us) for row in stored]
    recording = rm_recording(tmp_path, slower)
    assert fit.main([str(recording.path), "--output", str(tmp_path)]) == 0
    rows, _ = read_rows((tmp_path / ROWS).read_text())
    assert {row.alloc_us for row in rows} == {row.alloc_us for row in slower}
    fitted = {
        (p["name"], p["size_mib"]): p["value"]
        for p in json.loads((tmp_path / "h200.json").read_text())
    }
    for parameter in load("h200").parameters:
        factor = 2 if parameter.name.startswith("alloc_") else 1
        expected = pytest.approx(factor * parameter.value, rel=0.01, abs=0.002)
        assert fitted[parameter.name, parameter.size_mib] == expected


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [({"is_model": True}, "not a measurement"), ({"operation": "vmm_cycle"}, "not a measurement")],
)
def test_what_is_no_measurement_of_rm_allocations_is_refused(
    tmp_path: Path,
    environment: dict[str, object],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored, _ = read_rows(stored_text())
    recording = rm_recording(tmp_path, stored, environment=environment)
    output = tmp_path / "data"
    output.mkdir()
    assert fit.main([str(recording.path), "--output", str(output)]) == ExitCode.USAGE
    assert complaint in capsys.readouterr().err
    assert not list(output.iterdir())


def test_a_recording_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit.main([str(tmp_path / "no"), "--output", str(tmp_path)]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("\n") == 1
