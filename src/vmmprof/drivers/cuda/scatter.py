# SPDX-License-Identifier: MIT
"""Scatter the physical memory of a card by holding every other 2 MiB piece of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.sizes import MIB, format_size

PIECE_BYTES = 2 * MIB
# Left free while the card is filled, for what the driver itself allocates. It stays in one piece,
# so it must be too small for the memory that is measured.
HEADROOM_BYTES = 4 * MIB


def _fill(properties: Any, stop_requested: Callable[[], bool], pieces: list[Any]) -> None:
    """Take 2 MiB pieces until the head-room is reached; they land in ``pieces`` one by one."""
    free_bytes, _ = api.call("cuMemGetInfo")
    for _ in range(max(0, free_bytes - HEADROOM_BYTES) // PIECE_BYTES):
        if stop_requested():
            return
        try:
            pieces.append(api.call("cuMemCreate", PIECE_BYTES, properties, 0))
        except api.CudaError as error:
            if api.status_name(error.status) == "CUDA_ERROR_OUT_OF_MEMORY":
                return
            raise PlacementUnavailableError(f"scattered memory: {error}") from None


def _give_back(pieces: list[Any]) -> None:
    """Release all pieces; CudaError when one stays, which is tried twice, after all others."""
    for last_try in (False, True):
        failed = []
        while pieces:
            piece = pieces.pop()
            try:
                api.call("cuMemRelease", piece)
            except api.CudaError as error:
                failed.append((piece, error))
        if last_try and failed:
            raise failed[0][1]
        pieces.extend(piece for piece, _ in failed)


@contextmanager
def scattered(device: int, need_bytes: int, stop_requested: Callable[[], bool]) -> Iterator[None]:
    """While inside, free memory consists of single 2 MiB pieces.

    PlacementUnavailableError when less than ``need_bytes`` would stay free. A
    requested stop ends the filling early; the caller then leaves at once.
    CudaError when a piece cannot be given back: the card is not what it was.
    """
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    pieces: list[Any] = []
    try:
        _fill(properties, stop_requested, pieces)
        given_back, pieces[:] = pieces[0::2], pieces[1::2]
        _give_back(given_back)
        free_bytes, _ = api.call("cuMemGetInfo")
        if free_bytes < need_bytes and not stop_requested():
            raise PlacementUnavailableError(
                f"scattered memory: {format_size(free_bytes // MIB * MIB)} stay free, but "
                f"{format_size(need_bytes)} are needed; measure smaller sizes"
            )
        yield
    finally:
        _give_back(pieces)
