# SPDX-License-Identifier: MIT
"""What allocations cost others: a victim's latency beside bursts, and alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from vmmprof.analysis.groups import group_samples
from vmmprof.analysis.intervals import Estimate, FloatArray, IntArray, median, p90, p99
from vmmprof.placement import NOBODY, Condition


@dataclass(frozen=True)
class VictimSummary:
    """The victim's operations beside one condition; times in ns.

    ``condition`` with the level NOBODY is the victim alone. ``ratio``: median
    of an operation beside the burst over that alone in the same round, None
    alone. ``p90`` and ``p99`` are None where ``n`` cannot support them.
    """

    condition: Condition
    n: int
    p50: Estimate | None
    p90: Estimate | None
    p99: Estimate | None
    max_ns: float | None
    ratio: Estimate | None
    outside_window: int

    @property
    def is_alone(self) -> bool:
        return self.condition.level == NOBODY


def summarise_victims(victims: pd.DataFrame) -> list[VictimSummary]:
    """Summaries of a recording's victims.parquet: alone first, then by size and condition.

    Attempts of a condition are taken together: no attempt of the victim is
    better than another.
    """
    columns = victims.assign(attempt=1, total_ns=victims["latency_ns"].astype(np.float64))
    groups = group_samples(columns, "total")
    latency = victims["latency_ns"].to_numpy(np.float64)
    rounds = victims["round"].to_numpy(np.int64)
    alone = {
        g.condition.scattered: _by_round(latency[g.rows], rounds[g.rows])
        for g in groups
        if g.condition.level == NOBODY
    }
    summaries = []
    for group in groups:
        values, of_round = latency[group.rows], rounds[group.rows]
        order = np.argsort(of_round, kind="stable")
        values, of_round = values[order], of_round[order]
        n = len(values)
        reference = alone.get(group.condition.scattered)
        if group.condition.level == NOBODY:
            reference = None
        summaries.append(
            VictimSummary(
                condition=group.condition,
                n=n,
                p50=median(values, of_round) if n else None,
                p90=p90(values, of_round),
                p99=p99(values, of_round),
                max_ns=float(values.max()) if n else None,
                ratio=None if reference is None else _ratio(values, of_round, reference),
                outside_window=group.outside_window,
            )
        )
    return sorted(summaries, key=_order)


def _order(summary: VictimSummary) -> tuple[bool, bool, int, str, Condition]:
    condition = summary.condition
    place = "" if condition.placement.is_plain else str(condition.placement)
    return condition.scattered, not summary.is_alone, condition.size_bytes, place, condition


def _by_round(values: FloatArray, rounds: IntArray) -> pd.Series:
    return pd.Series(values).groupby(rounds).median()


def _ratio(values: FloatArray, rounds: IntArray, alone: pd.Series) -> Estimate | None:
    beside = _by_round(values, rounds)
    paired = (beside / alone).dropna()
    return median(paired.to_numpy(np.float64)) if len(paired) else None
