# SPDX-License-Identifier: MIT
"""The verdict: which arm a function behaves as, or the first property it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.cases import (
    KIND_COMPRESSIBLE,
    KIND_DEFAULT,
    STATUS_INVALID_STATE,
    STATUS_NO_MEMORY,
    STATUS_NOT_SUPPORTED,
    Case,
    fragmented,
    fresh,
    layouts,
    single_run,
)
from bench.extract import Features
from bench.properties import Failure, check_case
from bench.reference import Arm
from bench.subject import CrashError, Outcome, Subject

TABLE_SIZES_MIB = (2, 16, 32, 64, 128, 256, 512, 1024)
HUGE_PAGE_SLOTS = 256


@dataclass(frozen=True)
class Row:
    """One line of the table: what one commit of fresh memory costs."""

    size_mib: int
    calls: int
    flushes: int
    invalidates: int
    pte_writes: int


@dataclass(frozen=True)
class Verdict:
    arm: Arm
    """As observed; what the failure is judged against."""
    failure: Failure | None
    rows: tuple[Row, ...]
    cases: int
    features: Features

    @property
    def name(self) -> str:
        return self.arm.name if self.failure is None else "wrong"


def _memory_kinds(features: Features) -> Iterator[dict[str, int | bool]]:
    yield {"kind": KIND_COMPRESSIBLE}
    if features.localized:
        yield {"kind": KIND_DEFAULT, "localized": True}
        yield {"kind": KIND_COMPRESSIBLE, "localized": True}


def _with_kinds(case: Case, features: Features) -> Iterator[Case]:
    for kind in _memory_kinds(features):
        yield replace(case, kind=int(kind["kind"]), localized=bool(kind.get("localized", False)))


def _plain_cases(features: Features) -> Iterator[Case]:
    """Every layout, small sizes first, so that what fails first is small."""
    start = 4 if features.start_offset else 0
    for n in (1, 2, 3, 4, 16, 17, 33, 512, 4096):
        for name, pages in layouts(n).items():
            yield from _with_kinds(Case(pages, "cr", start_slots=start, label=name), features)
        whole = Case(single_run(n), "cr", contiguous=True, start_slots=start, label="contiguous")
        yield from _with_kinds(whole, features)
    huge = tuple(page * HUGE_PAGE_SLOTS for page in (1, 2, 3, 5, 6, 4))
    case = Case(huge, "cr", page_slots=HUGE_PAGE_SLOTS, start_slots=0, label="512 MiB pages")
    yield from _with_kinds(case, features)


def _reference_cases(features: Features) -> Iterator[Case]:
    if not features.references:
        return
    for pages in (single_run(1), fragmented(9, seed=1), fresh(40)):
        for operations in ("+-", "++--", "+++---", "+-+-", "+k-", "+f-", "f+d", "++-+--", "+d"):
            if "f" in operations and not features.map_flags:
                continue
            case = Case(pages, operations, start_slots=0, label="references")
            yield from _with_kinds(case, features)
            yield replace(case, kind=KIND_DEFAULT)


def _fault_cases(features: Features) -> Iterator[Case]:
    """Each call failing in turn, with each status; then two that fail differently."""
    statuses = (STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_INVALID_STATE)
    for pages in (single_run(3), fragmented(7, seed=3, longest=3), fresh(18)):
        n = len(pages)
        for operations in ("c", "r"):
            for call in range(1, n + 1):
                for code in statuses:
                    yield Case(pages, operations, faults=((call, code),), label="one failure")
            for first in range(1, min(n, 4)):
                for pair in (
                    ((first, STATUS_NO_MEMORY), (first + 1, STATUS_NOT_SUPPORTED)),
                    ((first, STATUS_NOT_SUPPORTED), (first + 1, STATUS_NO_MEMORY)),
                ):
                    yield Case(pages, operations, faults=pair, label="two failures")
        # A reference that could not be taken is not held: taking it again updates again.
        if features.references:
            yield Case(pages, "++-", faults=((1, STATUS_NO_MEMORY),), label="retried reference")


def corpus(features: Features) -> Iterator[Case]:
    yield from _plain_cases(features)
    yield from _reference_cases(features)
    yield from _fault_cases(features)


def _table_row(size_mib: int, outcome: Outcome) -> Row:
    return Row(size_mib, outcome.maps, outcome.flushes, outcome.invalidates, outcome.pte_writes)


def _table_case(size_mib: int, features: Features) -> Case:
    pages = fresh(size_mib // 2)
    if features.localized:
        return Case(pages, "c", kind=KIND_DEFAULT, localized=True, label="table")
    return Case(pages, "c", label="table")


def observe_arm(subject: Subject, features: Features) -> Arm:
    """What the function looks like on a few telling cases; wrong ones are guessed at.

    A guess only chooses what it is held against; it cannot make a wrong one pass.
    """
    commit = subject.run(_table_case(64, features))[0]
    once = False
    if features.references:
        again = subject.run(Case(single_run(2), "++"))
        once = again[0].maps > 0 and again[1].maps == 0
    return Arm(
        coalesce=commit.maps < len(fresh(32)),
        defer=commit.synced_maps < commit.maps,
        once=once,
    )


def judge(subject: Subject, features: Features) -> Verdict:
    """Hold the function against the whole corpus; stops at the first failure."""
    arm = Arm()
    rows: list[Row] = []
    cases = 0
    try:
        arm = observe_arm(subject, features)
        for size_mib in TABLE_SIZES_MIB:
            rows.append(_table_row(size_mib, subject.run(_table_case(size_mib, features))[0]))
    except CrashError as error:
        failure = Failure("memory-safe", str(error), _table_case(64, features))
        return Verdict(arm, failure, tuple(rows), cases, features)
    for case in corpus(features):
        cases += 1
        failed = check_case(subject, case, arm, features)
        if failed is not None:
            return Verdict(arm, failed, tuple(rows), cases, features)
    return Verdict(arm, None, tuple(rows), cases, features)
