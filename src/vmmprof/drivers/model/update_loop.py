# SPDX-License-Identifier: MIT
"""How often the static BAR1 update maps and synchronises, stock and patched.

This is ``_kbusUpdateStaticBar1VAMapping_TU102``: entered for memory that is
compressible or localized, with one iteration for a memdesc that is contiguous
and one for each page of one that is not. It runs once when memory is allocated
and once when it is freed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag

from vmmprof.drivers.model.pma import MemoryDescriptor
from vmmprof.errors import UsageError


class Patch(Flag):
    """What the modelled driver does differently from the stock one."""

    NONE = 0
    COALESCE = 1
    """A: one mapping call a physically contiguous run, not one a page."""
    DEFER = 2
    """B: one barrier and TLB invalidation at the end, not one a call."""


PATCHES = {
    "none": Patch.NONE,
    "a": Patch.COALESCE,
    "b": Patch.DEFER,
    "ab": Patch.COALESCE | Patch.DEFER,
}


def parse_patch(name: str) -> Patch:
    """The patch of a ``--patch`` argument: none, a, b or ab."""
    if name not in PATCHES:
        raise UsageError(f"patch {name!r} is unknown; one of {', '.join(PATCHES)}")
    return PATCHES[name]


@dataclass(frozen=True)
class UpdateCounts:
    """One update of the static BAR1 mapping.

    calls: of the mapping routine (dmaUpdateVASpace). syncs: barriers, each with
    a TLB invalidation. page_writes: page-table entries written.
    """

    calls: int
    syncs: int
    page_writes: int


NO_UPDATE = UpdateCounts(0, 0, 0)


def enters_loop(*, localized: bool, compressible: bool) -> bool:
    """Whether memory is updated at all; ordinary memory has a fixed mapping."""
    return localized or compressible


def count_update(memory: MemoryDescriptor, patch: Patch) -> UpdateCounts:
    """What one update does for memory that enters the loop."""
    page_count = len(memory.pages)
    if memory.contiguous:
        calls = 1
    elif Patch.COALESCE in patch:
        calls = memory.run_count
    else:
        calls = page_count
    syncs = 1 if Patch.DEFER in patch else calls
    return UpdateCounts(calls, syncs, page_count)
