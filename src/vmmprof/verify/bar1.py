# SPDX-License-Identifier: MIT
"""verify bar1: every page that CUDA wrote must show the same bytes through BAR1.

A case is memory that CUDA and a client of our own share, mapped through static
BAR1: poison it, write it, let CUDA read itself, compare through static and
dynamic BAR1, then apply two controls that must fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from vmmprof.errors import VmmprofError
from vmmprof.kernel.rm import (
    GENERIC_KIND,
    PAGE_BYTES,
    Bar1Mapping,
    Memory,
    PhysicalLayout,
    RmError,
)
from vmmprof.placement import Placement
from vmmprof.sizes import MIB
from vmmprof.verify.gpu import Allocation, write
from vmmprof.verify.pattern import Expectation, Pattern
from vmmprof.verify.session import CannotAllocateError, Session, Shared, Wish, unavailable

# Small enough for a processor's cache.
_SELF_CHECK_CHUNK = 2 * MIB
# Kinds of the generic compressible pages, with post-L2 compression and without.
_COMPRESSIBLE_KINDS = (0x8, 0x9)
# A control must fail nearly everywhere; random words may coincide.
_CONTROL_SHARE = 0.99
_TAG_FLIP = 0x5A5AA5A50FF0F00F


@dataclass(frozen=True)
class Readback:
    """An allocation and the views that must agree with it; ``second`` is dynamic BAR1's."""

    session: Session
    case: str
    allocation: Allocation
    view: Bar1Mapping
    second: Bar1Mapping | None

    def check(self, name: str, passed: bool, detail: str) -> bool:
        return self.session.report.check(self.case, name, passed, detail)


def check_all(session: Session, wishes: Iterable[Wish]) -> None:
    """Check every wish that can be had, and say why where it cannot."""
    for wish in wishes:
        check(session, wish)


def check(session: Session, wish: Wish) -> None:
    """All checks of one placement and size."""
    case, placement = str(wish.condition), wish.condition.placement
    reason = unavailable(session.gpu, wish)
    if reason is not None:
        session.report.cannot(case, "allocate", reason, asked=wish.asked)
        return
    session.report.facts_of(case)["proof"] = proof_of(placement)
    try:
        with session.shared(placement, wish.condition.size_bytes) as shared:
            _check_shared(session, case, placement, shared)
    except CannotAllocateError as error:
        session.report.cannot(case, "allocate", str(error), asked=wish.asked)
    except VmmprofError as error:
        session.report.check(case, "every step of the read-back succeeds", False, str(error))


def proof_of(placement: Placement) -> dict[str, str]:
    """What a pass proves for this placement, and what it cannot prove."""
    if placement.domain is not None:
        return {
            "proves": "the PTEs that the update loop wrote for localized memory lead to the pages "
            "that CUDA wrote",
            "cannot prove": "the localized bit itself: a bus address does not carry it, only the "
            "contents can show a wrong mapping, and words between the sampled ones are not read",
        }
    if placement.compressible:
        return {
            "proves": "compressed data is readable through the PTEs that the last run of the "
            "update loop wrote (on a stock driver the run of the map itself)",
            "cannot prove": "that the run at creation was right on a driver that repeats it at "
            "each map; on a one-die GPU the loop changes only the kind, which shows only where "
            "data was stored compressed",
        }
    return {
        "proves": "the boot-time mapping of static BAR1 and the arithmetic on bus addresses",
        "cannot prove": "anything about the update loop: ordinary memory never enters it",
    }


def _check_shared(session: Session, case: str, placement: Placement, shared: Shared) -> None:
    report, allocation, memory = session.report, shared.allocation, shared.memory
    _check_granted(session, case, placement, shared)
    if not report.check(
        case,
        "both objects have the same size",
        memory.size_bytes == allocation.size_bytes,
        f"{memory.size_bytes // MIB} MiB",
    ):
        return
    with ExitStack() as undo:
        view = undo.enter_context(Bar1Mapping(memory))
        if not report.check(
            case,
            "the mapping lies in static BAR1",
            session.shows(view),
            f"bus address 0x{view.bus_address:X}",
        ):
            return
        _check_addresses(session, case, placement, memory, view)
        second = _second_view(session, case, memory, undo)
        readback = Readback(session, case, allocation, view, second)
        for pattern in patterns_for(placement):
            check_contents(readback, pattern)


def patterns_for(placement: Placement) -> tuple[Pattern, ...]:
    """Compressible memory holds data both ways: stored compressed, and not."""
    if placement.compressible:
        return (Pattern.COMPRESSIBLE, Pattern.DENSE)
    return (Pattern.DENSE,)


def _check_granted(session: Session, case: str, placement: Placement, shared: Shared) -> None:
    session.report.check(
        case,
        "the granted compression is what was asked for",
        shared.compressible == placement.compressible,
        "compressible" if shared.compressible else "not compressible",
    )
    if session.gpu.domain_count is not None:
        domain = shared.allocation.locality_domain()
        # A device with one domain behaves as a whole: nothing on it is localized.
        wanted = placement.domain if session.gpu.domain_count > 1 else None
        session.report.check(
            case,
            "the memory is on the locality domain that was asked for",
            domain == wanted,
            f"ordinal {'none' if domain is None else domain}",
        )


def _check_addresses(
    session: Session, case: str, placement: Placement, memory: Memory, view: Bar1Mapping
) -> None:
    report = session.report
    layout, source = session.layout(memory, view)
    report.check(
        case,
        "physical pages are distinct and 2 MiB aligned",
        len(set(layout.pages)) == len(layout.pages)
        and all(page % PAGE_BYTES == 0 for page in layout.pages),
        f"{len(layout.pages)} pages, by {source}",
    )
    if layout.kind is not None:
        expected = (
            layout.kind in _COMPRESSIBLE_KINDS
            if placement.compressible
            else (layout.kind == GENERIC_KIND)
        )
        report.check(case, "the page kind is that of the placement", expected, f"0x{layout.kind:X}")
        # Localized addresses carry a bit that bus addresses do not.
        if placement.domain is None:
            _check_bus_addresses(session, case, memory, view, layout)
    report.facts_of(case).update(_layout_facts(placement, layout, source))


def _check_bus_addresses(
    session: Session, case: str, memory: Memory, view: Bar1Mapping, layout: PhysicalLayout
) -> None:
    """Each page mapped alone must be where the resource manager says that it is."""
    wrong = []
    for index, physical in enumerate(layout.pages):
        if index == 0:
            # The whole mapping starts there, and no start may be mapped twice.
            seen = session.framebuffer_address(view)
        else:
            with Bar1Mapping(memory, index * PAGE_BYTES, PAGE_BYTES, readable=False) as page:
                seen = session.framebuffer_address(page)
        if seen != physical:
            wrong.append(f"page {index}: 0x{seen:X}, not 0x{physical:X}")
    session.report.check(
        case,
        "bus address = BAR1 base + start offset + physical address on every page",
        not wrong,
        "; ".join(wrong[:3]) if wrong else f"{len(layout.pages)} pages",
    )


def _layout_facts(placement: Placement, layout: PhysicalLayout, source: str) -> dict[str, object]:
    runs = layout.runs
    enters_loop = placement.compressible or placement.domain is not None
    facts: dict[str, object] = {
        "pages": len(layout.pages),
        "physical_runs": len(runs),
        "longest_run_pages": max(runs),
        "known_from": source,
        "kind": layout.kind,
        "contiguous": layout.contiguous,
    }
    if not enters_loop:
        facts["iterations_stock"] = facts["iterations_coalescing"] = 0
    elif layout.contiguous is None:
        facts["iterations_stock"] = "unknown: needs root"
        facts["iterations_coalescing"] = len(runs)
    else:
        facts["iterations_stock"] = 1 if layout.contiguous else len(layout.pages)
        facts["iterations_coalescing"] = 1 if layout.contiguous else len(runs)
    return facts


def _second_view(
    session: Session, case: str, memory: Memory, undo: ExitStack
) -> Bar1Mapping | None:
    """A view by page table entries of its own in dynamic BAR1, where it has room."""
    try:
        second = undo.enter_context(Bar1Mapping(memory, own_entries=True))
    except RmError as error:
        session.report.cannot(case, "second view through dynamic BAR1", str(error), asked=False)
        return None
    session.report.check(
        case,
        "the second view lies outside static BAR1",
        not session.shows(second),
        f"bus address 0x{second.bus_address:X}",
    )
    return second


def check_contents(readback: Readback, pattern: Pattern) -> bool:
    """One round of data: poison, write, compare, controls. Whether the views were right."""
    allocation, label = readback.allocation, pattern.name.lower()
    session = readback.session
    expectation = Expectation.make(
        allocation.size_bytes, pattern, session.words_per_page, session.random
    )
    allocation.poison(expectation.poison)
    _check_poison(readback, label, expectation)
    write(allocation, expectation)
    wrong = _cuda_mismatches(allocation, expectation)
    if not readback.check(
        f"{label}: CUDA reads back what it wrote",
        wrong == 0,
        f"{allocation.size_bytes // MIB} MiB in full" if wrong == 0 else f"{wrong} wrong words",
    ):
        return False
    static = expectation.compare(readback.view)
    passed = readback.check(
        f"{label}: static BAR1 shows what CUDA wrote", static.wrong == 0, str(static)
    )
    if readback.second is not None:
        dynamic = expectation.compare(readback.second)
        passed &= readback.check(
            f"{label}: dynamic BAR1 shows what CUDA wrote", dynamic.wrong == 0, str(dynamic)
        )
    if passed:
        _check_controls(readback, label, expectation)
    return passed


def _check_poison(readback: Readback, label: str, expectation: Expectation) -> None:
    """Until the data is written, its places must show the poison: nothing old may pass."""
    offsets = expectation.word_offsets
    wrong = int((readback.view.words(offsets) != expectation.poison_word).sum())
    readback.check(
        f"{label}: the poison of this round is visible on every page",
        wrong == 0,
        f"{len(offsets)} reads" if wrong == 0 else f"{wrong} of {len(offsets)} reads wrong",
    )


def _cuda_mismatches(allocation: Allocation, expectation: Expectation) -> int:
    """Words that CUDA's own mapping shows wrong, over all of the memory."""
    wrong = 0
    for offset in range(0, allocation.size_bytes, _SELF_CHECK_CHUNK):
        length = min(_SELF_CHECK_CHUNK, allocation.size_bytes - offset)
        seen = allocation.read(offset, length)
        wrong += int((seen != expectation.content(offset, length)).sum())
    return wrong


def _check_controls(readback: Readback, label: str, expectation: Expectation) -> None:
    """A comparison that cannot fail proves nothing: two that must."""
    moved = expectation.moved_by_a_page().compare(readback.view)
    readback.check(
        f"{label}: control: an expectation moved by a page fails",
        moved.wrong >= _CONTROL_SHARE * moved.reads,
        f"{moved.wrong} of {moved.reads} reads differ",
    )
    index = expectation.middle_tag
    offset = int(expectation.tag_offsets[index])
    changed = int(expectation.tag_values[index]) ^ _TAG_FLIP
    readback.allocation.put(offset, changed)
    after = expectation.compare(readback.view)
    readback.check(
        f"{label}: control: one tag changed through CUDA is the only difference",
        after.wrong == 1
        and after.pages == (offset // PAGE_BYTES,)
        and readback.view.word(offset) == changed,
        f"{after.wrong} of {after.reads} reads differ",
    )
