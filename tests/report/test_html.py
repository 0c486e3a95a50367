# SPDX-License-Identifier: MIT
"""The page: self-contained, the recording's numbers, and at work in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmmprof.errors import ExitCode, UsageError
from vmmprof.recording.reader import Recording
from vmmprof.report.html import page
from vmmprof.report.json import result

from .browser import Page, chromium, open_page
from .cli_runs import run, save
from .recordings import RECORDINGS, environment, measured, modelled


def carried(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("name", RECORDINGS)
def test_numbers_are_the_recording_s(name: str) -> None:
    recording = RECORDINGS[name]()
    data = carried(page(recording))
    for shown, expected in zip(data["placements"], result(recording)["placements"], strict=True):
        assert shown["sizes"] == expected["sizes"]
        assert shown["threshold"] == expected["threshold"]


@pytest.mark.parametrize("name", RECORDINGS)
def test_nothing_is_fetched(name: str) -> None:
    text = page(RECORDINGS[name]())
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in text


def test_model_is_said_first() -> None:
    text = page(modelled())
    assert "<title>MODEL model:b300" in text
    assert "MODEL: computed, nothing here was measured" in text
    assert "MODEL:" not in page(measured())


def test_text_of_a_recording_cannot_become_markup() -> None:
    recording = measured()
    evil = "</script><script>alert(1)</script>"
    facts = environment(command=evil, machine={"kernel": evil})
    text = page(Recording(recording.path, recording.samples, facts, recording.operation))
    assert "alert(1)</script>" not in text
    assert text.count("<script>") == 1
    # Inside a script element even a comment's beginning changes how the rest is read.
    named = Path("<!--<script>.vmmprof")
    text = page(Recording(named, recording.samples, environment(), recording.operation))
    assert text.count("<!--") == 0 and text.count("<script>") == 1
    assert carried(text)["name"] == "<!--<script>"


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "one", measured())
    out = tmp_path / "out.html"
    assert run("report", str(path), "--html", str(out)) is ExitCode.OK
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert capsys.readouterr().out == f"page: {out}\n"
    with pytest.raises(UsageError, match="page cannot be written"):
        run("report", str(path), "--html", str(tmp_path / "no" / "out.html"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if chromium() is None:
        pytest.skip("no chromium on this machine: the page is not tried in a browser")
    with open_page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(page(measured()), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_page_runs_without_an_error_or_a_request(
    browser: Page, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(RECORDINGS[name]()), encoding="utf-8")
    browser.problems.clear()
    browser.requests.clear()
    browser.open(path)
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.as_uri()]
    shown = browser.evaluate("document.querySelectorAll('.chart:not([hidden]) svg.plot').length")
    assert shown == (3 if name == "plain" else 5), "ratio and extra need a placement beside plain"


def test_a_hover_shows_value_interval_and_n(browser: Page, written: Path) -> None:
    browser.open(written)
    browser.resize(1000, 800)
    # The mark of 34 MiB of the second placement in the ratio chart.
    marks = "[...document.querySelectorAll('#ratio .mark')]"
    mark = f"{marks}.find(m => m.ariaLabel.includes('34 MiB\\n'))"
    browser.evaluate(f"{mark}.scrollIntoView({{block: 'center'}})")
    box = browser.evaluate(
        f"(r => [r.x + r.width / 2, r.y + r.height / 2])({mark}.getBoundingClientRect())"
    )
    assert browser.evaluate("document.getElementById('hover').hidden")
    browser.move_mouse(*box)
    text = browser.evaluate(
        "(h => h.hidden ? null : h.textContent)(document.getElementById('hover'))"
    )
    placed = result(measured())["placements"][1]
    row = next(r for r in placed["sizes"] if r["size_mib"] == 34)
    expected = f"{row['ratio']:.3f} [{row['ratio_lo']:.3f}, {row['ratio_hi']:.3f}]"
    assert text == f"domain:0, 34 MiB\n{expected}\nn {row['n']}"
    browser.move_mouse(1, 1)
    assert browser.evaluate("document.getElementById('hover').hidden")


def test_marks_lie_where_their_numbers_say(browser: Page, written: Path) -> None:
    """On a linear axis the drawn heights are in proportion to the values."""
    browser.open(written)
    heights = browser.evaluate(
        "[...document.querySelectorAll('#ratio rect.mark:not([opacity])')].map(m =>"
        " Number(m.getAttribute('y')) + Number(m.getAttribute('height')) / 2)"
    )
    values = [r["ratio"] for r in result(measured())["placements"][1]["sizes"]]
    assert len(heights) == len(values)
    scale = (heights[0] - heights[-1]) / (values[-1] - values[0])
    for height, value in zip(heights, values, strict=True):
        assert heights[0] - height == pytest.approx(scale * (value - values[0]), abs=0.01)


def test_controls_redraw(browser: Page, written: Path) -> None:
    browser.open(written)
    browser.problems.clear()
    before = browser.evaluate("document.querySelector('#p50 .drawing').innerHTML")
    browser.evaluate(
        "document.querySelectorAll('input[type=checkbox]').forEach(box => box.click())"
    )
    browser.evaluate(
        "document.querySelectorAll('select').forEach(s => { s.selectedIndex = s.options.length - 1;"
        " s.dispatchEvent(new Event('change')); })"
    )
    assert browser.evaluate("document.querySelector('#p50 .drawing').innerHTML") != before
    assert "NaN" not in browser.evaluate("document.body.innerHTML")
    assert browser.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_width_has_no_sideways_scroll(browser: Page, written: Path, scheme: str) -> None:
    browser.colour_scheme(scheme)
    browser.resize(360, 640)
    browser.open(written)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 26)"}[scheme]


def test_the_csv_to_download_has_a_row_a_size(browser: Page, written: Path) -> None:
    browser.open(written)
    lines = browser.evaluate("csv()").strip().splitlines()
    sizes = sum(len(p["sizes"]) for p in result(measured())["placements"])
    assert len(lines) == 1 + sizes
    assert '"placement","size_mib","attempt","n","p50_us"' in lines[0]
