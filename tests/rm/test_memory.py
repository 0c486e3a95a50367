# SPDX-License-Identifier: MIT
"""Memory objects and their BAR1 mappings on the simulated resource manager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.simulated.card import BAR1_BASE, PAGE, START_OFFSET, Card, Fault
from tests.simulated.rm import SimulatedRm
from vmmprof.kernel.rm import (
    Bar1Mapping,
    Physicality,
    PhysicalLayout,
    RmClient,
    RmError,
    RmStatus,
    Step,
    allocate,
    allocation_params,
    bar1_region,
    find_gpu,
    framebuffer_address,
    granted_compression,
    held,
    import_memory,
    layout_from_bus_addresses,
    lies_in_static_bar1,
    static_bar1,
)


@pytest.fixture
def rm() -> SimulatedRm:
    return SimulatedRm(Card(16))


@pytest.fixture
def client(rm: SimulatedRm) -> Iterator[RmClient]:
    with RmClient(find_gpu(transport=rm), rm) as client:
        yield client
    assert not rm.objects
    assert not rm.files


def test_allocation_attributes_are_what_was_asked_for() -> None:
    params = allocation_params(PAGE, compressible=True, physicality=Physicality.NONCONTIGUOUS)
    # PAGE_SIZE 24:23 huge, PHYSICALITY 28:27, COMPR 13:12; PAGE_SIZE_HUGE 21:20 2 MiB.
    assert params.attr == 3 << 23 | 1 << 27 | 1 << 12
    assert params.attr2 == 1 << 20
    assert allocation_params(PAGE).attr == 3 << 23 | 2 << 27
    # ENABLE_LOCALIZED_MEMORY 30:29: 0 is none, 1 the first domain, 2 the second.
    assert allocation_params(PAGE, domain=0).attr2 >> 29 == 1
    assert allocation_params(PAGE, domain=1).attr2 >> 29 == 2


def test_freed_memory_comes_back(rm: SimulatedRm, client: RmClient) -> None:
    with allocate(client, allocation_params(4 * PAGE)):
        assert rm.card.free_bytes == 12 * PAGE
    assert rm.card.free_bytes == 16 * PAGE


def test_freeing_twice_frees_once(rm: SimulatedRm, client: RmClient) -> None:
    with allocate(client, allocation_params(PAGE)) as memory:
        memory.free()
    assert rm.log.count("free class 0x40") == 1


def test_granted_compression_is_read_from_what_came_back(rm: SimulatedRm, client: RmClient) -> None:
    params = allocation_params(PAGE, compressible=True)
    with allocate(client, params):
        assert granted_compression(params)
    rm.card.faults.add(Fault.COMPRESSION_IGNORED)
    params = allocation_params(PAGE, compressible=True)
    with allocate(client, params):
        assert not granted_compression(params)


def test_out_of_memory_says_so(client: RmClient) -> None:
    with pytest.raises(RmError, match=r"allocate video memory \(64 MiB\): NV_ERR_NO_MEMORY") as e:
        allocate(client, allocation_params(32 * PAGE))
    assert e.value.status == RmStatus.NV_ERR_NO_MEMORY


def test_memory_goes_through_a_file_to_another_client(rm: SimulatedRm, client: RmClient) -> None:
    with (
        allocate(client, allocation_params(2 * PAGE)) as memory,
        RmClient(find_gpu(transport=rm), rm) as other,
        memory.exported() as fd,
        import_memory(other, fd) as copy,
    ):
        assert copy.size_bytes == 2 * PAGE
        assert copy.physical_layout() == memory.physical_layout()
    assert rm.card.free_bytes == 16 * PAGE


def test_an_import_that_fails_late_leaves_nothing(rm: SimulatedRm, client: RmClient) -> None:
    with allocate(client, allocation_params(PAGE)) as memory, memory.exported() as fd:
        objects = dict(rm.objects)

        def refuse(arguments: object) -> None:
            arguments.status = RmStatus.NV_ERR_GENERIC  # type: ignore[attr-defined]

        rm._surface_info = refuse  # type: ignore[method-assign]
        with pytest.raises(RmError, match="ask for the size of memory"):
            import_memory(client, fd)
        assert rm.objects == objects


def test_a_file_that_holds_nothing_is_named(client: RmClient) -> None:
    with client.control_file() as fd, pytest.raises(RmError, match="nothing was exported into it"):
        import_memory(client, fd)


def test_a_duplicate_keeps_the_memory_alive(rm: SimulatedRm, client: RmClient) -> None:
    memory = allocate(client, allocation_params(PAGE))
    duplicate = memory.duplicate()
    memory.free()
    assert rm.card.free_bytes == 15 * PAGE
    duplicate.free()
    assert rm.card.free_bytes == 16 * PAGE


def test_runs_are_ascending_neighbours() -> None:
    pages = [0, 1, 2, 7, 6, 9, 10]
    assert PhysicalLayout(tuple(page * PAGE for page in pages)).runs == (3, 1, 1, 2)
    assert PhysicalLayout((4 * PAGE,)).runs == (1,)


def test_physical_pages_need_root(rm: SimulatedRm, client: RmClient) -> None:
    rm.card.faults.add(Fault.NOT_ROOT)
    with (
        allocate(client, allocation_params(PAGE)) as memory,
        pytest.raises(RmError, match=r"NV_ERR_INSUFFICIENT_PERMISSIONS .* usually this needs root"),
    ):
        memory.physical_layout()


def test_bus_addresses_give_the_same_pages_without_root(rm: SimulatedRm, client: RmClient) -> None:
    rm.card.free_pages = [1, 2, 5, 6, 9]
    params = allocation_params(4 * PAGE, physicality=Physicality.NONCONTIGUOUS)
    region, static = bar1_region(client), static_bar1(client)
    with allocate(client, params) as memory, Bar1Mapping(memory) as view:
        derived = layout_from_bus_addresses(memory, view, region, static)
        assert (
            derived.pages
            == memory.physical_layout().pages
            == (2 << 20, 4 << 20, 10 << 20, 12 << 20)
        )
        assert (derived.kind, derived.contiguous) == (None, None)


def test_a_mapping_shows_the_memory_at_any_offset(rm: SimulatedRm, client: RmClient) -> None:
    with allocate(client, allocation_params(2 * PAGE)) as memory, Bar1Mapping(memory) as view:
        data = np.arange(PAGE // 8, dtype=np.uint64)
        rm.card.memory[0], rm.card.memory[1] = data, data + np.uint64(1 << 40)
        assert view.words(np.array([8, PAGE + 16], np.int64)).tolist() == [1, (1 << 40) + 2]
        assert view.word(9) == 2 << 56


def test_static_and_dynamic_mappings_are_told_apart(client: RmClient) -> None:
    region, static = bar1_region(client), static_bar1(client)
    with allocate(client, allocation_params(PAGE)) as memory:
        with Bar1Mapping(memory) as view:
            assert lies_in_static_bar1(view.bus_address, region, static)
            assert framebuffer_address(view.bus_address, region, static) == 0
        with Bar1Mapping(memory, own_entries=True) as view:
            assert not lies_in_static_bar1(view.bus_address, region, static)
    end = BAR1_BASE + START_OFFSET + static.size_bytes
    assert lies_in_static_bar1(end - 1, region, static)
    assert not lies_in_static_bar1(end, region, static)
    assert not lies_in_static_bar1(BAR1_BASE + START_OFFSET - 1, region, static)


def test_a_mapping_is_undone_before_its_file_and_its_memory(
    rm: SimulatedRm, client: RmClient
) -> None:
    with allocate(client, allocation_params(PAGE)) as memory:
        rm.log.clear()
        with Bar1Mapping(memory):
            pass
    assert rm.log == ["unmap", "close", "free class 0x40"]


@pytest.mark.parametrize(
    ("fault", "step", "cause"),
    [
        (Fault.REFUSED_MAP, Step.MAP, "BAR1 has no room left"),
        (Fault.FILE_REUSED, Step.MAP, "open one file for each mapping"),
        (Fault.SHORT_MAP, Step.MMAP, "the length is not that of the mapping"),
    ],
)
def test_a_mapping_that_fails_says_why_and_leaves_nothing(
    rm: SimulatedRm, client: RmClient, fault: Fault, step: Step, cause: str
) -> None:
    with allocate(client, allocation_params(2 * PAGE)) as memory:
        files = dict(rm.files)
        rm.card.faults.add(fault)
        with pytest.raises(RmError, match=cause) as caught:
            Bar1Mapping(memory)
        assert caught.value.step is step
        assert rm.files == files
        assert not rm.objects[client.handle, memory.handle].maps


def test_a_closed_mapping_cannot_be_read(client: RmClient) -> None:
    with allocate(client, allocation_params(PAGE)) as memory:
        with Bar1Mapping(memory) as view:
            pass
        with pytest.raises(ValueError, match="is closed"):
            view.word(0)


def test_holding_leaves_what_was_asked_for(rm: SimulatedRm, client: RmClient) -> None:
    with held(client, leave_bytes=3 * PAGE) as held_bytes:
        assert rm.card.free_bytes == 3 * PAGE
        assert held_bytes == 13 * PAGE
    assert rm.card.free_bytes == 16 * PAGE


def test_holding_takes_smaller_pieces_where_large_ones_are_refused(
    rm: SimulatedRm, client: RmClient
) -> None:
    allocate_pages = rm.card.allocate

    def at_most_three(size: int, **kwargs: Any) -> object:
        return allocate_pages(size, **kwargs) if size <= 3 * PAGE else None

    rm.card.allocate = at_most_three  # type: ignore[assignment,method-assign]
    with held(client, leave_bytes=0) as held_bytes:
        assert held_bytes == 16 * PAGE


def test_a_fault_while_holding_gives_everything_back(rm: SimulatedRm, client: RmClient) -> None:
    with pytest.raises(KeyboardInterrupt), held(client, leave_bytes=0):
        raise KeyboardInterrupt
    assert rm.card.free_bytes == 16 * PAGE
