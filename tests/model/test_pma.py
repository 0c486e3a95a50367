# SPDX-License-Identifier: MIT
"""Who gets which pages: the facts of the physical layout, and properties of any history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.drivers.model.pma import (
    PAGE_BYTES,
    STRIDE_PAGES,
    MemoryDescriptor,
    PhysicalMemory,
)
from vmmprof.sizes import GIB

BLOCK_PAGES = 2 * STRIDE_PAGES
MEMORY_PAGES = GIB // PAGE_BYTES


def fresh() -> PhysicalMemory:
    return PhysicalMemory(GIB, domain_count=2)


@pytest.mark.parametrize("domain", [0, 1])
def test_pages_of_a_domain_lie_in_its_stride_of_each_64_mib_block(domain: int) -> None:
    memory = fresh().allocate(40, domain)
    assert memory is not None
    expected = [domain * 16 + (i // 16) * 32 + i % 16 for i in range(40)]
    assert memory.pages.tolist() == expected


@pytest.mark.parametrize(("page_count", "contiguous"), [(1, True), (16, True), (17, False)])
def test_a_domain_gives_contiguous_memory_up_to_32_mib(page_count: int, contiguous: bool) -> None:
    memory = fresh().allocate(page_count, 1)
    assert memory is not None
    assert memory.contiguous is contiguous


def test_ordinary_memory_has_no_such_limit() -> None:
    memory = fresh().allocate(MEMORY_PAGES)
    assert memory is not None
    assert memory.contiguous
    assert memory.run_count == 1


def test_memory_asked_for_as_noncontiguous_stays_so_when_its_pages_are_adjacent() -> None:
    memory = fresh().allocate(8, contiguous=False)
    assert memory is not None
    assert not memory.contiguous
    assert memory.run_count == 1


def test_a_contiguous_request_passes_over_a_hole_that_is_too_small() -> None:
    memory = fresh()
    first, second = memory.allocate(4), memory.allocate(4)
    assert first is not None
    assert second is not None
    memory.free(first)
    large = memory.allocate(5)
    assert large is not None
    assert large.contiguous
    assert large.pages.tolist() == list(range(8, 13))


def test_no_memory_is_given_beyond_what_a_domain_has() -> None:
    memory = fresh()
    assert memory.allocate(MEMORY_PAGES // 2 + 1, 0) is None
    assert memory.free_page_count == MEMORY_PAGES


def test_scattered_memory_has_no_two_adjacent_free_pages() -> None:
    memory = fresh()
    with memory.scattered():
        assert memory.free_page_count == MEMORY_PAGES // 2
        scattered = memory.allocate(20, 0)
        assert scattered is not None
        assert scattered.run_count == 20
        assert not scattered.contiguous
        memory.free(scattered)
    assert memory.free_page_count == MEMORY_PAGES


def test_scattering_ends_when_an_error_leaves_it() -> None:
    memory = fresh()
    with pytest.raises(KeyError), memory.scattered():
        raise KeyError
    assert memory.free_page_count == MEMORY_PAGES


requests = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([None, 0, 1]), st.booleans(), st.booleans()),
    max_size=30,
)


@given(requests)
def test_any_history_keeps_memory_apart_and_gives_it_all_back(
    history: list[tuple[int, int | None, bool, bool]],
) -> None:
    memory = fresh()
    held: list[MemoryDescriptor] = []
    for page_count, domain, contiguous, free_oldest in history:
        got = memory.allocate(page_count, domain, contiguous=contiguous)
        if got is not None:
            assert len(got.pages) == page_count
            if domain is not None:
                assert (got.pages % BLOCK_PAGES // STRIDE_PAGES == domain).all()
            assert not (got.contiguous and got.run_count != 1)
            held.append(got)
        if free_oldest and held:
            memory.free(held.pop(0))
        taken = [page for each in held for page in each.pages.tolist()]
        assert len(taken) == len(set(taken)) == MEMORY_PAGES - memory.free_page_count
    for each in held:
        memory.free(each)
    assert memory.free_page_count == MEMORY_PAGES


@given(st.sets(st.integers(0, 60), min_size=1))
def test_runs_partition_the_pages(pages: set[int]) -> None:
    ordered = sorted(pages)
    descriptor = MemoryDescriptor(np.array(ordered, np.int64), contiguous=False)
    starts = [page for page in ordered if page - 1 not in pages]
    assert descriptor.run_count == len(starts)


def test_descending_pages_are_runs_of_their_own() -> None:
    descriptor = MemoryDescriptor(np.array([0, 1, 9, 8, 7]), contiguous=False)
    assert descriptor.run_count == 4
