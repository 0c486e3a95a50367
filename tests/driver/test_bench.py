# SPDX-License-Identifier: MIT
"""The bench on this project's own update path, in every flavour; no driver source needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cases import (
    KIND_DEFAULT,
    STATUS_NO_MEMORY,
    Case,
    descending,
    fragmented,
    fresh,
    single_run,
)
from bench.cli import judge_mutants, judge_own
from bench.errors import BenchError
from bench.extract import Features
from bench.judge import judge
from bench.mutants import MUTANTS, mutated
from bench.properties import check_case
from bench.reference import Arm
from bench.report import mutants_text, verdict_text
from bench.subject import UPDATE_PATH, CrashError, Subject, build_own
from tests.driver.strategies import cases

ALL = Features()
ARMS = {
    "": Arm(),
    "a": Arm(coalesce=True),
    "b": Arm(defer=True),
    "ab": Arm(coalesce=True, defer=True),
    "abc": Arm(coalesce=True, defer=True, once=True),
}


@pytest.fixture(scope="module")
def own(scratch: Path) -> Iterator[dict[str, Subject]]:
    subjects = {}
    for flavour in ARMS:
        build_own(scratch / f"fixture-{flavour}", flavour)
        subjects[flavour] = Subject(scratch / f"fixture-{flavour}")
    yield subjects
    for subject in subjects.values():
        subject.close()


@pytest.mark.parametrize("flavour", ARMS)
def test_each_flavour_is_recognised(flavour: str, scratch: Path) -> None:
    verdict = judge_own(flavour, scratch)
    assert verdict.failure is None, str(verdict.failure)
    assert verdict.arm == ARMS[flavour]


@pytest.mark.parametrize(
    ("flavour", "counts"),
    [("", (512, 512, 512)), ("a", (32, 32, 32)), ("b", (512, 1, 1)), ("ab", (32, 1, 1))],
)
def test_one_gib_of_fresh_localized_memory(
    own: dict[str, Subject], flavour: str, counts: tuple[int, int, int]
) -> None:
    case = Case(fresh(512), "cr", kind=KIND_DEFAULT, localized=True)
    for outcome in own[flavour].run(case):
        assert (outcome.maps, outcome.flushes, outcome.invalidates) == counts
        assert outcome.pte_writes == 512


@pytest.mark.parametrize("flavour", ARMS)
@pytest.mark.parametrize("faults", [False, True], ids=["sound", "failing"])
def test_properties(own: dict[str, Subject], flavour: str, faults: bool) -> None:
    @settings(max_examples=120)
    @given(case=cases(ALL, faults=faults))
    def hold(case: Case) -> None:
        failure = check_case(own[flavour], case, ARMS[flavour], ALL)
        assert failure is None, f"{failure}\n{case}"

    hold()


@given(st.lists(st.integers(0, 60), min_size=1, unique=True))
def test_runs_are_what_splitting_at_every_gap_gives(pages: list[int]) -> None:
    pieces = [[pages[0]]]
    for page in pages[1:]:
        if page == pieces[-1][-1] + 1:
            pieces[-1].append(page)
        else:
            pieces.append([page])
    assert Case(tuple(pages), "c").runs == len(pieces)


def test_layouts_have_the_runs_they_are_named_for() -> None:
    assert Case(fresh(512), "c").runs == 32
    assert Case(fresh(17), "c").runs == 2
    assert Case(descending(9), "c").runs == 9
    assert Case(single_run(4096), "c").runs == 1
    assert 512 / 16 <= Case(fragmented(512, seed=0), "c").runs < 512


def test_stock_loses_an_error_and_the_deferring_function_keeps_it(own: dict[str, Subject]) -> None:
    case = Case((1, 3, 5), "r", faults=((1, STATUS_NO_MEMORY),))
    assert own[""].run(case)[0].status == 0
    assert own["b"].run(case)[0].status == STATUS_NO_MEMORY


def test_a_failed_run_is_unmapped_whole(own: dict[str, Subject]) -> None:
    case = Case((1, 2, 3, 9), "c", faults=((1, STATUS_NO_MEMORY),))
    changed = own["ab"].run(case)[0].changed
    assert changed == {1: None, 2: None, 3: None}


def test_wrong_arm_is_no_arm(own: dict[str, Subject]) -> None:
    """A function held against an arm that it is not fails by the property that differs."""
    case = Case(single_run(3), "c")
    failure = check_case(own[""], case, ARMS["a"], ALL)
    assert failure is not None and failure.prop == "calls"
    failure = check_case(own["a"], Case((1, 3), "c"), ARMS["ab"], ALL)
    assert failure is not None and failure.prop == "sync"


def test_all_mutants_are_killed(scratch: Path) -> None:
    results = judge_mutants(scratch)
    survivors = [result.name for result in results if result.survived]
    assert not survivors, mutants_text(results)
    assert len(results) >= 15


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_mutant_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(BenchError, match="found 0 times"):
        mutated("text", (("other", "thing"),))


def test_memory_error_is_a_verdict(scratch: Path) -> None:
    """A function that reads what it does not own ends the process, not the bench."""
    source = scratch / "overflow.c"
    declaration, use = "    uint64_t run;\n", "(void)map_flags;"
    edits = (
        (declaration, declaration + "    volatile char stray[8] = {0};\n"),
        (use, "(void)stray[map_flags + memory->size_bytes / 1048576];"),
    )
    source.write_text(mutated(UPDATE_PATH.read_text(), edits))
    build_own(scratch / "overflow", "", source)
    with Subject(scratch / "overflow") as subject:
        with pytest.raises(CrashError):
            subject.run(Case(single_run(64), "c"))
        verdict = judge(subject, ALL)
    assert verdict.name == "wrong"
    assert verdict.failure is not None and verdict.failure.prop == "memory-safe"
    assert "out of bounds" in verdict.failure.detail


def test_source_that_does_not_compile_is_an_error(scratch: Path) -> None:
    source = scratch / "broken.c"
    source.write_text(UPDATE_PATH.read_text().replace("return UP_OK;", "return nothing;"))
    with pytest.raises(BenchError, match=r"does not compile on the bench.*nothing"):
        build_own(scratch / "broken", "", source)


def test_verdict_text_fits_80_columns(scratch: Path) -> None:
    text = verdict_text("own function, flavour ab", judge_own("ab", scratch))
    assert max(map(len, text.splitlines())) <= 80
    assert "behaves as A+B" in text
    assert "     1024      32        1            1         512" in text
