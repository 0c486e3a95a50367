# SPDX-License-Identifier: MIT
"""Hold the free memory of a card, so that what is freed next must be used again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vmmprof.kernel.rm.client import RmClient
from vmmprof.kernel.rm.errors import RmError
from vmmprof.kernel.rm.memory import PAGE_BYTES, Physicality, allocate, allocation_params
from vmmprof.kernel.rm.queries import framebuffer
from vmmprof.kernel.rm.status import RmStatus
from vmmprof.sizes import GIB

_LARGEST_PIECE_BYTES = 4 * GIB


@contextmanager
def held(client: RmClient, leave_bytes: int) -> Iterator[int]:
    """Hold all free memory but about ``leave_bytes`` while inside; yields the bytes held.

    The memory is ordinary, so taking it runs no update loop. It goes with the
    client, and so with the process however that ends.
    """
    held_bytes = 0
    piece_bytes = _LARGEST_PIECE_BYTES
    with ExitStack() as undo:
        while piece_bytes >= PAGE_BYTES:
            spare_bytes = framebuffer(client).free_bytes - leave_bytes
            size_bytes = min(piece_bytes, spare_bytes // PAGE_BYTES * PAGE_BYTES)
            if size_bytes < PAGE_BYTES:
                break
            params = allocation_params(size_bytes, physicality=Physicality.NONCONTIGUOUS)
            try:
                undo.enter_context(allocate(client, params))
            except RmError as error:
                if error.status != RmStatus.NV_ERR_NO_MEMORY:
                    raise
                # What is left is in pieces that this client cannot have in one.
                piece_bytes = size_bytes // 2 // PAGE_BYTES * PAGE_BYTES
                continue
            held_bytes += size_bytes
        yield held_bytes
