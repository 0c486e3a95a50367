# SPDX-License-Identifier: MIT
"""verify reuse: pages that change hands between placements must show only the new owner's data.

Memory is released and created again while the rest of the card is held, so that
the same physical pages come back; how many did is counted, and a round in which
none did is not counted as tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from vmmprof.errors import VmmprofError
from vmmprof.kernel.rm import PAGE_BYTES, Bar1Mapping, held
from vmmprof.placement import Condition, Placement
from vmmprof.sizes import MIB, format_size
from vmmprof.verify.bar1 import Readback, check_contents, patterns_for
from vmmprof.verify.gpu import Allocation
from vmmprof.verify.pattern import Pattern
from vmmprof.verify.session import CannotAllocateError, Session, Wish, unavailable

# Left free beside the memory under test, for page tables and the like.
SPARE_BYTES = 16 * MIB


@dataclass
class Tally:
    """What the rounds of one size came to; keys of ``changes`` read ``device -> compressible``."""

    rounds: int = 0
    tested: int = 0
    reused_pages: int = 0
    changes: Counter[str] = field(default_factory=Counter)


def check(
    session: Session,
    placements: Sequence[Placement],
    size_bytes: int,
    rounds: int,
    *,
    asked: bool,
) -> None:
    """``rounds`` rounds of one size over the placements that can be had."""
    case = f"reuse {format_size(size_bytes)}"
    usable = _usable(session, placements, size_bytes, asked)
    reason = session.gpu.others() if usable else "no placement can be had"
    if reason is not None:
        session.report.cannot(case, "hold the rest of the card", reason, asked=asked)
        return
    try:
        tally = _run_rounds(session, case, usable, size_bytes, rounds)
    except CannotAllocateError as error:
        session.report.cannot(case, "allocate", str(error), asked=asked)
        return
    except VmmprofError as error:
        session.report.check(case, "every step of the read-back succeeds", False, str(error))
        return
    session.report.facts_of(case).update(
        rounds=tally.rounds,
        tested_rounds=tally.tested,
        pages=size_bytes // PAGE_BYTES,
        reused_pages=tally.reused_pages,
        changes=dict(tally.changes),
    )
    if tally.tested == 0:
        session.report.cannot(
            case, "reuse", f"no page came back in {tally.rounds} rounds", asked=asked
        )


def sequence(placements: Sequence[Placement], rounds: int) -> list[Placement]:
    """Placements of the rounds: A B B A A B ..., so that each follows itself and the others."""
    return [placements[(number + 1) // 2 % len(placements)] for number in range(rounds)]


def _usable(
    session: Session, placements: Sequence[Placement], size_bytes: int, asked: bool
) -> list[Placement]:
    usable = []
    for placement in placements:
        wish = Wish(Condition(placement, size_bytes), asked)
        reason = unavailable(session.gpu, wish)
        if reason is None:
            usable.append(placement)
        else:
            session.report.cannot(f"reuse {wish.condition}", "allocate", reason, asked=asked)
    return usable


def _run_rounds(
    session: Session, case: str, placements: Sequence[Placement], size_bytes: int, rounds: int
) -> Tally:
    tally = Tally()
    before: frozenset[int] = frozenset()
    placement_before: Placement | None = None
    with ExitStack() as undo:
        for placement in sequence(placements, rounds):
            with ExitStack() as round_undo:
                shared = round_undo.enter_context(session.shared(placement, size_bytes))
                view = round_undo.enter_context(Bar1Mapping(shared.memory))
                layout, _ = session.layout(shared.memory, view)
                reused = len(before & set(layout.pages))
                tally.rounds += 1
                if reused:
                    tally.tested += 1
                    tally.reused_pages += reused
                    tally.changes[f"{placement_before} -> {placement}"] += 1
                    readback = Readback(session, case, shared.allocation, view, None)
                    for pattern in patterns_for(placement):
                        check_contents(readback, pattern)
                if placement_before is None:
                    # The rest is held from the first round on, while that round's memory is
                    # still there: what is free afterwards is what it gives back.
                    _use_once(shared.allocation)
                    undo.enter_context(held(session.client, SPARE_BYTES))
                before, placement_before = frozenset(layout.pages), placement
    return tally


def _use_once(allocation: Allocation) -> None:
    """Make CUDA load and allocate now what it would not find memory for on a full card."""
    allocation.poison(0)
    allocation.fill(Pattern.DENSE, 0)
    allocation.put(0, 0)
    allocation.read(0, PAGE_BYTES)
