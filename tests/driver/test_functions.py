# SPDX-License-Identifier: MIT
"""Functions as text: cutting out, normalising, hashing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverpatch.functions import called_names, find_functions, normalise

SOURCE = """\
#include "a.h"
#define LOOP(x) do { call(x); } while (0)
/* int commented(void) { } */
static NvBool _helper(NvU32 value);

static NvBool
_helper
(
    NvU32 value   // the value }
)
{
    const char *text = "brace } in { a string";
    if (value) { return text[0] == '}'; }
    return NV_FALSE;
}

NV_STATUS outer_TU102(OBJGPU *pGpu)
{
    return _helper(kbusCall(pGpu)) ? NV_OK : 1;
}
"""


def test_definitions_are_found_and_declarations_are_not() -> None:
    found = find_functions(SOURCE)
    assert list(found) == ["_helper", "outer_TU102"]
    assert found["_helper"].is_static and not found["outer_TU102"].is_static
    assert found["_helper"].text.startswith("static NvBool\n_helper")
    assert found["_helper"].text.endswith("return NV_FALSE;\n}\n")
    assert SOURCE[found["outer_TU102"].start :].startswith("NV_STATUS outer_TU102")


def test_calls() -> None:
    assert called_names(find_functions(SOURCE)["outer_TU102"]) == {"_helper", "kbusCall"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = b;  // why\n", "a=b;"),
        ("f(x,\n   y);", "f(x, y);"),
        ("if (a) /* always */ b();", "if (a)\n{}".replace("{}", "    b();")),
    ],
)
def test_comments_and_spaces_do_not_count(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = b;", "a == b;"),
        ("a + +b", "a ++b"),
        ('f("a b");', 'f("a  b");'),
        ('f("// x");', 'f("");'),
        ("DMA_TLB_INVALIDATE", "DMA_DEFER_TLB_INVALIDATE"),
    ],
)
def test_code_does_count(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@given(st.lists(st.sampled_from(["a", "->", "(", ")", "==", "<<=", "1", "'{'", '"x y"', ";"])))
def test_normalising_twice_changes_nothing(tokens: list[str]) -> None:
    once = normalise(" ".join(tokens))
    assert normalise(once) == once
