# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest

from tests.simulated.card import BAR1_BASE, PAGE, START_OFFSET, Card, Fault
from tests.simulated.rm import SimulatedRm
from vmmprof.kernel.rm import (
    Bar1Region,
    RmClient,
    RmError,
    RmStatus,
    StaticBar1,
    bar1_region,
    find_gpu,
    framebuffer,
    gather,
    gpu_name,
    localization_supported,
    static_bar1,
)
from vmmprof.kernel.rm.queries import CMD_STATIC_BAR1


def opened(rm: SimulatedRm) -> RmClient:
    return RmClient(find_gpu(transport=rm), rm)


def test_static_bar1_of_a_current_branch() -> None:
    with opened(SimulatedRm(Card(64))) as client:
        assert static_bar1(client) == StaticBar1(True, True, START_OFFSET, 64 * PAGE)


def test_static_bar1_of_the_first_branch_has_no_offset() -> None:
    with opened(SimulatedRm(Card(64), old_layouts=True)) as client:
        assert static_bar1(client) == StaticBar1(True, None, 0, 64 * PAGE)


def test_a_field_that_the_driver_does_not_write_is_unknown() -> None:
    rm = SimulatedRm()
    answer = rm._static_bar1

    def as_before_580(arguments: Any) -> None:
        answer(arguments)
        from vmmprof.kernel.rm.structs import StaticBar1Info

        StaticBar1Info.from_address(arguments.params).bStaticBar1WriteCombined = 0xFF

    rm._static_bar1 = as_before_580  # type: ignore[method-assign]
    with opened(rm) as client:
        assert static_bar1(client).write_combined is None


def test_only_another_layout_leads_to_another_try() -> None:
    rm = SimulatedRm()
    asked = []

    def refuse(arguments: Any) -> None:
        asked.append(arguments.paramsSize)
        arguments.status = RmStatus.NV_ERR_GPU_IS_LOST

    rm._static_bar1 = refuse  # type: ignore[method-assign]
    with opened(rm) as client, pytest.raises(RmError, match="usually the GPU fell off the bus"):
        static_bar1(client)
    assert len(asked) == 1


@pytest.mark.parametrize("old_layouts", [False, True])
def test_framebuffer_sizes_are_in_bytes(old_layouts: bool) -> None:
    rm = SimulatedRm(Card(64), old_layouts=old_layouts)
    with opened(rm) as client:
        rm.card.free_pages = rm.card.free_pages[:10]
        sizes = framebuffer(client)
    assert sizes.usable_bytes == 64 * PAGE
    assert sizes.free_bytes == 10 * PAGE
    assert sizes.bar1_bytes == 1 << 38
    assert sizes.bar1_free_bytes == 1 << 37


@pytest.mark.parametrize("old_layouts", [False, True])
def test_the_gpu_has_a_name(old_layouts: bool) -> None:
    with opened(SimulatedRm(old_layouts=old_layouts)) as client:
        assert gpu_name(client) == "Simulated H200"


def test_localization_is_yes_no_or_unknown() -> None:
    with opened(SimulatedRm()) as client:
        assert localization_supported(client) is False
    with opened(SimulatedRm(old_layouts=True)) as client:
        assert localization_supported(client) is None


def test_bar1_is_the_second_bar() -> None:
    with opened(SimulatedRm()) as client:
        assert bar1_region(client) == Bar1Region(BAR1_BASE, 1 << 38)


def test_facts_answer_everything() -> None:
    rm = SimulatedRm(Card(64))
    facts = gather(transport=rm)
    assert facts.driver_version.value == "580.159.04"
    assert facts.static_bar1.value is not None
    assert facts.static_bar1.value.enabled
    assert facts.localization.value is False
    assert facts.bar1.value is not None
    assert facts.framebuffer.value is not None
    assert not rm.files


def test_facts_of_an_older_driver_say_what_is_unknown_and_why() -> None:
    facts = gather(transport=SimulatedRm(old_layouts=True))
    assert facts.localization.value is None
    assert "does not know the question" in facts.localization.reason


def test_one_question_that_fails_leaves_the_others_answered() -> None:
    rm = SimulatedRm(Card(64, {Fault.STATIC_BAR1_OFF}))
    control = rm._control

    def refuse_one(arguments: Any) -> None:
        if arguments.cmd == CMD_STATIC_BAR1:
            arguments.status = RmStatus.NV_ERR_NOT_SUPPORTED
        else:
            control(arguments)

    rm._control = refuse_one  # type: ignore[method-assign]
    facts = gather(transport=rm)
    assert facts.static_bar1.value is None
    assert "NV_ERR_NOT_SUPPORTED" in facts.static_bar1.reason
    assert facts.driver_version.value == "580.159.04"


def test_facts_without_a_driver_are_unknown_for_one_reason() -> None:
    rm = SimulatedRm()

    def refuse(path: str) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    rm.open = refuse  # type: ignore[method-assign]
    facts = gather(transport=rm)
    assert facts.static_bar1.value is None
    assert "no NVIDIA driver is loaded" in facts.static_bar1.reason
