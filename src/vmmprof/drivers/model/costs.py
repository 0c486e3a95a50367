# SPDX-License-Identifier: MIT
"""From what an allocation makes the driver do to microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from vmmprof.drivers.model.parameters import Curve
from vmmprof.drivers.model.update_loop import UpdateCounts


@dataclass(frozen=True)
class Work:
    """What allocating (or freeing) one piece of memory makes the driver do.

    update: of the static BAR1 mapping; all zero for memory that never enters it.
    """

    size_mib: float
    page_count: int
    contiguous: bool
    compressible: bool
    update: UpdateCounts


@dataclass(frozen=True)
class ColumnCost:
    """The time of one column of a recording, in us.

    base: plain, contiguous memory of a size. passes: how often the column does
    the work: once in create or in release, twice in a cycle's total. The rest
    is what one pass adds: update_us for entering the update, call_us a mapping
    call, sync_us a barrier with its TLB invalidation, page_write_us a
    page-table entry, page_array_us a page of a memdesc that is not contiguous,
    compressible_us for being compressible.
    """

    base: Curve
    passes: int
    update_us: float = 0.0
    call_us: float = 0.0
    sync_us: float = 0.0
    page_write_us: float = 0.0
    page_array_us: float = 0.0
    compressible_us: float = 0.0

    def us(self, work: Work) -> float | None:
        """The column's time, None where no source gives the base."""
        base_us = self.base.at(work.size_mib)
        if base_us is None:
            return None
        return base_us + self.passes * self._pass_us(work)

    def _pass_us(self, work: Work) -> float:
        counts = work.update
        cost_us = (
            counts.calls * self.call_us
            + counts.syncs * self.sync_us
            + counts.page_writes * self.page_write_us
        )
        if counts.calls:
            cost_us += self.update_us
        if not work.contiguous:
            cost_us += work.page_count * self.page_array_us
        if work.compressible:
            cost_us += self.compressible_us
        return cost_us
