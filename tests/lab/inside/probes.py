# SPDX-License-Identifier: MIT
"""The counting methods as the tests attach them."""

from __future__ import annotations

import os
from collections.abc import Callable

from vmmprof.kernel.counting import CountingProbe
from vmmprof.kernel.kprobe_events import KprobeEvents
from vmmprof.kernel.probe_module import ModuleProbes
from vmmprof.kernel.symbols import SymbolTable, resolve_path

from .mock import Mock

KINDS: dict[str, Callable[..., CountingProbe]] = {"kprobe": KprobeEvents, "module": ModuleProbes}


def attached(method: str, mock: Mock) -> CountingProbe:
    """A probe of this process on the mock; enter it."""
    table = SymbolTable.read()
    return KINDS[method](resolve_path(table, mock.name), table, os.getpid())
