# SPDX-License-Identifier: MIT
"""How well a condition is known: the stopping rule of ``--until-ci``."""

from __future__ import annotations

import math

from vmmprof.analysis.intervals import FloatArray, median

FIRST_LOOK_N = 30


def relative_half_width(values: FloatArray) -> float:
    """Half the width of the median's 95 % interval over the median.

    ``values``: the usable samples so far, shape (n,). Infinite while ``n``
    supports no interval. 0.02 means that ``--until-ci 2%`` is reached.
    """
    return median(values).relative_half_width if len(values) else math.inf


def next_look(n: int) -> int:
    """The n at which a condition is looked at next: 30, then each doubling.

    Looking after every sample would stop at the luckiest moment; looking when
    n doubles keeps the looks few.
    """
    look = FIRST_LOOK_N
    while look <= n:
        look *= 2
    return look
