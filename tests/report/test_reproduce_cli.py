# SPDX-License-Identifier: MIT
"""``vmmprof reproduce``: cells side by side, and what holds here and what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vmmprof.errors import ExitCode, UsageError
from vmmprof.operations import POOL_CYCLE, RM_ALLOC, VMM_CYCLE
from vmmprof.recording.reader import Recording
from vmmprof.reference import table

from ..analysis.synthetic import FloatArray, plain_us, samples
from .cli_runs import five_arms, run, save
from .recordings import environment, frame, measured, plain_only

PAPER_MIB = np.array(table("ld_table06_vmm_cycle").numbers("size_mib"))


CONCURRENT = "8 GPUs x 8 threads: a 1 GiB cycle costs "


def paper_recording(path: Path, extra_us: FloatArray | None = None) -> str:
    """A noise-free recording of the paper's table 6, or of another extra cost."""
    paper = table("ld_table06_vmm_cycle")
    baseline = np.array(paper.numbers("baseline_us"))
    placed = baseline + (np.array(paper.numbers("extra_us")) if extra_us is None else extra_us)
    times = {name: np.tile(t, (6, 1)) for name, t in (("device", baseline), ("domain:0", placed))}
    times["domain:1"] = times["domain:0"] * 1.01
    rows = frame([samples(times, PAPER_MIB, attempt=1)])
    return str(save(path, Recording(path, rows, environment(), VMM_CYCLE)))


def reproduced(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run("reproduce", *words, "--json") is ExitCode.OK
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def findings(document: dict[str, Any]) -> dict[str, str]:
    return {f"{f['where']}: {f['statement'][:20]}": f["finding"] for f in document["findings"]}


def test_the_paper_s_own_figures_reproduce(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables 6 and 7 as recordings give table 8, the threshold and every statement but two."""
    arms = [word.split("=")[1].partition(":")[0] for word in five_arms(tmp_path)[1:]]
    named = [f"{arm}={path}" for arm, path in zip(("stock", "b", "a", "ab"), arms, strict=True)]
    document = reproduced(capsys, paper_recording(tmp_path / "cycle"), *named)
    for cell in document["cells"]:
        assert cell["here"] == pytest.approx(cell["paper"], rel=0.01, abs=0.75), cell
        assert cell["model"] is None or cell["model"] == pytest.approx(cell["paper"], rel=0.35)
    outcomes = findings(document)
    for missing in ("figure 5: a warm pool costs th", CONCURRENT):
        assert outcomes.pop(missing) == "not measurable here"
    assert set(outcomes.values()) == {"holds here"}


@pytest.mark.parametrize(
    ("extra_us", "outcome"), [(-0.04, "holds here"), (5.0, "does not hold here")]
)
def test_pools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra_us: float, outcome: str
) -> None:
    plain = np.full((6, len(PAPER_MIB)), 2.0) + 5.0 * (extra_us < 0)
    times = {"device": plain, "domain:0": plain + extra_us}
    rows = frame([samples(times, PAPER_MIB, attempt=1, operation=POOL_CYCLE)])
    rows["variant"] = pd.Categorical(["pool:warm"] * len(rows))
    path = tmp_path / "pools"
    save(path, Recording(path, rows, environment(operation="pool_cycle"), POOL_CYCLE))
    document = reproduced(capsys, paper_recording(tmp_path / "cycle"), str(path))
    finding = next(f for f in document["findings"] if f["where"] == "figure 5")
    assert finding["finding"] == outcome
    assert f"{extra_us:+.2f} us over 6 sizes" in finding["why"]


def test_another_machine_s_statements_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linear = paper_recording(tmp_path / "linear", extra_us=3.0 * PAPER_MIB)
    outcomes = findings(reproduced(capsys, linear))
    assert outcomes["figure 4: the extra cost steps"] == "does not hold here"
    assert outcomes["figure 4: above it the extra c"] == "not measurable here"
    assert outcomes["table 8: 1 GiB is repaid afte"] == "does not hold here"
    assert outcomes["table 7: above 32 MiB A+B mak"] == "not measurable here"


def test_a_step_elsewhere_is_not_the_paper_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = np.where(PAPER_MIB <= 34, 22.0, 300 + 10.4 * PAPER_MIB)
    outcomes = findings(reproduced(capsys, paper_recording(tmp_path / "later", extra)))
    assert outcomes["figure 4: the extra cost steps"] == "does not hold here"
    assert outcomes["figure 4: above it the extra c"] == "holds here"


def test_without_locality_domains_nothing_is_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = reproduced(capsys, str(save(tmp_path / "plain", plain_only())))
    assert {f["finding"] for f in document["findings"]} == {"not measurable here"}
    assert "no locality domain" in document["findings"][0]["why"]
    here = {c["column"] for c in document["cells"] if c["here"] is not None}
    assert here == {"baseline_us", "ld_off_us"}


def test_one_recording_of_each_driver_is_not_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [save(tmp_path / name, measured()) for name in ("one", "two")]
    document = reproduced(capsys, str(paths[0]), f"ab={paths[1]}")
    gain = next(f for f in document["findings"] if "seven to ten" in f["statement"])
    assert gain["finding"] == "not measurable here"
    assert "A B B A" in gain["why"]


def test_text_fits_80_columns_and_ends_with_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("reproduce", paper_recording(tmp_path / "cycle"))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "HOLDS HERE: the step lies between 32 and 34 MiB" in out


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    path = save(tmp_path / "one", measured())
    with pytest.raises(UsageError, match="arm 'c' in"):
        run("reproduce", f"c={path}")
    rows = frame(
        [
            samples(
                {"device": np.tile(plain_us(PAPER_MIB), (6, 1))},
                PAPER_MIB,
                attempt=1,
                operation=RM_ALLOC,
            )
        ]
    )
    other = replace(
        measured(), samples=rows, operation=RM_ALLOC, environment=environment(operation="rm_alloc")
    )
    with pytest.raises(UsageError, match="times rm_alloc"):
        run("reproduce", str(save(tmp_path / "rm", other)))


@pytest.mark.parametrize(("ratio", "outcome"), [(12.1, "holds here"), (2.0, "does not hold here")])
def test_many_at_once_are_compared_with_the_paper_s_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ratio: float, outcome: str
) -> None:
    alone = np.full((6, 1), 1000.0)
    times = {"device": alone, "domain:0": ratio * alone}
    rows = samples(times, np.array([1024.0]), attempt=1).assign(
        processes=1, threads=8, devices=8, process=0
    )
    bursts = [rows.assign(repeat=1), rows.assign(repeat=2)]
    recording = Recording(tmp_path / "many", frame(bursts), environment(), VMM_CYCLE)
    document = reproduced(capsys, str(save(tmp_path / "many", recording)))
    found = next(f for f in document["findings"] if f["where"] == "8 GPUs x 8 threads")
    assert found["finding"] == outcome
    assert f"{ratio:.2f} [" in found["why"]
    assert "queue for the locks keeps the" in found["why"]


def test_several_at_once_stand_beside_one_thread_of_the_same_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine drifts and eight threads were cut short: only pairs of one round give 5, 9."""
    frames = []
    for threads, rounds, plain_at, placed_at in ((1, 12, 100.0, 1210.0), (8, 6, 500.0, 10890.0)):
        drift = 1.0 + np.arange(rounds)[:, None] / 10
        times = {"device": plain_at * drift, "domain:0": placed_at * drift}
        frames.append(samples(times, np.array([1024.0]), attempt=1).assign(threads=threads))
    rows = frame(frames)
    path = save(tmp_path / "levels", Recording(tmp_path, rows, environment(), VMM_CYCLE))
    document = reproduced(capsys, str(path))
    by_place = {row["place"]: row for row in document["scaling"]}
    assert list(by_place) == ["device (plain, the control)", "domain:0"]
    plain, placed = by_place.values()
    assert (plain["size_mib"], plain["threads"], plain["queue"]) == (1024, 8, 8)
    assert plain["slower"] == pytest.approx(5)
    assert plain["ratio_to_plain"] is None
    assert placed["slower"] == pytest.approx(9)
    assert placed["ratio_to_plain"] == pytest.approx(21.78)
    # The paper's ratio is of eight GPUs, this row of one.
    assert placed["paper_ratio_to_plain"] is None
    assert run("reproduce", str(path)) is ExitCode.OK
    assert "8 threads" in capsys.readouterr().out
