# SPDX-License-Identifier: MIT
"""Shares count what lies in the windows, and their intervals know that calls hang together."""

from __future__ import annotations

import numpy as np
import pytest

from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.shares import PHASES, count_phases, path_share, ratio_share, sync_share


def _phases(*phases: Phase) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([PHASES.index(phase) for phase in phases], np.int64)


def test_samples_outside_the_windows_are_left_out() -> None:
    counts = count_phases(
        np.array([100, 200]),
        np.array([150, 260]),
        np.array([99, 100, 149, 150, 199, 200, 259, 260]),
        _phases(*[Phase.TLB] * 8),
    )
    assert counts[:, PHASES.index(Phase.TLB)].tolist() == [2, 2]
    assert counts.sum() == 4


def test_shares() -> None:
    counts = np.zeros((4, len(PHASES)), np.int64)
    counts[:, PHASES.index(Phase.USER)] = 5
    counts[:, PHASES.index(Phase.BARRIER)] = 6
    counts[:, PHASES.index(Phase.TLB)] = 6
    counts[:, PHASES.index(Phase.PAGE_FLUSH)] = 1
    counts[:, PHASES.index(Phase.PTE)] = 2
    assert path_share(counts).value == pytest.approx(15 / 20)
    assert sync_share(counts).value == pytest.approx(12 / 15)
    assert sync_share(counts).low == sync_share(counts).high == pytest.approx(12 / 15)


def test_nothing_to_share_is_no_zero() -> None:
    counts = np.zeros((3, len(PHASES)), np.int64)
    counts[:, PHASES.index(Phase.OUTSIDE)] = 4
    assert path_share(counts).value == 0.0
    assert np.isnan(sync_share(counts).value)


def test_intervals_widen_when_calls_differ() -> None:
    alike = ratio_share(np.full(40, 5.0), np.full(40, 10.0))
    differing = ratio_share(np.tile([0.0, 10.0], 20), np.full(40, 10.0))
    assert alike.value == differing.value == 0.5
    assert alike.high - alike.low < 1e-9
    assert 0.1 < differing.high - differing.low < 0.5
