# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from vmmprof.errors import PartialError, UsageError
from vmmprof.placement import PLAIN, Condition, Placement, parse_placement


def test_words_are_joined_in_any_order() -> None:
    assert parse_placement("compressible+domain:1", 2) == [Placement(1, compressible=True)]
    assert parse_placement("device", None) == [PLAIN]
    assert parse_placement("rdma+compressible", None) == [Placement(None, True, True)]


def test_all_is_every_domain() -> None:
    assert parse_placement("domain:all+rdma", 3) == [Placement(d, rdma=True) for d in range(3)]


@pytest.mark.parametrize(
    "placement", [PLAIN, Placement(1, True, True), Placement(0), Placement(None, True)]
)
def test_the_text_of_a_placement_is_read_back(placement: Placement) -> None:
    assert parse_placement(str(placement), 2) == [placement]


@pytest.mark.parametrize("text", ["", "devices", "domain", "domain:x", "domain:-1", "device,rdma"])
def test_an_unknown_word_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="unknown; placements are"):
        parse_placement(text, 2)


def test_a_domain_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(UsageError, match=r"has 2 locality domain\(s\), so N is at most 1"):
        parse_placement("domain:2", 2)


@pytest.mark.parametrize(
    "text", ["domain:0+domain:1", "domain:all+domain:0", "domain:0+rdma+domain:0"]
)
def test_memory_is_on_one_domain(text: str) -> None:
    with pytest.raises(UsageError, match="names two locality domains"):
        parse_placement(text, 2)


def test_a_driver_that_does_not_know_domains_is_not_bad_input() -> None:
    with pytest.raises(PartialError, match="does not know locality domains"):
        parse_placement("domain:0", None)


def test_the_control_keeps_size_and_card_state() -> None:
    condition = Condition(Placement(1, True), 4096, scattered=True)
    assert condition.control == Condition(PLAIN, 4096, scattered=True)
