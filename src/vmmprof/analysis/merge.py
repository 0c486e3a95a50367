# SPDX-License-Identifier: MIT
"""Several recordings as one data set: which rows go in, and how far each recording is off.

A recording keeps both attempts of what it measured twice. Among recordings of
which only some did so, attempts cannot stay apart: the attempt that speaks for
a condition goes in, and of the control every attempt that pairs need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmmprof.analysis.groups import condition_codes, group_samples, headline_attempts, times_ns
from vmmprof.placement import Condition
from vmmprof.recording.reader import Recording


@dataclass(frozen=True)
class Deviation:
    """Where a recording's median is furthest from the median over all recordings."""

    condition: Condition
    relative: float


def rows_to_merge(recording: Recording) -> npt.NDArray[np.bool_]:
    """Which rows of a recording go into a merged one, shape (rows,)."""
    columns = recording.columns
    chosen = headline_attempts(group_samples(columns, recording.headline))
    wanted = set(chosen.items())
    wanted |= {(condition.control, attempt) for condition, attempt in chosen.items()}
    codes, meanings = condition_codes(columns)
    keep = np.array([meaning in wanted for meaning in meanings], dtype=bool)
    return keep[codes]


def deviations(recordings: Sequence[Recording]) -> list[Deviation | None]:
    """Each recording's largest deviation; None where no other recording shares a condition."""
    medians = [_medians(recording) for recording in recordings]
    by_condition: dict[Condition, list[float]] = {}
    for one in medians:
        for condition, value in one.items():
            by_condition.setdefault(condition, []).append(value)
    middle = {
        condition: float(np.median(values))
        for condition, values in by_condition.items()
        if len(values) > 1
    }
    return [
        max(
            (
                Deviation(condition, value / middle[condition] - 1)
                for condition, value in one.items()
                if middle.get(condition)
            ),
            key=lambda deviation: abs(deviation.relative),
            default=None,
        )
        for one in medians
    ]


def _medians(recording: Recording) -> dict[Condition, float]:
    groups = group_samples(recording.columns, recording.headline)
    chosen = headline_attempts(groups)
    times = times_ns(recording.columns, recording.headline)
    return {
        group.condition: float(np.median(times[group.rows]))
        for group in groups
        if len(group.rows) and group.attempt == chosen[group.condition]
    }
