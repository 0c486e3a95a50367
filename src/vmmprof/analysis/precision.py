# SPDX-License-Identifier: MIT
"""How well a condition is known: the stopping rule of ``--until-ci``."""

from __future__ import annotations

import math

import numpy as np

from vmmprof.analysis.intervals import FloatArray, median

FIRST_LOOK_N = 30


def relative_half_width(values: FloatArray) -> float:
    """Half the width of the median's 95 % interval over the median.

    ``values``: the usable samples so far in the order taken, shape (n,).
    Infinite while they support no interval. 0.02 means that ``--until-ci 2%``
    is reached.
    """
    if not len(values):
        return math.inf
    return median(values, np.arange(len(values))).relative_half_width


def next_look(n: int) -> int:
    """The n at which a condition is looked at next: 30, then each doubling.

    Looking after every sample would stop at the luckiest moment; looking when
    n doubles keeps the looks few.
    """
    look = FIRST_LOOK_N
    while look <= n:
        look *= 2
    return look
