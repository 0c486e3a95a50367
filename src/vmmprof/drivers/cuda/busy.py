# SPDX-License-Identifier: MIT
"""A long kernel in flight while cycles run: one thread that waits for a word to change."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api

# The kernel ends by itself after this long, should a call of a cycle wait for it.
LIMIT_NS = 5_000_000_000
_START_TIMEOUT_S = 1.0
_HOST_FLAGS = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
_NON_BLOCKING = 1

# Word 0 says that the kernel runs, word 1 asks it to end, word 2 says that its time is up.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry wait(.param .u64 words, .param .u64 limit_ns)
{
    .reg .u64 %rd<6>;
    .reg .u32 %r<3>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [limit_ns];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd3, %globaltimer;
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%rd1], %r1;
LOOP:
    ld.volatile.global.u32 %r2, [%rd1+4];
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra DONE;
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p2, %rd5, %rd2;
    @%p2 bra LOOP;
    st.volatile.global.u32 [%rd1+8], %r1;
DONE:
    ret;
}
\0"""
_WORDS = 3


class BusyKernel:
    """The kernel of one device, started and ended again and again; see :func:`busy_kernel`."""

    def __init__(self, context: Any, function: Any, stream: Any, address: int) -> None:
        self._context, self._function, self._stream = context, function, stream
        self._address = address
        self._words = (ctypes.c_uint32 * _WORDS).from_address(address)

    def start(self) -> bool:
        """Launch it and wait until it runs; False when it does not."""
        for i in range(_WORDS):
            self._words[i] = 0
        api.call("cuCtxSetCurrent", self._context)
        arguments = ((self._address, LIMIT_NS), (ctypes.c_uint64, ctypes.c_uint64))
        api.call("cuLaunchKernel", self._function, 1, 1, 1, 1, 1, 1, 0, self._stream, arguments, 0)
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while self._words[0] == 0:
            is_over = int(cuda.cuStreamQuery(self._stream)[0]) == 0
            if is_over or time.monotonic() > deadline_s:
                return self._words[0] != 0
        return True

    def end(self) -> bool:
        """Let it end, wait for it, and say whether it was in flight until now."""
        self._words[1] = 1
        api.call("cuStreamSynchronize", self._stream)
        return self._words[0] != 0 and self._words[2] == 0


@contextmanager
def busy_kernel(context: Any) -> Iterator[BusyKernel]:
    """A kernel for a device's context, with the memory and the stream that it needs."""
    with ExitStack() as stack:

        def undo(function: str, argument: Any) -> None:
            api.call("cuCtxSetCurrent", context)
            api.call(function, argument)

        api.call("cuCtxSetCurrent", context)
        address = int(api.call("cuMemHostAlloc", 4 * _WORDS, _HOST_FLAGS))
        stack.callback(undo, "cuMemFreeHost", address)
        module = api.call("cuModuleLoadData", _PTX)
        stack.callback(undo, "cuModuleUnload", module)
        function = api.call("cuModuleGetFunction", module, b"wait")
        stream = api.call("cuStreamCreate", _NON_BLOCKING)
        stack.callback(undo, "cuStreamDestroy", stream)
        yield BusyKernel(context, function, stream, address)
