# SPDX-License-Identifier: MIT
"""The counting methods as the tests attach them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from vmmprof.kernel.counting import CountingProbe
from vmmprof.kernel.kprobe_events import KprobeEvents
from vmmprof.kernel.probe_module import ModuleProbes
from vmmprof.kernel.symbols import SymbolTable, resolve_path

from .mock import Mock

KINDS: dict[str, Callable[..., CountingProbe]] = {"kprobe": KprobeEvents, "module": ModuleProbes}


def attached(
    method: str, mock: Mock, kinds: dict[str, Callable[..., CountingProbe]] = KINDS
) -> CountingProbe:
    """A probe of this process on the mock; enter it."""
    table = SymbolTable.read()
    return kinds[method](resolve_path(table, mock.name), table, os.getpid())


@contextmanager
def compiled_once() -> Iterator[dict[str, Callable[..., CountingProbe]]]:
    """KINDS whose module probes share one BPF program: compiling takes most of a test's time.

    While it lasts the program holds vmmprof_probe, which cannot be unloaded.
    """

    class Sharing(ModuleProbes):
        program: ClassVar[Any] = None
        current: ClassVar[Sharing]

        def _compile(self) -> None:
            Sharing.current = self
            if Sharing.program is None:
                super()._compile()
                Sharing.program = self._bpf
            self._bpf = Sharing.program

        def _take(self, context: Any, data: int, size: int) -> None:
            # The ring buffer knows the probe that compiled the program.
            ModuleProbes._take(Sharing.current, context, data, size)

        def _close(self) -> None:
            self._bpf = None
            super()._close()
            for table in (b"watched", b"calls"):
                Sharing.program[table].clear()

    try:
        yield {**KINDS, "module": Sharing}
    finally:
        if Sharing.program is not None:
            Sharing.program.cleanup()
