# SPDX-License-Identifier: MIT
"""The update path's own object of a driver tree: what a probe has to find its way in."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from vmmprof.errors import NothingMeasuredError
from vmmprof.kernel.symbols import SymbolTable, resolve_path
from vmmprof.kernel.update_path import Part, base_name

from .mock import loaded
from .probes import attached

FLAVOURS = ("stock", "a", "b", "ab")


def test_the_compiler_s_suffix_is_resolved() -> None:
    with ExitStack() as stack:
        mocks = [stack.enter_context(loaded("real", flavour)) for flavour in FLAVOURS]
        table = SymbolTable.read()
        paths = [resolve_path(table, mock.name) for mock in mocks]
    for path in paths:
        (update,) = path.symbols[Part.UPDATE]
        assert base_name(update.name) == "_kbusUpdateStaticBar1VAMapping_TU102"
        # The function has an argument that it does not use: gcc drops it and says so in the name.
        assert update.name != base_name(update.name)


def test_kprobe_events_are_refused() -> None:
    with (
        loaded("real", "stock") as mock,
        pytest.raises(NothingMeasuredError, match="no ftrace pad"),
        attached("kprobe", mock),
    ):
        pass
