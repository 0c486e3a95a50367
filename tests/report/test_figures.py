# SPDX-License-Identifier: MIT
"""The pictures: drawn without a display, captioned, MODEL where nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from vmmprof.analysis.overview import overview
from vmmprof.cli.main import main
from vmmprof.errors import UsageError
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.reader import Recording, load
from vmmprof.report.context import context
from vmmprof.report.figures import (
    breakdown_figure,
    draw_all,
    ecdf_figure,
    ratio_figure,
    scaling_figure,
)

from ..analysis.test_bursts import bursts
from .recordings import environment, frame, measured, modelled, plain_only


def figures(recording: Recording) -> list[Figure]:
    placements = overview(recording.samples, recording.operation, recording.headline)
    facts = context(recording)
    drawn = (
        ratio_figure(placements, facts),
        breakdown_figure(placements, facts, recording.operation),
        ecdf_figure(recording, placements, facts),
    )
    assert all(figure is not None for figure in drawn)
    return [figure for figure in drawn if figure is not None]


def words(figure: Figure) -> str:
    texts = [str(artist.get_text()) for artist in figure.findobj(Text)]
    return " ".join(" ".join(texts).split())


def test_every_picture_is_written(tmp_path: Path) -> None:
    paths = draw_all(measured(), str(tmp_path / "new" / "folder"))
    assert [path.name for path in paths] == ["ratio.png", "breakdown.png", "ecdf.png"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_filled_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "m")
    sweep = ["sweep", "--driver", "model:b300", "--sizes", "2M", "--repeats", "2", "--quiet"]
    assert main([*sweep, "--output", name]) == 0
    assert main(["report", name, "--plot", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"picture: {tmp_path}/ratio.png" in lines
    assert "not drawn: breakdown.png: no call has times of its own" in lines
    assert not (tmp_path / "breakdown.png").exists()


def test_captions_name_n_units_machine_and_command() -> None:
    for figure in figures(measured()):
        text = words(figure)
        assert "n = 29 to 30" in text
        assert "NVIDIA B300 SXM6, driver 615.71.09" in text
        assert "vmmprof sweep --sizes 2M,16M" in text
        assert " us" in text
        assert "MODEL" not in text


def test_model_stands_in_title_and_caption() -> None:
    for figure in figures(modelled()):
        assert "MODEL: " in words(figure)
        assert "MODEL, not measured." in words(figure)


def test_the_ratio_picture_shows_the_medians_and_the_threshold() -> None:
    recording = measured()
    placements = overview(recording.samples, recording.operation, recording.headline)
    figure = ratio_figure(placements, context(recording))
    assert figure is not None
    drawn = figure.axes[0].lines[0].get_ydata()
    assert list(drawn) == [s.ratio.value for s in placements[1].headlines if s.ratio is not None]
    assert "between 32 and 34 MiB" in words(figure)


def test_the_breakdown_adds_up_to_the_calls() -> None:
    recording = measured()
    placements = overview(recording.samples, recording.operation, recording.headline)
    figure = breakdown_figure(placements, context(recording), recording.operation)
    assert figure is not None
    bars = [bar for container in figure.axes[1].containers for bar in container]
    heights = sum(bar.get_height() for bar in bars)
    assert heights == pytest.approx(100 * len(placements[1].headlines)), "shares of each total"


def test_plain_alone_has_no_ratio_picture(tmp_path: Path) -> None:
    paths = draw_all(plain_only(), str(tmp_path))
    assert [path.name for path in paths] == ["breakdown.png", "ecdf.png"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(UsageError, match="pictures cannot be written"):
        draw_all(measured(), str(in_the_way))


def test_levels_are_drawn_over_their_workers() -> None:
    rows = frame([bursts("device", 0, seed=1, threads=n) for n in (1, 4, 8)])
    recording = Recording(Path("levels.vmmprof"), rows, environment(), VMM_CYCLE)
    placements = overview(rows, VMM_CYCLE, "total")
    figure = scaling_figure(placements, context(recording))
    assert figure is not None
    latency, rate = figure.axes
    p50 = next(line for line in latency.lines if "P50" in str(line.get_label()))
    assert list(p50.get_xdata()) == [1, 4, 8]
    # A cycle every 20 us a worker.
    assert list(rate.lines[0].get_ydata()) == pytest.approx([50_000, 200_000, 400_000])


def test_a_run_without_levels_has_no_scaling() -> None:
    recording = measured()
    placements = overview(recording.samples, recording.operation, recording.headline)
    assert scaling_figure(placements, context(recording)) is None


def test_no_two_series_of_a_run_with_levels_look_alike(tmp_path: Path) -> None:
    name = str(tmp_path / "levels")
    sweep = ["sweep", "--driver", "model:b300", "--sizes", "2M", "--repeats", "2", "--quiet"]
    assert main([*sweep, "--threads", "1,2,4,8", "--burst", "2", "--output", name]) == 0
    recording = load(name)
    placements = overview(recording.columns, recording.operation, recording.headline)
    figure = ecdf_figure(recording, placements, context(recording))
    assert figure is not None
    looks = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines]
    assert len(looks) == 12
    assert len(set(looks)) == 12
