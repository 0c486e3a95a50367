# SPDX-License-Identifier: MIT
"""Recordings of several workers: cycles of one burst are not independent of each other.

They meet the same locks at the same time, and one bad moment is in many of
them. So a burst counts as one observation wherever an interval is formed: its
median stands for it in pairs, thresholds and re-measuring, and the quantiles
of all cycles get their intervals from resampling whole bursts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from vmmprof.analysis.groups import Columns, Group, group_samples, has_bursts, times_ns
from vmmprof.analysis.intervals import (
    Estimate,
    median,
)
from vmmprof.operations import Operation

# Enough for two digits of an interval's ends; the seed makes a report repeatable.
_RESAMPLES = 400
_SEED = 20


def one_row_a_visit(columns: Columns, operation_calls: tuple[str, ...], headline: str) -> Columns:
    """The same columns where a visit was one cycle; else one row a burst, of medians.

    Only usable samples are in the medians, and a burst without one has no row;
    so the result is for estimates, not for counting what was left out.
    """
    if not has_bursts(columns):
        return columns
    names = dict.fromkeys((*operation_calls, "total", headline))
    times = {f"{name}_ns": times_ns(columns, name) for name in names}
    parts = []
    for group in group_samples(columns, headline):
        if not len(group.rows):
            continue
        condition = group.condition
        frame = pd.DataFrame({name: values[group.rows] for name, values in times.items()})
        frame["round"] = np.asarray(columns["round"])[group.rows]
        frame["start_ns"] = np.asarray(columns["start_ns"])[group.rows]
        collapsed = frame.groupby("round", sort=False).median().reset_index()
        parts.append(
            collapsed.assign(
                placement=str(condition.placement),
                size_bytes=condition.size_bytes,
                scattered=condition.scattered,
                attempt=group.attempt,
                processes=condition.level.processes,
                threads=condition.level.threads,
                devices=condition.level.devices,
                variant=str(condition.variant),
                process=0,
                thread=0,
                device=0,
                repeat=0,
                flags=0,
            )
        )
    if not parts:
        return pd.DataFrame(
            {name: [] for name in (*times, "round", "placement", "size_bytes", "scattered")}
        ).assign(attempt=0, flags=0)
    return pd.concat(parts, ignore_index=True)


def visits_of(columns: Columns, operation: Operation, headline: str) -> Columns:
    """:func:`one_row_a_visit` with all calls of the operation."""
    return one_row_a_visit(columns, operation.calls, headline)


def rate_of(columns: Columns, group: Group) -> Estimate | None:
    """Median over bursts of the cycles a second of all workers together.

    A worker's rate is the number of cycles that it began behind the common
    start over the time that they took; the numbers of cycles in a burst count
    those whose rows were not kept, too. None without a burst.
    """
    names = ("round", "process", "thread", "device", "repeat", "start_ns")
    frame = pd.DataFrame({name: np.asarray(columns[name])[group.running] for name in names})
    frame = frame[frame["repeat"] > 0]
    workers = frame.groupby(["round", "process", "thread", "device"])[["repeat", "start_ns"]]
    first, last = workers.min(), workers.max()
    length_ns = last["start_ns"] - first["start_ns"]
    rates = (last["repeat"] - first["repeat"]) / length_ns.where(length_ns > 0) * 1e9
    by_burst = rates.groupby("round").sum(min_count=1).dropna().to_numpy(np.float64)
    return median(by_burst) if len(by_burst) else None
