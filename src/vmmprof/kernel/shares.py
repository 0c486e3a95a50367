# SPDX-License-Identifier: MIT
"""Shares of sampled time, by call, with intervals. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vmmprof.kernel.attribution import SYNC_PHASES, UPDATE_PHASES, Phase

Counts = npt.NDArray[np.int64]
PHASES = tuple(Phase)
RESAMPLES = 2000
CONFIDENCE = 0.95
_PICKS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Share:
    """A share of 0 .. 1 with its 95 % interval; all NaN when there was nothing to share."""

    value: float
    low: float
    high: float


def count_phases(
    start_ns: npt.NDArray[np.int64],
    end_ns: npt.NDArray[np.int64],
    time_ns: npt.NDArray[np.int64],
    phase: npt.NDArray[np.int64],
) -> Counts:
    """Samples of each phase in each window: (windows, len(PHASES)).

    Windows are ascending and do not overlap; ``phase`` indexes PHASES. Samples
    outside all windows are left out.
    """
    counts = np.zeros((len(start_ns), len(PHASES)), np.int64)
    window = np.searchsorted(start_ns, time_ns, side="right") - 1
    inside = (window >= 0) & (time_ns < end_ns[np.maximum(window, 0)])
    np.add.at(counts, (window[inside], phase[inside]), 1)
    return counts


def share(counts: Counts, part: Iterable[Phase], whole: Iterable[Phase]) -> Share:
    """The part's share of the whole over all windows.

    The interval is a bootstrap over windows: samples of one call hang together,
    calls do not.
    """
    parts = counts[:, [PHASES.index(phase) for phase in part]].sum(axis=1)
    wholes = counts[:, [PHASES.index(phase) for phase in whole]].sum(axis=1)
    return ratio_share(parts.astype(np.float64), wholes.astype(np.float64))


def ratio_share(parts: npt.NDArray[np.float64], wholes: npt.NDArray[np.float64]) -> Share:
    """Sum of the parts as a share of the sum of the wholes, bootstrapped over pairs."""
    if wholes.sum() == 0:
        return Share(np.nan, np.nan, np.nan)
    random = np.random.default_rng(0)
    # As many draws at a time as keep the picks within some 30 MB.
    step = max(1, _PICKS_AT_ONCE // len(parts))
    ratios = np.concatenate(
        [
            _drawn_ratios(random, parts, wholes, min(step, RESAMPLES - first))
            for first in range(0, RESAMPLES, step)
        ]
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(ratios, [tail, 1 - tail])
    return Share(float(parts.sum() / wholes.sum()), float(low), float(high))


def _drawn_ratios(
    random: np.random.Generator,
    parts: npt.NDArray[np.float64],
    wholes: npt.NDArray[np.float64],
    count: int,
) -> npt.NDArray[np.float64]:
    """Ratio of the sums in each of ``count`` draws, NaN where a draw has nothing to share."""
    picks = random.integers(0, len(parts), (count, len(parts)))
    part_sums, whole_sums = parts[picks].sum(axis=1), wholes[picks].sum(axis=1)
    ratios = np.full(count, np.nan)
    np.divide(part_sums, whole_sums, out=ratios, where=whole_sums > 0)
    return ratios


def path_share(counts: Counts) -> Share:
    """The update path's share of all that was sampled in the windows, user space included."""
    return share(counts, UPDATE_PHASES, PHASES)


def sync_share(counts: Counts) -> Share:
    """Barrier and TLB invalidate of the loop as a share of the update path."""
    return share(counts, SYNC_PHASES, UPDATE_PHASES)
