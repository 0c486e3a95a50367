# SPDX-License-Identifier: MIT
"""Repayment: the paper's table 8 from its table 6, intervals, and never."""

from __future__ import annotations

import math

import pytest

from vmmprof.analysis.amortise import (
    ExtraCost,
    Saving,
    published_costs,
    repayment,
    savings_of_primitives,
)
from vmmprof.analysis.intervals import Estimate
from vmmprof.reference import table
from vmmprof.sizes import MIB


@pytest.mark.parametrize(
    ("column", "saving_ns"), [("dependent_accesses", 193.42), ("ce_reads_1mib", 7180.0)]
)
def test_table_8_follows_from_table_6(column: str, saving_ns: float) -> None:
    """The paper prints the quotient rounded to whole uses; within that and 0.1 %."""
    paper = table("ld_table08_amortisation")
    costs = {
        cost.size_bytes // MIB: cost for cost in published_costs(table("ld_table06_vmm_cycle"))
    }
    for size, printed in zip(paper.numbers("size_mib"), paper.numbers(column), strict=True):
        uses = repayment(costs[int(size)], Saving("", saving_ns)).uses
        assert uses is not None
        assert abs(uses.value - printed) <= max(0.5, 0.001 * printed)


def test_the_saving_of_table_8_is_that_of_table_4() -> None:
    savings = {
        s.name.split(",")[0]: s.ns for s in savings_of_primitives(table("ld_table04_primitives"))
    }
    assert savings == {
        "read_latency 8MiB": pytest.approx(3.0),
        "read_latency 256MiB": pytest.approx(193.5),
    }


def test_repaid_after_is_a_ceiling_and_the_interval_is_carried_through() -> None:
    cost = ExtraCost(2 * MIB, "on", Estimate(21_700.0, 21_000.0, 22_400.0, 30))
    one = repayment(cost, Saving("", 7180.0))
    assert one.uses == Estimate(
        pytest.approx(3.022, abs=1e-3),
        pytest.approx(2.925, abs=1e-3),
        pytest.approx(3.120, abs=1e-3),
        30,
    )
    assert (one.repaid_after, one.verdict) == (4, "after 4 uses")
    exact = repayment(ExtraCost(2 * MIB, "on", Estimate(20.0, 20.0, 20.0, 30)), Saving("", 10.0))
    assert exact.repaid_after == 2


@pytest.mark.parametrize("saving_ns", [0.0, -3.0])
def test_a_saving_that_is_not_positive_never_repays(saving_ns: float) -> None:
    cost = ExtraCost(2 * MIB, "on", Estimate(21_700.0, 21_000.0, 22_400.0, 30))
    assert repayment(cost, Saving("", saving_ns)).verdict == "never"


def test_no_extra_cost_is_repaid_at_once() -> None:
    cost = ExtraCost(2 * MIB, "on", Estimate(-50.0, -80.0, 20.0, 30))
    one = repayment(cost, Saving("", 10.0))
    assert one.verdict == "at once"
    assert one.uses == Estimate(0.0, 0.0, 2.0, 30)


def test_a_published_cost_has_no_interval() -> None:
    cost = published_costs(table("ld_table06_vmm_cycle"))[0]
    uses = repayment(cost, Saving("", 193.4)).uses
    assert uses is not None and math.isnan(uses.lo) and math.isnan(uses.hi)
