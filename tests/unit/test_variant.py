# SPDX-License-Identifier: MIT
"""The variant grammar, and what a variant is compared with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.errors import UsageError
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.sizes import KIB, MIB
from vmmprof.variant import STANDARD, Variant, parse_variant

VARIANTS = st.builds(
    Variant,
    chunk_bytes=st.one_of(st.just(0), st.integers(1, 4096).map(lambda n: n * KIB)),
    peers=st.integers(1, 16),
    call_a_peer=st.booleans(),
    busy=st.booleans(),
    pool=st.sampled_from(["", "cold", "warm"]),
    green=st.sampled_from(["", "16", "domain1", "domains"]),
)


@given(VARIANTS)
def test_a_variant_is_what_its_text_says(variant: Variant) -> None:
    assert parse_variant(str(variant)) == variant


def test_the_usual_cycle_has_no_name() -> None:
    assert str(STANDARD) == "" and parse_variant("") == STANDARD


@pytest.mark.parametrize(
    "text",
    [
        "chunks",
        "chunks:x",
        "peers:0",
        "peers:2:2",
        "pool:hot",
        "green:0",
        "green:domain",
        "busy:1",
        "fast",
    ],
)
def test_what_is_no_variant_is_bad_input(text: str) -> None:
    with pytest.raises(UsageError):
        parse_variant(text)


def test_a_word_twice_is_bad_input() -> None:
    with pytest.raises(UsageError, match="says chunks twice"):
        parse_variant("chunks:2M+chunks:4M")


def test_a_placement_is_compared_in_its_variant_and_plain_variants_with_the_usual_cycle() -> None:
    chunks = Variant(chunk_bytes=2 * MIB)
    placed = Condition(Placement(0), 64 * MIB, variant=chunks)
    plain = Condition(PLAIN, 64 * MIB, variant=chunks)
    assert placed.control == plain
    assert plain.control == Condition(PLAIN, 64 * MIB)
    assert Condition(PLAIN, 64 * MIB).series.is_control
    warm = Condition(PLAIN, 64 * MIB, variant=Variant(pool="warm"))
    assert warm.series.is_control
