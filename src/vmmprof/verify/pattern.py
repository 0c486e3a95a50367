# SPDX-License-Identifier: MIT
"""Data that tells where it belongs: what is written, and what every page must show.

A word's value is a hash of its index, so that data seen at a wrong place names
the place it came from. The same function runs on the GPU (fill.cu).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vmmprof.kernel.rm import PAGE_BYTES

WORD_BYTES = 8
PAGE_WORDS = PAGE_BYTES // WORD_BYTES
TAGS_PER_PAGE = 3
ALL_ONES = (1 << 64) - 1

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_REPEAT = 0x0000000100000001
_MAX_EXPLAINED = 4


class Pattern(Enum):
    """Kinds of data; the value is how many low bits of the word index are dropped."""

    DENSE = 0
    """Every word differs: nothing to compress."""
    COMPRESSIBLE = 5
    """Each 256-byte block repeats one 32-bit value: stored compressed where that is on."""


def pattern_words(
    indices: npt.NDArray[np.uint64], seed: int, pattern: Pattern
) -> npt.NDArray[np.uint64]:
    """Values of the 64-bit words with these indices: splitmix64 of ``index >> shift``."""
    z = (indices >> np.uint64(pattern.value)) * np.uint64(_GOLDEN) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
    z = z ^ (z >> np.uint64(31))
    if pattern is Pattern.COMPRESSIBLE:
        z = (z & np.uint64(0xFFFFFFFF)) * np.uint64(_REPEAT)
    return z


def dense_index(value: int, seed: int) -> int:
    """Index of the word whose DENSE value this is. Every value has one; few are small."""
    z = _undo_shift(value, 31)
    z = z * pow(_MIX_2, -1, 1 << 64) & ALL_ONES
    z = _undo_shift(z, 27)
    z = z * pow(_MIX_1, -1, 1 << 64) & ALL_ONES
    z = _undo_shift(z, 30)
    return (z - seed) * pow(_GOLDEN, -1, 1 << 64) & ALL_ONES


def _undo_shift(z: int, bits: int) -> int:
    """Inverse of ``z ^ (z >> bits)`` for bits >= 22."""
    return z ^ (z >> bits) ^ (z >> (2 * bits))


class View(Protocol):
    """Something that shows memory: a BAR1 mapping. Offsets are bytes from its start."""

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]: ...

    def word(self, offset: int) -> int: ...


@dataclass(frozen=True)
class Comparison:
    """How many reads differed, on which pages, and what the first ones seem to be."""

    reads: int
    wrong: int
    pages: tuple[int, ...]
    explained: tuple[str, ...]

    def __str__(self) -> str:
        if self.wrong == 0:
            return f"{self.reads} reads"
        shown = ", ".join(map(str, self.pages[:8]))
        more = f" and {len(self.pages) - 8} more" if len(self.pages) > 8 else ""
        return f"{self.wrong} of {self.reads} reads wrong, on pages {shown}{more}; " + "; ".join(
            self.explained
        )


@dataclass(frozen=True)
class Expectation:
    """What memory filled with a pattern and then tagged must show.

    Tags are unique values at the first word, the last word and one odd byte
    offset of each 2 MiB page; words are the pattern's own values at random places,
    spread over every page. All arrays are in page order.
    """

    size_bytes: int
    seed: int
    poison: int
    pattern: Pattern
    tag_offsets: npt.NDArray[np.int64]
    tag_values: npt.NDArray[np.uint64]
    word_offsets: npt.NDArray[np.int64]
    word_values: npt.NDArray[np.uint64]

    @classmethod
    def make(
        cls,
        size_bytes: int,
        pattern: Pattern,
        words_per_page: int,
        random: np.random.Generator,
    ) -> Expectation:
        """Fresh random data for ``size_bytes``, a multiple of 2 MiB."""
        pages = size_bytes // PAGE_BYTES
        seed = int(random.integers(1 << 63))
        page_starts = np.arange(pages, dtype=np.int64) * PAGE_BYTES
        odd = random.integers(4096, PAGE_BYTES - 4096, pages, dtype=np.int64) | 1
        tag_offsets = np.stack(
            [page_starts, page_starts + odd, page_starts + PAGE_BYTES - WORD_BYTES], axis=1
        ).ravel()
        word_offsets = _spread(pages, words_per_page, tag_offsets, random) * WORD_BYTES
        return cls(
            size_bytes=size_bytes,
            seed=seed,
            poison=int(random.integers(1, 1 << 32)),
            pattern=pattern,
            tag_offsets=tag_offsets,
            tag_values=random.integers(1, ALL_ONES, len(tag_offsets), dtype=np.uint64),
            word_offsets=word_offsets,
            word_values=pattern_words(
                (word_offsets // WORD_BYTES).astype(np.uint64), seed, pattern
            ),
        )

    @property
    def poison_word(self) -> int:
        """The 64-bit word that a fill with the 32-bit poison leaves."""
        return self.poison * _REPEAT

    @property
    def middle_tag(self) -> int:
        """Index of the odd-offset tag of the middle page."""
        return TAGS_PER_PAGE * (self.size_bytes // PAGE_BYTES // 2) + 1

    def moved_by_a_page(self) -> Expectation:
        """A wrong expectation: each page is said to hold what the next one holds."""
        indices = (self.word_offsets // WORD_BYTES + PAGE_WORDS).astype(np.uint64)
        if len(self.tag_values) > TAGS_PER_PAGE:
            tag_values = np.roll(self.tag_values, -TAGS_PER_PAGE)
        else:
            tag_values = ~self.tag_values
        return replace(
            self,
            tag_values=tag_values,
            word_values=pattern_words(indices, self.seed, self.pattern),
        )

    def tags(self) -> Iterator[tuple[int, int]]:
        """Byte offset and value of each tag."""
        return zip(self.tag_offsets.tolist(), self.tag_values.tolist(), strict=True)

    def content(self, offset: int, length: int) -> npt.NDArray[np.uint64]:
        """All words of ``[offset, offset + length)``, both multiples of 2 MiB, tags included."""
        first = offset // WORD_BYTES
        words = pattern_words(
            np.arange(first, first + length // WORD_BYTES, dtype=np.uint64),
            self.seed,
            self.pattern,
        )
        data = words.view(np.uint8)
        inside = (self.tag_offsets >= offset) & (self.tag_offsets < offset + length)
        for tag_offset, value in zip(
            self.tag_offsets[inside].tolist(), self.tag_values[inside].tolist(), strict=True
        ):
            start = tag_offset - offset
            data[start : start + WORD_BYTES] = np.frombuffer(
                value.to_bytes(WORD_BYTES, "little"), np.uint8
            )
        return words

    def compare(self, view: View) -> Comparison:
        """Read every tag and every word through the view."""
        seen_tags = np.array([view.word(o) for o in self.tag_offsets.tolist()], np.uint64)
        seen_words = view.words(self.word_offsets)
        wrong_tags = np.flatnonzero(seen_tags != self.tag_values)
        wrong_words = np.flatnonzero(seen_words != self.word_values)
        offsets = np.concatenate([self.tag_offsets[wrong_tags], self.word_offsets[wrong_words]])
        seen = np.concatenate([seen_tags[wrong_tags], seen_words[wrong_words]])
        return Comparison(
            reads=len(seen_tags) + len(seen_words),
            wrong=len(offsets),
            pages=tuple(np.unique(offsets // PAGE_BYTES).tolist()),
            explained=tuple(
                self._explain(offset, value)
                for offset, value in zip(
                    offsets[:_MAX_EXPLAINED].tolist(), seen[:_MAX_EXPLAINED].tolist(), strict=True
                )
            ),
        )

    def _explain(self, offset: int, value: int) -> str:
        page, within = divmod(offset, PAGE_BYTES)
        return f"page {page} at 0x{within:X} shows {self._origin(value)}"

    def _origin(self, value: int) -> str:
        if value == ALL_ONES:
            return "all ones: no valid mapping, or the GPU is gone"
        if value == self.poison_word:
            return "this round's poison: what CUDA wrote last is not visible"
        tag = np.flatnonzero(self.tag_values == np.uint64(value))
        if len(tag):
            return f"a tag of page {int(tag[0]) // TAGS_PER_PAGE}: wrong translation"
        if self.pattern is Pattern.DENSE:
            index = dense_index(value, self.seed)
            if index < self.size_bytes // WORD_BYTES:
                return f"a word of page {index // PAGE_WORDS}: wrong translation"
        return f"0x{value:016X}: other memory, or compressed data read with a wrong kind"


def _spread(
    pages: int,
    words_per_page: int,
    tag_offsets: npt.NDArray[np.int64],
    random: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Sorted word indices: one random word in each equal slice of every page, none under a tag."""
    slice_words = PAGE_WORDS // words_per_page
    starts = np.arange(pages * words_per_page, dtype=np.int64) * slice_words
    indices = starts + random.integers(0, slice_words, len(starts), dtype=np.int64)
    first_word = tag_offsets // WORD_BYTES
    # An odd tag lies in two words.
    return np.setdiff1d(indices, np.concatenate([first_word, first_word + 1]))
