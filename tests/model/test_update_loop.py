# SPDX-License-Identifier: MIT
"""How often the driver maps and synchronises: counts known from the driver's source."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.drivers.model.pma import PAGE_BYTES, MemoryDescriptor, PhysicalMemory
from vmmprof.drivers.model.update_loop import (
    PATCHES,
    UpdateCounts,
    count_update,
    enters_loop,
    parse_patch,
)
from vmmprof.errors import UsageError
from vmmprof.sizes import GIB, MIB


def localized(size_mib: int) -> MemoryDescriptor:
    memory = PhysicalMemory(4 * GIB, 2).allocate(size_mib * MIB // PAGE_BYTES, 0)
    assert memory is not None
    return memory


@pytest.mark.parametrize(
    ("size_mib", "patch", "calls", "syncs"),
    [
        (1024, "none", 512, 512),
        (1024, "a", 32, 32),
        (1024, "b", 512, 1),
        (1024, "ab", 32, 1),
        (64, "none", 32, 32),
        (64, "ab", 2, 1),
        (34, "none", 17, 17),
        (34, "a", 2, 2),
        (32, "none", 1, 1),
        (32, "ab", 1, 1),
        (2, "none", 1, 1),
    ],
)
def test_localized_memory(size_mib: int, patch: str, calls: int, syncs: int) -> None:
    counts = count_update(localized(size_mib), PATCHES[patch])
    assert counts == UpdateCounts(calls, syncs, page_writes=size_mib // 2)


def test_coalescing_finds_nothing_on_a_scattered_card() -> None:
    memory = PhysicalMemory(4 * GIB, 2)
    with memory.scattered():
        scattered = memory.allocate(512, 0)
        assert scattered is not None
    assert count_update(scattered, PATCHES["a"]) == count_update(scattered, PATCHES["none"])
    assert count_update(scattered, PATCHES["ab"]) == UpdateCounts(512, 1, 512)


def test_only_localized_or_compressible_memory_enters() -> None:
    assert not enters_loop(localized=False, compressible=False)
    assert enters_loop(localized=True, compressible=False)
    assert enters_loop(localized=False, compressible=True)


def test_an_unknown_patch_is_named() -> None:
    with pytest.raises(UsageError, match="'ba'"):
        parse_patch("ba")


@given(st.lists(st.integers(0, 99), min_size=1, unique=True), st.booleans())
def test_a_patch_never_adds_work_and_writes_every_page_once(
    pages: list[int], contiguous: bool
) -> None:
    memory = MemoryDescriptor(np.array(sorted(pages) if contiguous else pages), contiguous)
    stock, a, b, ab = (count_update(memory, PATCHES[name]) for name in ("none", "a", "b", "ab"))
    assert {counts.page_writes for counts in (stock, a, b, ab)} == {len(pages)}
    assert stock.calls == stock.syncs
    assert a.calls == a.syncs <= stock.calls
    assert (b.calls, b.syncs) == (stock.calls, 1)
    assert (ab.calls, ab.syncs) == (a.calls, 1)
