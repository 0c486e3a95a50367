# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmmprof.errors import UsageError
from vmmprof.sizes import GIB, KIB, MIB, format_size, parse_size, parse_sizes, round_up


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("2M", [2 * MIB]),
        ("1K,4K,2M", [KIB, 4 * KIB, 2 * MIB]),
        ("30M:66M:2M", [mib * MIB for mib in range(30, 67, 2)]),
        ("2M:1G:x2", [2 * MIB << i for i in range(10)]),
        ("2m,2MiB,2048K,2MB", [2 * MIB]),
        ("1024", [KIB]),
        ("4M,2M", [2 * MIB, 4 * MIB]),
        ("1M:4M:2M", [MIB, 3 * MIB]),
        ("1G:1G:x2", [GIB]),
    ],
)
def test_grammar(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty part"),
        ("2M,", "empty part"),
        ("2X", "not a size"),
        ("-2M", "not a size"),
        ("2.5M", "not a size"),
        ("1023", "smallest is 1K"),
        ("0M", "smallest is 1K"),
        ("2M:4M", "three parts"),
        ("2M:4M:2M:2M", "three parts"),
        ("4M:2M:2M", "goes down"),
        ("2M:4M:x1", "smallest is x2"),
        ("2M:4M:0", "smallest is 1K"),
        ("1K:1G:1K", "more than 4096"),
    ],
)
def test_bad_sizes_say_what_is_wrong_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_sizes(text)
    assert "\n" not in str(caught.value)


@given(st.integers(min_value=KIB, max_value=1 << 50))
def test_format_is_read_back(size: int) -> None:
    assert parse_size(format_size(size).replace(" ", "")) == size


@given(st.integers(1, 1 << 45), st.integers(1, 1 << 30))
def test_round_up_is_the_next_multiple(size: int, granularity: int) -> None:
    rounded = round_up(size, granularity)
    assert rounded % granularity == 0
    assert 0 <= rounded - size < granularity


@given(st.integers(1, 4096), st.integers(0, 100), st.integers(1, 512))
def test_a_range_has_both_ends_and_its_step(first: int, steps: int, step: int) -> None:
    last = first + steps * step
    sizes = parse_sizes(f"{first}K:{last}K:{step}K")
    assert sizes[0] == first * KIB
    assert sizes[-1] == last * KIB
    assert len(sizes) == steps + 1


@given(st.text(max_size=20))
def test_any_text_is_sizes_or_a_usage_error(text: str) -> None:
    try:
        sizes = parse_sizes(text)
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert sizes == tuple(sorted(set(sizes)))
        assert sizes[0] >= KIB
