# SPDX-License-Identifier: MIT
from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmmprof.kernel.rm import PAGE_BYTES
from vmmprof.verify.pattern import (
    ALL_ONES,
    PAGE_WORDS,
    Expectation,
    Pattern,
    dense_index,
    pattern_words,
)

SEEDS = st.integers(0, (1 << 63) - 1)


class Memory:
    """A view on plain bytes."""

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.data = words

    def words(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return self.data[offsets >> 3]

    def word(self, offset: int) -> int:
        return int.from_bytes(self.data.view(np.uint8)[offset : offset + 8].tobytes(), "little")


def expectation(pages: int, pattern: Pattern = Pattern.DENSE, seed: int = 1) -> Expectation:
    return Expectation.make(pages * PAGE_BYTES, pattern, 64, np.random.default_rng(seed))


def test_the_values_are_splitmix64() -> None:
    """The first outputs for seed 0 as published with the algorithm."""
    words = pattern_words(np.array([1, 2, 3], np.uint64), 0, Pattern.DENSE)
    assert [hex(word) for word in words.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@given(SEEDS, st.integers(0, 1 << 40))
@settings(max_examples=200)
def test_a_dense_word_names_its_index(seed: int, index: int) -> None:
    (value,) = pattern_words(np.array([index], np.uint64), seed, Pattern.DENSE).tolist()
    assert dense_index(value, seed) == index


def test_compressible_data_repeats_one_value_in_256_bytes() -> None:
    words = pattern_words(np.arange(64, dtype=np.uint64), 5, Pattern.COMPRESSIBLE)
    halves = words.view(np.uint32)
    assert len(set(halves[:64].tolist())) == 1
    assert len(set(halves[64:].tolist())) == 1
    assert halves[0] != halves[64]


@pytest.mark.parametrize("pattern", Pattern)
@pytest.mark.parametrize("pages", [1, 3])
def test_what_was_written_compares_equal(pattern: Pattern, pages: int) -> None:
    expected = expectation(pages, pattern)
    comparison = expected.compare(Memory(expected.content(0, expected.size_bytes)))
    assert comparison.wrong == 0
    assert comparison.reads == len(expected.tag_offsets) + len(expected.word_offsets)


def test_every_page_is_read_at_start_end_an_odd_offset_and_densely() -> None:
    expected = expectation(5)
    for page in range(5):
        start = page * PAGE_BYTES
        tags = [o - start for o in expected.tag_offsets.tolist() if start <= o < start + PAGE_BYTES]
        assert tags[0] == 0
        assert tags[1] % 2 == 1
        assert tags[2] == PAGE_BYTES - 8
        inside = expected.word_offsets // PAGE_BYTES == page
        assert inside.sum() >= 60
        # No two words share a slice, so that none of the page goes unread.
        slices = expected.word_offsets[inside] % PAGE_BYTES // (PAGE_BYTES // 64)
        assert len(set(slices.tolist())) == inside.sum()


def test_words_under_a_tag_are_not_compared() -> None:
    for seed in range(5):
        expected = Expectation.make(
            PAGE_BYTES, Pattern.DENSE, PAGE_WORDS, np.random.default_rng(seed)
        )
        comparison = expected.compare(Memory(expected.content(0, PAGE_BYTES)))
        assert comparison.wrong == 0
        # Two aligned tags lie in a word each, and the odd one in two; the word after each is
        # left out as well.
        assert len(expected.word_offsets) == PAGE_WORDS - 5


@pytest.mark.parametrize("pages", [1, 2, 4])
@pytest.mark.parametrize("pattern", Pattern)
def test_a_moved_expectation_differs_everywhere(pages: int, pattern: Pattern) -> None:
    expected = expectation(pages, pattern)
    view = Memory(expected.content(0, expected.size_bytes))
    moved = expected.moved_by_a_page().compare(view)
    assert moved.wrong == moved.reads


def test_a_moved_expectation_fits_memory_that_is_moved() -> None:
    """The control is the very mistake it stands for: the words of the next page."""
    expected = expectation(3)
    moved = expected.moved_by_a_page()
    within = expected.word_offsets < 2 * PAGE_BYTES
    next_page = (expected.word_offsets[within] + PAGE_BYTES) // 8
    content = expected.content(0, expected.size_bytes)
    tagged = np.isin(next_page * 8, expected.tag_offsets // 8 * 8)
    assert (content[next_page] == moved.word_values[within])[~tagged].all()


def damaged(expected: Expectation, word: int, value: int) -> Memory:
    content = expected.content(0, expected.size_bytes)
    content[word] = value
    return Memory(content)


@pytest.mark.parametrize(
    ("value", "explanation"),
    [
        (lambda e: ALL_ONES, "all ones: no valid mapping"),
        (lambda e: e.poison_word, "this round's poison"),
        (lambda e: int(e.tag_values[3]), "a tag of page 1: wrong translation"),
        (lambda e: int(e.word_values[-1]), "a word of page 1: wrong translation"),
        (lambda e: 1234, "0x00000000000004D2: other memory, or compressed data"),
    ],
)
def test_a_wrong_value_is_explained(value: object, explanation: str) -> None:
    expected = expectation(2)
    seen = value(expected)  # type: ignore[operator]
    comparison = expected.compare(damaged(expected, 0, seen))
    assert comparison.wrong == 1
    assert comparison.pages == (0,)
    assert comparison.explained[0].startswith(f"page 0 at 0x0 shows {explanation}")
    assert "1 of" in str(comparison)


def test_content_in_chunks_is_the_whole() -> None:
    expected = expectation(4)
    chunks = [expected.content(page * PAGE_BYTES, PAGE_BYTES) for page in range(4)]
    assert (np.concatenate(chunks) == expected.content(0, 4 * PAGE_BYTES)).all()
