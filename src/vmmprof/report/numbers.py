# SPDX-License-Identifier: MIT
"""How numbers are written in tables and captions: four digits or so, ASCII, units apart."""

from __future__ import annotations

import math
from collections.abc import Callable

from vmmprof.analysis.intervals import Estimate

NS_PER_US = 1000.0
MISSING = "-"


def us(value_ns: float | None) -> str:
    """Nanoseconds as microseconds: ``0.412``, ``50.62``, ``357.1``, ``11543``."""
    if value_ns is None or math.isnan(value_ns):
        return MISSING
    return plain(value_ns / NS_PER_US)


def plain(value: float) -> str:
    """A number with about four digits and no exponent."""
    size = abs(value)
    if round(size, 1) >= 1000:
        return f"{value:.0f}"
    if round(size, 2) >= 100:
        return f"{value:.1f}"
    if round(size, 3) >= 10:
        return f"{value:.2f}"
    return f"{value:.3f}"


def percent(share: float) -> str:
    """A share of 1 in percent with up to three digits: 0.0001 as ``0.01%``."""
    return f"{100 * share:.3g}%"


def ratio(value: float) -> str:
    """A ratio, two decimals below 100."""
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def with_interval(estimate: Estimate | None, write: Callable[[float], str]) -> str:
    """``22.40 [21.90, 22.81]``; without an interval the value alone, without a value ``-``."""
    if estimate is None:
        return MISSING
    value = write(estimate.value)
    if not estimate.has_interval:
        return value
    return f"{value} [{write(estimate.lo)}, {write(estimate.hi)}]"


def mib_text(size_mib: float) -> str:
    """``32`` for whole MiB, else as many decimals as it takes."""
    return f"{size_mib:g}"


def whole(value: float) -> float | int:
    """Whole numbers as integers, so that 32 MiB reads ``32``."""
    return int(value) if value == int(value) else value


def number(value: float | None) -> float | None:
    """A number for JSON: what is not finite, which JSON has not, is null; 6 digits stay."""
    return None if value is None or not math.isfinite(value) else round(value, 6)
