# SPDX-License-Identifier: MIT
"""The published tables load, say where they come from, and are internally consistent."""

from __future__ import annotations

import pytest

from vmmprof.errors import UsageError
from vmmprof.reference import parse, table, table_names

HEAD = "# title: T\n# source: S\n# platform: P\n"


@pytest.mark.parametrize("name", table_names())
def test_every_table_loads_with_its_source(name: str) -> None:
    loaded = table(name)
    assert loaded.name == name
    assert loaded.source.startswith("arXiv 2611.07535v1, ")
    assert loaded.title
    assert loaded.platform
    assert loaded.rows


def test_cells_are_read_where_they_stand() -> None:
    cycle = table("ld_table06_vmm_cycle")
    assert cycle.number("34", "ld_us") == 492.0
    assert cycle.row_names == ("2", "32", "34", "64", "512", "1024")
    assert table("ld_table05_nvbandwidth").texts("path")[0] == "remote_read_ce"


def test_derived_columns_agree_with_the_columns_they_come_from() -> None:
    cycle = table("ld_table06_vmm_cycle")
    for row in cycle.row_names:
        baseline, ld = cycle.number(row, "baseline_us"), cycle.number(row, "ld_us")
        assert cycle.number(row, "extra_us") == pytest.approx(ld - baseline, abs=0.06)
        assert cycle.number(row, "ratio") == pytest.approx(ld / baseline, abs=0.01)
    create = table("ld_table07_create_patched")
    for row in create.row_names:
        gain = create.number(row, "ld_on_us") / create.number(row, "a_plus_b_us")
        assert create.number(row, "gain_x") == pytest.approx(gain, abs=0.01)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="'table99'"):
        table("table99")
    with pytest.raises(UsageError, match="no column 'nanoseconds'"):
        table("ld_table06_vmm_cycle").numbers("nanoseconds")
    with pytest.raises(UsageError, match="no row '3'"):
        table("ld_table06_vmm_cycle").number("3", "ld_us")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "does not say its title, source, platform"),
        (HEAD.replace("# source: S\n", "") + "a\n1\n", "does not say its source"),
        (HEAD + "a,b\n1\n", "different lengths"),
        (HEAD, "no header"),
    ],
)
def test_a_table_without_a_source_or_with_ragged_rows_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse("mine", text)
