# SPDX-License-Identifier: MIT
"""A flame graph is well-formed, its widths are shares, and names cannot break it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from vmmprof.report.flamegraph import Kind, flame_graph

SVG = "{http://www.w3.org/2000/svg}"
KINDS = (Kind("buses", "#123456", ("b",)), Kind("trains", "#654321", ("train",)))


def _frames(svg: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    found = {}
    for group in root.iter(f"{SVG}g"):
        title, rectangle = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and title.text is not None and rectangle is not None
        found[title.text.split(":")[0]] = rectangle
    return found


def test_widths_are_shares_and_callees_stand_on_callers() -> None:
    frames = _frames(flame_graph({"a;b": 3, "a;c": 1, "": 4}, "t", KINDS))
    width = {name: float(frame.get("width", "")) for name, frame in frames.items()}
    assert width["a"] == pytest.approx(width["all"] / 2, abs=0.02)
    assert width["b"] == pytest.approx(3 * width["c"], abs=0.05)
    assert width["[user space]"] == pytest.approx(width["a"], abs=0.02)
    assert float(frames["b"].get("y", "")) < float(frames["a"].get("y", ""))
    assert float(frames["b"].get("x", "")) == float(frames["a"].get("x", ""))


def test_colours_are_handed_on_to_callees() -> None:
    frames = _frames(flame_graph({"a;bus;x": 1}, "t", KINDS))
    assert frames["x"].get("fill") == "#123456"
    assert frames["a"].get("fill") != "#123456"


def test_names_are_escaped_and_nothing_is_no_error() -> None:
    assert "<f&g>" in _frames(flame_graph({"<f&g>": 1}, "<t>", KINDS))
    assert _frames(flame_graph({}, "empty", KINDS)) == {}


def test_the_foot_says_what_colours_mean_and_how_it_was_taken() -> None:
    svg = flame_graph({"a;b": 3}, "t", KINDS, "one sample each 100 us; " + "word " * 60)
    root = ElementTree.fromstring(svg)
    texts = [(float(t.get("y", "")), t.text or "") for t in root.iter(f"{SVG}text")]
    written = " ".join(text for _, text in texts)
    assert "buses" in written and "trains" not in written, "only colours that are there"
    assert written.count("word") == 60
    assert max(y for y, _ in texts) < float(root.get("height", ""))
    assert max(len(text) for _, text in texts) * 6.6 < 1200
