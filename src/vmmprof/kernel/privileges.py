# SPDX-License-Identifier: MIT
"""Lay capabilities aside while they are not needed, and take them up again.

Only the effective set of the calling thread changes: detaching, and writing
results into a folder that is not root's, need what was laid aside.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# _LINUX_CAPABILITY_VERSION_3: two words of 32 bits a set.
_VERSION_3 = 0x20080522
CAP_SYS_PTRACE = 19

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Word(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


_Sets = _Word * 2


def _get() -> ctypes.Array[_Word]:
    sets = _Sets()
    _call(_libc.capget, sets)
    return sets


def _call(function: ctypes._NamedFuncPointer, sets: ctypes.Array[_Word]) -> None:
    if function(ctypes.byref(_Header(_VERSION_3, 0)), sets) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def only(kept: frozenset[int]) -> Iterator[None]:
    """The thread's effective capabilities are those of ``kept`` that it has, until the end."""
    before, reduced = _get(), _get()
    for number, word in enumerate(reduced):
        word.effective &= sum(1 << (cap - 32 * number) for cap in kept if cap // 32 == number)
    try:
        _call(_libc.capset, reduced)
        yield
    finally:
        _call(_libc.capset, before)
