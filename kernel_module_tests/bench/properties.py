# SPDX-License-Identifier: MIT
"""The named properties; each looks at one operation and says what is wrong, or None.

Order matters: the first property that fails is the one reported, so the plain
ones (memory safety, final table) come before those about how it was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.cases import STATUS_NOT_SUPPORTED, STATUS_OK, Case
from bench.extract import Features
from bench.reference import Arm, Expected, Reference, unaliased
from bench.subject import CrashError, Outcome, Pte, Subject


@dataclass(frozen=True)
class Failure:
    """A property that does not hold, and the case that shows it."""

    prop: str
    detail: str
    case: Case

    def __str__(self) -> str:
        return f"{self.prop}: {self.detail}"


@dataclass(frozen=True)
class Step:
    """One operation as the properties see it."""

    case: Case
    arm: Arm
    features: Features
    before: Reference
    expected: Expected
    outcome: Outcome

    @property
    def failing(self) -> list[int]:
        """Statuses of the mapping calls that failed, in order."""
        return [call.status for call in self.outcome.calls if call.status != STATUS_OK]


def clean(step: Step) -> str | None:
    """Nothing that no function may do, whatever its arm."""
    return step.outcome.findings[0] if step.outcome.findings else None


def _show(pte: Pte | None) -> str:
    if pte is None:
        return "unmapped"
    physical, kind, localized = pte
    return f"slot {physical}, kind {kind:#x}{', localized' if localized else ''}"


def _stays_unmapped(step: Step, slot: int) -> bool:
    """Whether the calls read the PTE back, so that an unmapped one stays unmapped."""
    return step.outcome.read_backs > 0 and step.before.table.get(slot, ()) is None


def page_table(step: Step) -> str | None:
    """Every page that a call covered maps as the reference says; nothing else changed.

    Pages of a failed call must be unmapped, as the walker leaves them; pages
    that no call covered keep what they had.
    """
    reference, outcome = step.before, step.outcome
    wanted: dict[int, Pte | None] = dict(reference.table)
    for call in outcome.calls:
        for slot in range(call.slot, call.slot + call.n_slots):
            if call.status != STATUS_OK or _stays_unmapped(step, slot):
                wanted[slot] = None
            elif (pte := reference.new_pte(slot, release=step.expected.release)) is not None:
                wanted[slot] = pte
            else:
                wanted.pop(slot, None)
    own = reference.page_of_slot()
    strays = [slot for slot in wanted if slot not in own]
    if strays:
        return f"BAR1 slot {strays[0]} was mapped, which shows none of the memory's pages"
    for slot in sorted(wanted.keys() | outcome.changed.keys()):
        missing = "as at boot"
        want = _show(wanted[slot]) if slot in wanted else missing
        have = _show(outcome.changed[slot]) if slot in outcome.changed else missing
        if want != have:
            return f"BAR1 slot {slot} maps {have}; the reference maps {want}"
    return None


def coverage(step: Step) -> str | None:
    """Every page was covered; a commit may stop at its first failed call."""
    if not step.expected.updates:
        return None
    covered = {
        slot for call in step.outcome.calls for slot in range(call.slot, call.slot + call.n_slots)
    }
    left = [slot for slot in step.before.page_of_slot() if slot not in covered]
    if not left:
        return None
    if step.failing and step.expected.release:
        return f"{len(left)} pages were left as they were after a release call failed"
    if step.failing and step.outcome.calls[-1].status != STATUS_OK:
        return None
    return f"{len(left)} pages of the memory were never mapped"


def coherent(step: Step) -> str | None:
    """No posted write and no stale TLB entry is left."""
    stale = step.outcome.stale
    if not stale:
        return None
    return f"accesses to BAR1 slot {stale[0]} ({len(stale)} in all) still see the old mapping"


def status(step: Step) -> str | None:
    """Without a failing call the operation returns what the references say."""
    if step.failing or step.outcome.status == step.expected.status:
        return None
    return f"returned {step.outcome.status:#x}; expected {step.expected.status:#x}"


def error_kept(step: Step) -> str | None:
    """A deferring function returns the first error; stock promises the last status only."""
    if not step.failing:
        return None
    translate = unaliased if step.features.unaliases else lambda code: code
    first = translate(step.failing[0])
    allowed = {first}
    if not step.arm.defer:
        allowed.add(translate(step.outcome.calls[-1].status))
    if step.outcome.status in allowed:
        return None
    named = " or ".join(f"{code:#x}" for code in sorted(allowed))
    return f"returned {step.outcome.status:#x} after failed calls; expected {named}"


def no_alias(step: Step) -> str | None:
    """NOT_SUPPORTED of a mapping call never reaches the caller."""
    if not (step.failing and step.features.unaliases):
        return None
    if step.outcome.status != STATUS_NOT_SUPPORTED:
        return None
    return "returned NOT_SUPPORTED, which callers take for normal operation"


def calls(step: Step) -> str | None:
    """As many mapping calls as pages, or as maximal physical runs when coalescing."""
    made = step.outcome.maps
    if not step.expected.updates:
        return f"{made} mapping calls where no update is due" if made else None
    wanted = step.case.runs if step.arm.coalesce else len(step.case.pages)
    if step.case.contiguous:
        wanted = 1
    what = "runs" if step.arm.coalesce else "pages"
    if made == wanted or (step.failing and made < wanted):
        return None
    return f"{made} mapping calls for {wanted} {what}"


def written_once(step: Step) -> str | None:
    """No page is written twice."""
    pages = len(step.case.pages)
    if step.outcome.pte_writes <= pages:
        return None
    return f"{step.outcome.pte_writes} PTEs written for {pages} pages"


def synchronised(step: Step) -> str | None:
    """One flush and one downgrade invalidate in all (deferring), or one of each a call."""
    outcome = step.outcome
    if outcome.partial_flushes:
        return f"{outcome.partial_flushes} flushes without both flags"
    if outcome.upgrades:
        return f"{outcome.upgrades} invalidates that are not PTE_DOWNGRADE"
    wanted = min(outcome.maps, 1) if step.arm.defer else outcome.maps
    if outcome.flushes != wanted or outcome.invalidates != wanted:
        return (
            f"{outcome.flushes} flushes and {outcome.invalidates} invalidates for "
            f"{outcome.maps} mapping calls; expected {wanted} of each"
        )
    return None


PROPERTIES: dict[str, Callable[[Step], str | None]] = {
    "memory-safe": clean,
    "page-table": page_table,
    "coverage": coverage,
    "tlb-coherent": coherent,
    "not-supported-hidden": no_alias,
    "error-kept": error_kept,
    "status": status,
    "calls": calls,
    "written-once": written_once,
    "sync": synchronised,
}


def check_case(subject: Subject, case: Case, arm: Arm, features: Features) -> Failure | None:
    """Run the case and return the first property that fails; None when all hold."""
    try:
        outcomes = subject.run(case)
    except CrashError as error:
        return Failure("memory-safe", str(error), case)
    reference = Reference(case, arm, features)
    for operation, outcome in zip(case.operations, outcomes, strict=True):
        step = Step(case, arm, features, reference, reference.expect(operation), outcome)
        for name, prop in PROPERTIES.items():
            wrong = prop(step)
            if wrong is not None:
                return Failure(name, f"'{operation}' {wrong}", case)
        reference.commit_observed(operation, outcome)
    return None
