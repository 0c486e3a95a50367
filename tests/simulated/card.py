# SPDX-License-Identifier: MIT
"""The card: physical pages, BAR1's page table entries, and what can be wrong with them.

Only what the checks look at is modelled: which page a BAR1 entry leads to and with
which kind, that compressed data reads as rubbish through another kind, and that
every increment of a memory object's BAR1 use runs the update loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

PAGE = 2 << 20
PAGE_WORDS = PAGE // 8
GENERIC, COMPRESSIBLE = 0x6, 0x8
BAR1_BASE = 0x4000_0000_0000
START_OFFSET = 0x2000_0000
RUBBISH = np.uint64(0xBAD0_C0DE_BAD0_C0DE)


class Fault(Enum):
    """Faults to switch on; each must be caught by the check meant for it."""

    PAGE_SHIFTED = auto()
    """The update loop points one page's entry at its neighbour."""
    PAGE_MISSING = auto()
    """The update loop leaves one page's entry invalid."""
    WRONG_KIND = auto()
    """The update loop does not set the kind."""
    STALE_KIND = auto()
    """A release does not set the kind back; ordinary memory never runs the loop."""
    STALE_DATA = auto()
    """BAR1 goes on showing what was there when it was mapped."""
    REFUSED_IMPORT = auto()
    REFUSED_MAP = auto()
    FILE_REUSED = auto()
    """Opening a GPU's file gives one that carries a mapping already."""
    SHORT_MAP = auto()
    """The mapping is a page shorter than was asked for."""
    ALWAYS_DYNAMIC = auto()
    """Mappings go to dynamic BAR1."""
    WRONG_ADDRESS = auto()
    """One single-page mapping's bus address is off by a page."""
    SHORT_IMPORT = auto()
    """The imported object is a page smaller than the allocation."""
    COMPRESSION_IGNORED = auto()
    """CUDA gives ordinary memory where compressible memory was asked for."""
    WRONG_DOMAIN = auto()
    """Localized memory is on another domain than was asked for."""
    LOST_WRITE = auto()
    """One word that CUDA writes does not arrive."""
    MEMORY_LEAK = auto()
    """Freed memory does not come back."""
    BAR1_LEAK = auto()
    """Unmapping does not give BAR1 back."""
    NO_REUSE = auto()
    """Freed pages are not handed out again while others are left."""
    STATIC_BAR1_OFF = auto()
    NOT_ROOT = auto()
    DYNAMIC_BAR1_FULL = auto()
    UPDATE_ONCE = auto()
    """Not a fault but a patch: only the first increment runs the loop."""


@dataclass
class Entry:
    """A BAR1 page table entry; ``page`` None is invalid."""

    page: int | None
    kind: int


@dataclass(eq=False)
class Backing:
    """Physical memory, shared by all objects that stand for it."""

    pages: list[int]
    compressible: bool
    contiguous: bool
    domain: int | None = None
    objects: int = 0
    bar1_uses: int = 0

    @property
    def kind(self) -> int:
        return COMPRESSIBLE if self.compressible else GENERIC

    @property
    def enters_loop(self) -> bool:
        """Memory of another kind, or localized memory; all other memory never does."""
        return self.compressible or self.domain is not None


@dataclass
class Card:
    """``total_pages`` pages of 2 MiB each; time is virtual, in ns."""

    total_pages: int = 64
    faults: set[Fault] = field(default_factory=set)
    now_ns: int = 0
    update_calls: int = 0

    def __post_init__(self) -> None:
        self.memory = np.zeros((self.total_pages, PAGE_WORDS), np.uint64)
        self.stored_kind = [GENERIC] * self.total_pages
        self.free_pages = list(range(self.total_pages))
        self.static = [Entry(page, GENERIC) for page in range(self.total_pages)]
        self.dynamic_used = 0
        self.used_once: set[int] = set()

    def has(self, fault: Fault) -> bool:
        return fault in self.faults

    @property
    def free_bytes(self) -> int:
        return len(self.free_pages) * PAGE

    def allocate(
        self, size: int, *, compressible: bool, noncontiguous: bool, domain: int | None = None
    ) -> Backing | None:
        """None when there is not enough, or no run long enough."""
        count = size // PAGE
        pages = self._scattered(count) if noncontiguous else self._run(count)
        if pages is None:
            return None
        for page in pages:
            self.free_pages.remove(page)
        self.used_once.update(pages)
        in_a_row = pages == list(range(pages[0], pages[0] + count))
        backing = Backing(pages, compressible, not noncontiguous and in_a_row, domain)
        for page in pages:
            self.stored_kind[page] = backing.kind
        self.increment(backing)
        return backing

    def _run(self, count: int) -> list[int] | None:
        for first in self._candidates():
            run = list(range(first, first + count))
            if set(run) <= set(self.free_pages):
                return run
        return None

    def _scattered(self, count: int) -> list[int] | None:
        candidates = self._candidates()
        return sorted(candidates[:count]) if len(candidates) >= count else None

    def _candidates(self) -> list[int]:
        if self.has(Fault.NO_REUSE):
            return sorted(self.free_pages, key=lambda page: (page in self.used_once, page))
        return sorted(self.free_pages)

    def drop(self, backing: Backing) -> None:
        """The last object is gone."""
        self.decrement(backing)
        if not self.has(Fault.MEMORY_LEAK):
            self.free_pages.extend(backing.pages)

    def increment(self, backing: Backing) -> None:
        """An allocation, an import or a map: the update loop runs where it does."""
        backing.bar1_uses += 1
        if not backing.enters_loop:
            return
        if self.has(Fault.UPDATE_ONCE) and backing.bar1_uses > 1:
            return
        self._account_loop(backing)
        if self.has(Fault.WRONG_KIND):
            return
        for page in backing.pages:
            self.static[page] = Entry(page, backing.kind)
        victim = backing.pages[len(backing.pages) // 2]
        if self.has(Fault.PAGE_SHIFTED):
            self.static[victim].page = backing.pages[0]
            if victim == backing.pages[0]:
                self.static[victim].page = (victim + 1) % self.total_pages
        if self.has(Fault.PAGE_MISSING):
            self.static[victim].page = None

    def decrement(self, backing: Backing) -> None:
        backing.bar1_uses -= 1
        if backing.enters_loop and backing.bar1_uses == 0:
            self._account_loop(backing)
            if not self.has(Fault.STALE_KIND):
                for page in backing.pages:
                    self.static[page] = Entry(page, GENERIC)

    def _account_loop(self, backing: Backing) -> None:
        calls = 1 if backing.contiguous else len(backing.pages)
        self.update_calls += calls
        self.now_ns += 7_000 * calls

    def write(self, page: int, words: npt.NDArray[np.uint64] | int) -> None:
        """CUDA fills a whole page."""
        self.memory[page] = words

    def bytes_of(self, page: int) -> npt.NDArray[np.uint8]:
        return self.memory[page].view(np.uint8)

    def read_entry(self, entry: Entry, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Words of a page as BAR1 shows them through an entry."""
        if entry.page is None:
            return np.full(len(indices), 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
        words: npt.NDArray[np.uint64] = self.memory[entry.page][indices]
        if entry.kind != self.stored_kind[entry.page]:
            return words ^ RUBBISH
        return words
