# SPDX-License-Identifier: MIT
"""Samples sorted into conditions and attempts, usable rows apart from the rest.

Works column by column on anything that maps a column name to an array (a
DataFrame, or columns read one at a time from a file), so that a recording of
millions of cycles needs no more memory than a few of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.analysis.intervals import MEDIAN_INTERVAL_MIN_N, FloatArray, IntArray
from vmmprof.errors import UsageError
from vmmprof.placement import Condition, Level, Placement, parse_placement
from vmmprof.recording.schema import DEFAULTS, DISCARDED, Flag
from vmmprof.variant import STANDARD, Variant, parse_variant

# Recordings name domains that this machine may not have; any ordinal is valid here.
_ANY_DOMAIN_COUNT = 1 << 31


class Columns(Protocol):
    """A recording's columns by name; a DataFrame is one."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Group:
    """The rows of one condition and attempt.

    ``rows``: row numbers of the usable samples, in recorded order. The counts
    are of rows left out, each counted once: warm-up first, then failed,
    discarded (a read-back mismatch), traced, outside the window of all threads,
    and rows without the headline time. ``running``: rows of the usable samples and
    of those outside the window.
    """

    condition: Condition
    attempt: int
    rows: IntArray
    warmup: int
    failed: int
    discarded: int
    traced: int
    outside_window: int
    untimed: int
    running: IntArray


def placement_of(text: str) -> Placement:
    """The placement that a recording names, such as ``domain:1+compressible``."""
    if "domain:all" in text.split("+"):
        raise UsageError(f"placement {text!r} is several; name one, such as domain:0")
    return parse_placement(text, _ANY_DOMAIN_COUNT)[0]


def placements_in(columns: Columns) -> set[Placement]:
    """The placements of a recording's rows."""
    return {placement_of(str(name)) for name in pd.Categorical(columns["placement"]).unique()}


def times_ns(columns: Columns, call: str) -> FloatArray:
    """Column ``<call>_ns`` as float64, NaN where there is no time."""
    series = columns[f"{call}_ns"]
    if isinstance(series, pd.Series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(series, dtype=np.float64)


def round_numbers(columns: Columns) -> IntArray:
    """The round of each row."""
    return np.asarray(columns["round"])


def _or_default(columns: Columns, name: str, length: int) -> IntArray:
    """A column that says what most recordings need not say (schema.DEFAULTS)."""
    try:
        values = columns[name]
    except KeyError:
        return np.full(length, DEFAULTS[name], np.int64)
    return np.asarray(values)


def has_bursts(columns: Columns) -> bool:
    """Whether a visit was a burst of cycles, not a single one."""
    return bool(_or_default(columns, "repeat", 0).max(initial=0) > 0)


def _coded(values: npt.NDArray[Any]) -> tuple[IntArray | int, list[Any]]:
    """A code a row (one for all where all are equal) and the values that codes stand for."""
    if len(values) and values.min() == values.max():
        return 0, [values[0].item()]
    codes, distinct = pd.factorize(values)
    return codes.astype(np.int32), distinct.tolist()


def _dictionary(
    series: Any, meaning_of: Callable[[str], Any]
) -> tuple[npt.NDArray[np.int32], list[Any]]:
    category = series if isinstance(series, pd.Categorical) else pd.Categorical(series)
    meanings = [meaning_of(str(name)) for name in category.categories]
    return np.asarray(category.codes, dtype=np.int32), meanings


def _variant_codes(columns: Columns) -> tuple[IntArray | int, list[Variant]]:
    try:
        series = columns["variant"]
    except KeyError:
        return 0, [STANDARD]
    return _dictionary(series, parse_variant)


def condition_codes(
    columns: Columns,
) -> tuple[npt.NDArray[np.int16 | np.int32], list[tuple[Condition, int]]]:
    """A small integer a row and the condition and attempt that each integer means."""
    placement_codes, placements = _dictionary(columns["placement"], placement_of)
    length = len(placement_codes)
    parts: list[tuple[IntArray | int, list[Any]]] = [
        (placement_codes, placements),
        _variant_codes(columns),
    ]
    for name in ("size_bytes", "scattered", "processes", "threads", "devices", "attempt"):
        values = (
            _or_default(columns, name, length) if name in DEFAULTS else np.asarray(columns[name])
        )
        parts.append(_coded(values))
    # 32 bits: recordings of more than 2**31 conditions are not of this world.
    codes: IntArray = np.zeros(length, np.int32)
    for part_codes, distinct in parts:
        codes = codes * np.int32(max(1, len(distinct))) + part_codes
    dense, present = pd.factorize(codes)
    shape = [len(distinct) for _, distinct in parts]
    meanings = []
    for code in present.tolist():
        places = np.unravel_index(code, shape)
        placement, variant, size_bytes, scattered, processes, threads, devices, attempt = (
            distinct[int(place)] for (_, distinct), place in zip(parts, places, strict=True)
        )
        level = Level(processes, threads, devices)
        condition = Condition(placement, int(size_bytes), bool(scattered), level, variant)
        meanings.append((condition, int(attempt)))
    # 16 bits where they do: numpy sorts them in linear time.
    return dense.astype(np.int16 if len(present) < 1 << 15 else np.int32), meanings


def _condition_order(condition: Condition) -> tuple[bool, bool, str, Variant, Level, int]:
    placement = condition.placement
    return (
        condition.scattered,
        not placement.is_plain,
        str(placement),
        condition.variant,
        condition.level,
        condition.size_bytes,
    )


def group_samples(columns: Columns, headline: str) -> list[Group]:
    """Groups by card state, placement (plain first), variant, level, size and attempt.

    What was company for other conditions is in none.
    """
    codes, meanings = condition_codes(columns)
    if not meanings:
        return []
    flags = np.asarray(columns["flags"], dtype=np.uint16)
    timed = ~np.isnan(times_ns(columns, headline))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(meanings)))
    groups = []
    for (condition, attempt), rows in zip(meanings, np.split(order, ends[:-1]), strict=True):
        own = rows[(flags[rows] & int(Flag.COMPANY)) == 0]
        if len(own):
            groups.append(_group(condition, attempt, own, flags[own], timed[own]))
    return sorted(groups, key=lambda g: (_condition_order(g.condition), g.attempt))


def _group(
    condition: Condition,
    attempt: int,
    rows: IntArray,
    flags: npt.NDArray[np.uint16],
    timed: npt.NDArray[np.bool_],
) -> Group:
    left = np.ones(len(rows), dtype=bool)
    counts = []
    for bits in (Flag.WARMUP, Flag.FAILED, DISCARDED, Flag.TRACED, Flag.OUTSIDE_WINDOW):
        if bits == Flag.OUTSIDE_WINDOW:
            running = rows if left.all() else rows[left]
        taken = left & ((flags & int(bits)) != 0)
        counts.append(int(taken.sum()))
        left &= ~taken
    untimed = int((left & ~timed).sum())
    usable = left & timed
    warmup, failed, discarded, traced, outside_window = counts
    return Group(
        condition,
        attempt,
        rows if usable.all() else rows[usable],
        warmup,
        failed,
        discarded,
        traced,
        outside_window,
        untimed,
        running,
    )


def headline_attempts(groups: list[Group]) -> dict[Condition, int]:
    """The attempt that speaks for each condition: the last one that supports an interval.

    A second attempt that was cut short below that takes the first one's place
    only when the first has fewer samples still.
    """
    chosen: dict[Condition, Group] = {}
    for group in groups:
        best = chosen.get(group.condition)
        if best is None or _claim(group) >= _claim(best):
            chosen[group.condition] = group
    return {condition: group.attempt for condition, group in chosen.items()}


def _claim(group: Group) -> tuple[int, int]:
    return min(len(group.rows), MEDIAN_INTERVAL_MIN_N), group.attempt
