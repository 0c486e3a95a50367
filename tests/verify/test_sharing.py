# SPDX-License-Identifier: MIT
"""The virtual clock moves only when the simulated update loop runs: 7 us an iteration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated.card import PAGE, Fault
from tests.verify.conftest import OpenBench
from vmmprof.errors import ExitCode
from vmmprof.placement import PLAIN, Placement
from vmmprof.verify import sharing
from vmmprof.verify.outcome import Outcome
from vmmprof.verify.sharing import Expect

COMPRESSIBLE = Placement(compressible=True)
PLACEMENTS = [PLAIN, COMPRESSIBLE, Placement(noncontiguous=True)]


def facts(made: Any, case: str) -> Any:
    return made.report.facts[case]["placements"]


def test_a_stock_driver_runs_the_loop_at_every_further_use(bench: OpenBench) -> None:
    made = bench()
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=True, asked=True)
    assert made.failed() == []
    found = facts(made, "sharing 8 MiB, scattered")
    assert list(found) == ["device", "compressible"]
    assert found["compressible"]["physical_runs"] == 4
    assert found["compressible"]["loop_reruns"] == {
        "export": "yes",
        "import": "yes",
        "bar1_map": "yes",
        "duplicate": "yes",
    }
    assert found["compressible"]["p50_us"]["import"] == 28
    assert found["device"]["p50_us"]["import"] == 0


def test_a_driver_that_updates_once_is_told_apart(bench: OpenBench) -> None:
    made = bench(Fault.UPDATE_ONCE)
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=True, asked=True)
    found = facts(made, "sharing 8 MiB, scattered")
    assert set(found["compressible"]["loop_reruns"].values()) == {"no"}
    assert found["compressible"]["p50_us"]["create"] == 28


def test_contiguous_memory_takes_one_iteration(bench: OpenBench) -> None:
    made = bench()
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=False, asked=True)
    found = facts(made, "sharing 8 MiB, as it comes")
    assert found["compressible"]["physical_runs"] == 1
    assert found["compressible"]["p50_us"]["bar1_map"] == 7


@pytest.mark.parametrize(
    ("fault", "expect", "code"),
    [
        (None, Expect.RERUN, ExitCode.OK),
        (None, Expect.ONCE, ExitCode.FAILED),
        (Fault.UPDATE_ONCE, Expect.ONCE, ExitCode.OK),
        (Fault.UPDATE_ONCE, Expect.RERUN, ExitCode.FAILED),
    ],
)
def test_what_is_expected_of_the_driver_is_checked(
    bench: OpenBench, fault: Fault | None, expect: Expect, code: ExitCode
) -> None:
    made = bench(*([fault] if fault else []))
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=True, asked=True, expect=expect)
    assert made.report.exit_code() is code


def times(create: list[int], call: list[int], release: list[int]) -> dict[str, list[int]]:
    return {"create": create, "import": call, "release": release}


SEARCHING = [100, 900, 300], [1900, 400, 2700]
"""Creation on a scattered card: without the loop, and with it."""


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ([1000, 1010, 990], "yes"),
        ([510, 500, 505], "yes"),
        ([300, 310, 290], "unknown"),
        ([90, 80, 100], "no"),
        ([0, 0, 0], "no"),
    ],
)
def test_the_answer_is_a_share_of_the_loop(call: list[int], answer: str) -> None:
    measured = {
        PLAIN: times([100, 110, 90], [0, 0, 0], [0, 0, 0]),
        COMPRESSIBLE: times([1100, 1110, 1090], call, [0, 0, 0]),
    }
    assert sharing.reruns(measured, COMPRESSIBLE, "import") == answer


def test_release_is_the_measure_where_creation_varies() -> None:
    plain, compressible = SEARCHING
    measured = {
        PLAIN: times(plain, [0, 0, 0], [50, 60, 40]),
        COMPRESSIBLE: times(compressible, [1000, 990, 1010], [1050, 1070, 1040]),
    }
    assert sharing.reruns(measured, COMPRESSIBLE, "import") == "yes"


def test_a_loop_that_stands_out_nowhere_answers_nothing() -> None:
    plain, compressible = SEARCHING
    measured = {
        PLAIN: times(plain, [0, 0, 0], [100, 300, 200]),
        COMPRESSIBLE: times(compressible, [150, 150, 150], [150, 400, 190]),
    }
    assert sharing.reruns(measured, COMPRESSIBLE, "import") == "unknown"


def test_an_unknown_answer_to_an_expectation_is_untested(bench: OpenBench) -> None:
    made = bench()
    made.session.clock_ns = lambda: 0
    sharing.check(
        made.session, PLACEMENTS, 4 * PAGE, 3, scattered=True, asked=True, expect=Expect.RERUN
    )
    assert made.report.count(Outcome.UNTESTED) == 4
    assert made.report.exit_code() is ExitCode.PARTIAL


def test_wrong_contents_fail_whatever_the_times(bench: OpenBench) -> None:
    made = bench(Fault.PAGE_SHIFTED)
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=False, asked=True)
    assert made.failed_names() == {"every view shows the same bytes"}


def test_a_refused_map_fails(bench: OpenBench) -> None:
    made = bench(Fault.REFUSED_MAP)
    sharing.check(made.session, PLACEMENTS, 4 * PAGE, 3, scattered=False, asked=True)
    assert made.failed_names() == {"every call succeeds"}


def test_the_card_is_scattered_only_when_nobody_else_uses_it(bench: OpenBench) -> None:
    made = bench()
    made.gpu.others_text = "others use the GPU: PID 7"
    sharing.check(made.session, PLACEMENTS, PAGE, 1, scattered=True, asked=False)
    assert made.report.checks[0].outcome is Outcome.WAIVED
    sharing.check(made.session, PLACEMENTS, PAGE, 1, scattered=False, asked=False)
    assert made.report.exit_code() is ExitCode.OK


def test_another_compressible_page_is_alive_while_measuring(bench: OpenBench) -> None:
    """So that the first one's call to the GPU's system processor is in no row."""
    made = bench()
    alive = []
    create = made.gpu.create

    def counting(placement: Placement, size: int) -> Any:
        alive.append(sum(kind == 8 for kind in made.card.stored_kind))
        return create(placement, size)

    made.gpu.create = counting  # type: ignore[method-assign]
    sharing.check(made.session, [PLAIN, COMPRESSIBLE], 2 * PAGE, 2, scattered=False, asked=True)
    assert alive[0] == 0
    assert all(count >= 1 for count in alive[1:])
