# SPDX-License-Identifier: MIT
"""Physical memory as the mapping path sees it: who gets which 2 MiB pages.

The part of the driver's physical memory allocator (PMA) that decides how often
the static BAR1 update runs. The address space is cut into 64 MiB blocks (one
32 MiB stride for each of two locality domains), so that memory of one domain is
never contiguous beyond 32 MiB: PMA refuses such a request, and the driver asks
again for non-contiguous pages (open-gpu-kernel-modules, video_mem.c).

Not modelled: what a search costs, eviction, and the order in which a
non-contiguous request takes pages (here: ascending).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmmprof.sizes import MIB

PAGE_BYTES = 2 * MIB
STRIDE_PAGES = 32 * MIB // PAGE_BYTES


@dataclass(frozen=True)
class MemoryDescriptor:
    """What the driver knows of an allocation (its memdesc).

    pages: physical page numbers in the order of the allocation's offsets.
    contiguous: whether the allocator promised contiguity. Pages that merely
    happen to be adjacent do not set it, as in the driver.
    """

    pages: npt.NDArray[np.int64]
    contiguous: bool

    @property
    def run_count(self) -> int:
        """Maximal runs of physically ascending, adjacent pages."""
        return 1 + int(np.count_nonzero(np.diff(self.pages) != 1))


class PhysicalMemory:
    """The pages of one GPU, free or taken."""

    def __init__(self, total_bytes: int, domain_count: int) -> None:
        page_count = total_bytes // PAGE_BYTES
        self._free = np.ones(page_count, np.bool_)
        self._domain = np.arange(page_count) // STRIDE_PAGES % domain_count

    @property
    def free_page_count(self) -> int:
        return int(np.count_nonzero(self._free))

    def allocate(
        self, page_count: int, domain: int | None = None, *, contiguous: bool = True
    ) -> MemoryDescriptor | None:
        """Take pages, contiguous ones where that was asked for and can be had.

        domain: the locality domain that the memory must lie in, None for any.
        None when there is not enough free memory.
        """
        candidates = self._candidates(domain)
        if len(candidates) < page_count:
            return None
        run = _first_run(candidates, page_count) if contiguous else None
        pages = candidates[:page_count] if run is None else run
        self._free[pages] = False
        return MemoryDescriptor(pages, contiguous=run is not None)

    def free(self, memory: MemoryDescriptor) -> None:
        """Give the pages back."""
        self._free[memory.pages] = True

    @contextmanager
    def scattered(self) -> Iterator[None]:
        """Hold every other free page while inside, so that no two free ones are adjacent."""
        held = np.flatnonzero(self._free)[1::2]
        self._free[held] = False
        try:
            yield
        finally:
            self._free[held] = True

    def _candidates(self, domain: int | None) -> npt.NDArray[np.int64]:
        usable = self._free if domain is None else self._free & (self._domain == domain)
        return np.flatnonzero(usable)


def _first_run(candidates: npt.NDArray[np.int64], page_count: int) -> npt.NDArray[np.int64] | None:
    """The lowest ``page_count`` adjacent pages among ascending candidates, if there are any."""
    # Sorted and distinct: page_count of them are adjacent when they span page_count - 1.
    span = candidates[page_count - 1 :] - candidates[: len(candidates) - page_count + 1]
    starts = np.flatnonzero(span == page_count - 1)
    if len(starts) == 0:
        return None
    return candidates[starts[0] : starts[0] + page_count]
