# SPDX-License-Identifier: MIT
"""What the bench runs: memory of some layout, operations on it, faults injected.

Addresses are counted in slots of 2 MiB, the smallest page of static BAR1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SLOT_MIB = 2
KIND_DEFAULT = 0x6
KIND_COMPRESSIBLE = 0x8

STATUS_OK = 0x00
STATUS_IN_USE = 0x17
STATUS_INVALID_STATE = 0x40
STATUS_NO_MEMORY = 0x51
STATUS_NOT_SUPPORTED = 0x56

LOCALIZED_STRIDE_PAGES = 16
"""Pages of 2 MiB in the 32 MiB that one locality domain holds of each 64 MiB."""


@dataclass(frozen=True)
class Case:
    """One line of input for the simulator."""

    pages: tuple[int, ...]
    """First physical slot of each page, in the memory's own order."""
    operations: str
    """Letters, see sim/subject.h: c r + - d k f."""
    kind: int = KIND_COMPRESSIBLE
    localized: bool = False
    contiguous: bool = False
    page_slots: int = 1
    start_slots: int = 0
    faults: tuple[tuple[int, int], ...] = ()
    """(call, status): the call'th mapping call of the case, from 1, fails."""
    label: str = ""

    @property
    def fb_slots(self) -> int:
        """Framebuffer that just holds the memory: one slot more is outside BAR1."""
        return max(self.pages) + self.page_slots

    @property
    def runs(self) -> int:
        """Maximal runs of pages that follow each other physically."""
        return 1 + sum(
            following != page + self.page_slots
            for page, following in zip(self.pages, self.pages[1:], strict=False)
        )

    @property
    def size_mib(self) -> int:
        return len(self.pages) * self.page_slots * SLOT_MIB

    def encoded(self) -> str:
        head = (
            f"{self.fb_slots} {self.start_slots} {self.page_slots} {self.kind} "
            f"{int(self.contiguous)} {int(self.localized)} {self.operations} "
        )
        faults = " ".join(f"{call} {status}" for call, status in self.faults)
        runs = list(_encoded_runs(self.pages, self.page_slots))
        body = " ".join(f"{first} {count} {step}" for first, count, step in runs)
        return f"{head}{len(self.faults)} {faults} {len(runs)} {body}\n"

    def __str__(self) -> str:
        attributes = "localized" if self.localized else f"kind {self.kind:#x}"
        if self.contiguous:
            attributes += ", contiguous"
        faults = "".join(f", call {call} fails with {status:#x}" for call, status in self.faults)
        shown = ", ".join(map(str, self.pages[:8])) + (", ..." if len(self.pages) > 8 else "")
        return (
            f"{self.label or 'case'}: {len(self.pages)} pages of {self.page_slots * SLOT_MIB} MiB "
            f"at slots [{shown}], {attributes}, start offset {self.start_slots}, "
            f"operations '{self.operations}'{faults}"
        )


def _encoded_runs(pages: Sequence[int], step: int) -> Iterator[tuple[int, int, int]]:
    start = 0
    for i in range(1, len(pages) + 1):
        if i == len(pages) or pages[i] != pages[i - 1] + step:
            yield pages[start], i - start, step
            start = i


# Layouts: physical slots of n pages of 2 MiB.


def fresh(n: int, *, domain: int = 0, base: int = 64) -> tuple[int, ...]:
    """Localized memory of a fresh GPU: 32 MiB in each 64 MiB, one stride a domain."""
    stride = LOCALIZED_STRIDE_PAGES
    return tuple(base + domain * stride + i // stride * 2 * stride + i % stride for i in range(n))


def single_run(n: int, *, base: int = 5) -> tuple[int, ...]:
    return tuple(range(base, base + n))


def descending(n: int, *, base: int = 3) -> tuple[int, ...]:
    return tuple(range(base + n - 1, base - 1, -1))


def scattered(n: int, seed: int) -> tuple[int, ...]:
    """Pages in random order from a framebuffer three times as large."""
    return tuple(random.Random(seed).sample(range(3 * n), n))


def fragmented(n: int, seed: int, *, longest: int = LOCALIZED_STRIDE_PAGES) -> tuple[int, ...]:
    """Ascending runs of 1 to `longest` pages with gaps of 1 to 4 between them."""
    rng = random.Random(seed)
    pages: list[int] = []
    slot = rng.randrange(8)
    while len(pages) < n:
        length = min(rng.randint(1, longest), n - len(pages))
        pages.extend(range(slot, slot + length))
        slot += length + rng.randint(1, 4)
    return tuple(pages)


def swapped_tail(n: int) -> tuple[int, ...]:
    """Fresh memory whose tail came out of the evictable list, in reverse."""
    pages = fresh(n)
    keep = max(n - 5, 1)
    return pages[:keep] + tuple(reversed(pages[keep:]))


def layouts(n: int) -> dict[str, tuple[int, ...]]:
    """Every layout at a size of n pages, by name."""
    return {
        "single run": single_run(n),
        "fresh, domain 0": fresh(n),
        "fresh, domain 1": fresh(n, domain=1),
        "from slot 0": single_run(n, base=0),
        "descending": descending(n),
        "every other page": tuple(range(1, 2 * n + 1, 2)),
        "pairs": tuple(7 + i // 2 * 3 + i % 2 for i in range(n)),
        "fragmented": fragmented(n, seed=n),
        "short runs": fragmented(n, seed=n + 1, longest=3),
        "swapped tail": swapped_tail(n),
        "scattered": scattered(n, seed=n),
    }
