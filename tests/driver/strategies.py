# SPDX-License-Identifier: MIT
"""Hypothesis strategies for bench cases."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bench.cases import (
    KIND_COMPRESSIBLE,
    KIND_DEFAULT,
    STATUS_INVALID_STATE,
    STATUS_NO_MEMORY,
    STATUS_NOT_SUPPORTED,
    Case,
)
from bench.extract import Features

_STATUSES = st.sampled_from([STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_INVALID_STATE])


@st.composite
def page_lists(draw: Any) -> tuple[int, ...]:
    """Distinct pages as runs of either direction in any order."""
    runs = draw(
        st.lists(
            st.tuples(st.integers(1, 20), st.integers(0, 3), st.booleans()),
            min_size=1,
            max_size=12,
        )
    )
    slot = 0
    pieces = []
    for length, gap, backwards in runs:
        slot += gap
        piece = list(range(slot, slot + length))
        pieces.append(piece[::-1] if backwards else piece)
        slot += length
    order = draw(st.permutations(range(len(pieces))))
    return tuple(page for index in order for page in pieces[index])


@st.composite
def operations(draw: Any, features: Features) -> str:
    """A direct update, or references taken and dropped in any order that is legal."""
    if not features.references or draw(st.booleans()):
        return str(draw(st.sampled_from(["c", "r", "cr", "crc"])))
    letters, held = "", 0
    refused = "kf" if features.map_flags else "k"
    for _ in range(draw(st.integers(1, 8))):
        letter = draw(st.sampled_from("+" if held == 0 else "+-" + refused))
        held += {"+": 1, "-": -1}.get(letter, 0)
        letters += letter
    return letters


@st.composite
def cases(draw: Any, features: Features, *, faults: bool) -> Case:
    """faults: inject failures; such cases hold one operation, so that it is the one failing."""
    localized = features.localized and draw(st.booleans())
    pages = draw(page_lists())
    injected: tuple[tuple[int, int], ...] = ()
    chosen = draw(operations(features))
    if faults:
        chosen = draw(st.sampled_from("cr"))
        calls = draw(st.sets(st.integers(1, len(pages)), min_size=1, max_size=4))
        injected = tuple((call, draw(_STATUSES)) for call in sorted(calls))
    kinds = [KIND_COMPRESSIBLE, KIND_DEFAULT] if localized else [KIND_COMPRESSIBLE]
    return Case(
        pages,
        chosen,
        kind=draw(st.sampled_from(kinds)),
        localized=localized,
        start_slots=draw(st.integers(0, 5)) if features.start_offset else 0,
        faults=injected,
        label="hypothesis",
    )
