# SPDX-License-Identifier: MIT
"""Which phase of the update path a sampled call chain belongs to. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vmmprof.kernel.update_path import (
    ENTRY_PREFIXES,
    NAMES,
    ROOTS,
    Direction,
    Part,
    base_name,
    direction_of,
)


class Phase(str, Enum):
    """Where a sample was taken."""

    PTE = "pte"
    """Under a mapping call: page-table writes."""
    PAGE_FLUSH = "page_flush"
    """In a flush that ends a single page-table write: not of the loop's own synchronisation."""
    BARRIER = "barrier"
    """In the loop's own memory barrier."""
    TLB = "tlb"
    """In the loop's own TLB invalidate."""
    UPDATE_OTHER = "update_other"
    """In the update function, outside its mapping calls and synchronisation."""
    OUTSIDE = "outside"
    """In the kernel, the update function not among the callers."""
    USER = "user"
    """In user space."""
    UNATTRIBUTED = "unattributed"
    """The chain was cut before it could tell."""


UPDATE_PHASES = frozenset(
    {Phase.PTE, Phase.PAGE_FLUSH, Phase.BARRIER, Phase.TLB, Phase.UPDATE_OTHER}
)
SYNC_PHASES = frozenset({Phase.BARRIER, Phase.TLB})

_PART_OF = {name: part for part, names in NAMES.items() for name in names}
# The invalidate's own entry may be inlined into its callers; what it calls is not.
_PART_OF["kgmmuInvalidateTlb_GM107"] = Part.INVALIDATE
_ROOTS = frozenset(ROOTS)


@dataclass(frozen=True)
class Attribution:
    """A phase, and for samples under the update function the way it goes."""

    phase: Phase
    direction: Direction | None = None


def attribute(chain: Sequence[str]) -> Attribution:
    """Attribute a kernel call chain, innermost function first, names with or without suffix.

    An empty chain is a sample of user space. Flush and invalidate count only
    under the update function's frame, and a flush only as the loop's own when
    the mapping call or the update function itself called it.
    """
    if not chain:
        return Attribution(Phase.USER)
    names = [base_name(name) for name in chain]
    update = _outermost(names, Part.UPDATE)
    if update is None:
        whole = names[-1].startswith(ENTRY_PREFIXES) or any(name in _ROOTS for name in names)
        return Attribution(Phase.OUTSIDE if whole else Phase.UNATTRIBUTED)
    return Attribution(_phase_below(names[: update + 1]), direction_of(names[update + 1 :]))


def _outermost(names: Sequence[str], part: Part) -> int | None:
    for index in range(len(names) - 1, -1, -1):
        if _PART_OF.get(names[index]) is part:
            return index
    return None


def _phase_below(names: Sequence[str]) -> Phase:
    """Phase of a chain that ends with the update function."""
    seen_map = False
    for index in range(len(names) - 2, -1, -1):
        part = _PART_OF.get(names[index])
        if part is Part.INVALIDATE:
            return Phase.TLB
        if part is Part.FLUSH:
            own = _PART_OF.get(names[index + 1]) in (Part.UPDATE, Part.MAP)
            return Phase.BARRIER if own else Phase.PAGE_FLUSH
        seen_map = seen_map or part is Part.MAP
    return Phase.PTE if seen_map else Phase.UPDATE_OTHER
