# SPDX-License-Identifier: MIT
"""The JSON result: keys, units, and the same numbers as the analysis."""

from __future__ import annotations

import json

import pytest

from vmmprof.report.json import dumps
from vmmprof.sizes import MIB

from .recordings import measured, modelled, plain_only


def test_threshold_has_every_estimate_with_its_ends() -> None:
    document = json.loads(dumps(measured()))
    plain, placed = document["placements"]
    assert (plain["placement"], plain["threshold"]) == ("device", None)
    threshold = placed["threshold"]
    assert (threshold["lower_mib"], threshold["upper_mib"]) == (32, 34)
    for name in ("step{}_us", "slope{}_us_per_mib"):
        lo, value, hi = (threshold[name.format(end)] for end in ("_lo", "", "_hi"))
        assert lo <= value <= hi
    assert threshold["step_us"] == pytest.approx(335, abs=3)
    assert threshold["slope_us_per_mib"] == pytest.approx(10.4, abs=0.1)


def test_sizes_carry_the_recording_s_numbers() -> None:
    recording = measured()
    rows = recording.samples
    placed = json.loads(dumps(recording))["placements"][1]
    at_64 = next(size for size in placed["sizes"] if size["size_mib"] == 64)
    at = (rows["placement"] == "domain:0") & (rows["size_bytes"] == 64 * MIB)
    own = rows[at & (rows["flags"] == 0)]
    assert at_64["n"] == len(own) == 29
    assert at_64["p50_us"] == pytest.approx(own.total_ns.median() / 1000)
    assert at_64["max_us"] == 5000
    assert at_64["calls_p50_us"]["create"] == pytest.approx(own.create_ns.median() / 1000)
    assert at_64["p99_us"] is None
    assert (at_64["discarded"], at_64["flagged_outliers"] >= 1) == (1, True)


def test_both_attempts_are_there_and_the_second_is_the_headline() -> None:
    placed = json.loads(dumps(measured()))["placements"][1]
    at_34 = next(size for size in placed["sizes"] if size["size_mib"] == 34)
    assert at_34["attempt"] == 2
    assert [other["attempt"] for other in at_34["other_attempts"]] == [1]


def test_a_model_says_so_and_what_it_does_not_know_is_null() -> None:
    document = json.loads(dumps(modelled()))
    assert document["model"] is True
    assert document["environment"]["machine"].startswith("MODEL")
    for placement in document["placements"]:
        assert all(size["calls_p50_us"]["map"] is None for size in placement["sizes"])


def test_plain_alone_has_neither_extra_nor_ratio() -> None:
    document = json.loads(dumps(plain_only()))
    assert document["model"] is False
    sizes = document["placements"][0]["sizes"]
    assert all(size["extra_us"] is None and size["ratio"] is None for size in sizes)
