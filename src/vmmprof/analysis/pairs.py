# SPDX-License-Identifier: MIT
"""Pairs of one round: a placement's sample against the plain control's beside it.

Both samples of a pair were taken in the same round on the same device and
thread, at the same size and card state, in the same attempt. What drifts
between rounds is in both and cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmmprof.analysis.groups import Columns, Group, round_numbers, times_ns
from vmmprof.analysis.intervals import Estimate, FloatArray, IntArray, median


@dataclass(frozen=True)
class Pairs:
    """Times of pairs in round order, shape (pairs,) each, in ns."""

    rounds: IntArray
    placed_ns: FloatArray
    control_ns: FloatArray

    @property
    def extra_ns(self) -> FloatArray:
        return self.placed_ns - self.control_ns

    def extra(self) -> Estimate | None:
        """Median of the differences in ns; None without a pair."""
        return median(self.extra_ns, self.rounds) if len(self.rounds) else None

    def ratio(self) -> Estimate | None:
        """Median of the ratios; None without a pair that has one.

        Pairs whose control took no time at all (a modelled call may not) have none.
        """
        some = self.control_ns > 0
        if not some.any():
            return None
        return median(self.placed_ns[some] / self.control_ns[some], self.rounds[some])


def _visit_keys(columns: Columns, rows: IntArray) -> IntArray:
    """One integer a row, equal for rows of the same round, device, thread and visit number.

    The visit number tells apart several visits of a condition in one round.
    """
    rounds = round_numbers(columns)[rows].astype(np.int64)
    devices = np.asarray(columns["device"])[rows].astype(np.int64)
    threads = np.asarray(columns["thread"])[rows].astype(np.int64)
    keys = (rounds << 32) | (devices << 24) | (threads << 8)
    if (keys[1:] > keys[:-1]).all():
        return keys
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(ordered)])
    visit = np.arange(len(ordered)) - np.repeat(starts, lengths)
    keys[order] = ordered + visit
    return keys


def pair_rows(columns: Columns, placed: Group, control: Group) -> tuple[IntArray, IntArray]:
    """Row numbers of the placed and of the control sample of each pair, by round."""
    if not len(placed.rows) or not len(control.rows):
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    placed_keys = _visit_keys(columns, placed.rows)
    control_keys = _visit_keys(columns, control.rows)
    if np.array_equal(placed_keys, control_keys):
        return placed.rows, control.rows
    _, placed_at, control_at = np.intersect1d(
        placed_keys, control_keys, assume_unique=True, return_indices=True
    )
    return placed.rows[placed_at], control.rows[control_at]


def pair(columns: Columns, placed: Group, control: Group, call: str) -> Pairs:
    """Pairs of one call's times (or of ``total``); pairs with a missing time are left out."""
    placed_rows, control_rows = pair_rows(columns, placed, control)
    times = times_ns(columns, call)
    placed_ns, control_ns = times[placed_rows], times[control_rows]
    known = ~(np.isnan(placed_ns) | np.isnan(control_ns))
    rounds = round_numbers(columns)[placed_rows]
    return Pairs(rounds[known], placed_ns[known], control_ns[known])
