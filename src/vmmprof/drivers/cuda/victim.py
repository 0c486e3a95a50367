# SPDX-License-Identifier: MIT
"""A victim on the CUDA driver: its kernel, its stream, and the rows that it brings back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from vmmprof.drivers.cuda import _cycle, api
from vmmprof.drivers.protocol import VictimRequest, VictimRows, WorkerFailure
from vmmprof.drivers.window import Window
from vmmprof.sizes import MIB

MEMORY_BYTES = 2 * MIB
# Operations of a visit at which the victim is alone.
ALONE_OPERATIONS = 500

_CALLS = {
    "query": "cuMemGetInfo",
    "alloc": "cuMemCreate or cuMemRelease",
    "launch": "cuLaunchKernel or cuStreamSynchronize",
}
# An empty kernel that every supported GPU compiles.
_PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry nothing() { ret; }
\0"""


class Victim:
    """The victim of a request, ready to be started beside bursts."""

    def __init__(
        self, request: VictimRequest, context: Any, function: int = 0, stream: int = 0
    ) -> None:
        self._request = request
        self._runs = False
        self._thread = _cycle.VictimThread(
            request.kind,
            int(context),
            request.device,
            memory_bytes=MEMORY_BYTES,
            function=function,
            stream=stream,
            pause_ns=request.pause_ns,
        )

    def start(self, control: memoryview, workers: int) -> None:
        """Start beside a burst of ``workers`` workers that meet in ``control``."""
        self._thread.start(control, workers, ALONE_OPERATIONS)
        self._runs = True

    def finish(self, found: Window | None, alone: bool) -> tuple[VictimRows, WorkerFailure | None]:
        """Its rows once the burst is over, with those that count in the burst's window marked."""
        # A burst whose processes could not be started never started its victim.
        table, status = self._thread.finish() if self._runs else (np.empty((0, 3), np.int64), 0)
        self._runs = False
        start_ns, end_ns = table[:, 0], table[:, 1]
        if alone:
            counts = np.ones(len(table), np.bool_)
        elif found is None:
            counts = np.zeros(len(table), np.bool_)
        else:
            counts = found.holds(start_ns, end_ns)
        counts[:1] = False  # ran before the common start
        rows = VictimRows(start_ns, end_ns - start_ns, table[:, 2].astype(np.int32), counts)
        if status == 0:
            return rows, None
        return rows, WorkerFailure(
            f"the victim on device {self._request.device}",
            f"{_CALLS[self._request.kind]} failed: {api.status_name(status)}",
            api.is_sticky(status),
        )


@contextmanager
def prepared_victim(request: VictimRequest, context: Any, main_context: Any) -> Iterator[Victim]:
    """A victim in ``context``; ``main_context`` is current again afterwards."""
    with ExitStack() as stack:
        if request.kind != "launch":
            yield Victim(request, context)
            return
        api.call("cuCtxSetCurrent", context)
        module = api.call("cuModuleLoadData", _PTX)
        stack.callback(_in_context, context, main_context, "cuModuleUnload", module)
        function = api.call("cuModuleGetFunction", module, b"nothing")
        stream = api.call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        stack.callback(_in_context, context, main_context, "cuStreamDestroy", stream)
        api.call("cuCtxSetCurrent", main_context)
        yield Victim(request, context, int(function), int(stream))


def _in_context(context: Any, main_context: Any, function: str, argument: Any) -> None:
    api.call("cuCtxSetCurrent", context)
    try:
        api.call(function, argument)
    finally:
        api.call("cuCtxSetCurrent", main_context)
