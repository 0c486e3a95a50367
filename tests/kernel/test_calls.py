# SPDX-License-Identifier: MIT
"""Events are charged to the call that they happened in, and only in traced cycles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.calls import call_shares, probe_effect, traced_cycles
from vmmprof.operations import RM_ALLOC
from vmmprof.recording.events import SAMPLE, UPDATE

# Ten cycles of 1000 ns alloc and 500 ns free, 10 us apart; the even ones are traced.
STARTS = 1_000_000 + 10_000 * np.arange(10, dtype=np.int64)
WINDOWS = np.stack([STARTS[::2] - 100, STARTS[::2] + 5_000], axis=1)


@pytest.fixture
def samples() -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "placement": pd.Categorical(["compressible"] * 10),
            "size_bytes": 1 << 21,
            "scattered": False,
            "start_ns": STARTS,
            "alloc_ns": 1000.0,
            "free_ns": 500.0,
            "flags": np.zeros(10, np.uint16),
        }
    )
    frame["total_ns"] = np.where(np.arange(10) % 2 == 0, 1650.0, 1500.0)
    return frame


def _updates(offset_ns: int, duration_ns: int, barrier_ns: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": UPDATE,
            "pid": 7,
            "tid": 7,
            "time_ns": STARTS + offset_ns,
            "duration_ns": duration_ns,
            "barrier_ns": barrier_ns,
            "tlb_ns": 100,
        }
    )


def test_traced_cycles(samples: pd.DataFrame) -> None:
    assert traced_cycles(samples, WINDOWS).tolist() == [True, False] * 5
    assert not traced_cycles(samples, np.empty((0, 2), np.int64)).any()


def test_counted_time_is_charged_to_its_call(samples: pd.DataFrame) -> None:
    events = pd.concat([_updates(100, 600, 200), _updates(1200, 250, 100)])
    alloc, free = call_shares(samples, events, WINDOWS, RM_ALLOC, ("alloc", "free"))
    assert (alloc.call, alloc.cycles, alloc.p50_us) == ("NV_ESC_RM_ALLOC", 5, 1.0)
    assert alloc.path.value == pytest.approx(0.6)
    assert alloc.sync.value == pytest.approx(300 / 600)
    assert alloc.seen is None
    assert free.path.value == pytest.approx(0.5)
    assert free.sync.value == pytest.approx(200 / 250)


def test_sampled_time_is_charged_to_its_call(samples: pd.DataFrame) -> None:
    def at(offset_ns: int, phase: Phase, tid: int = 7) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "kind": SAMPLE,
                "pid": 7,
                "tid": tid,
                "time_ns": STARTS + offset_ns,
                "phase": phase.value,
            }
        )

    events = pd.concat(
        [
            at(100, Phase.TLB),
            at(300, Phase.PTE),
            at(700, Phase.OUTSIDE),
            at(400, Phase.USER, tid=8),
            at(1100, Phase.USER),
        ]
    )
    alloc, free = call_shares(samples, events, WINDOWS, RM_ALLOC, ("alloc", "free"), period_ns=250)
    # three samples stand for 750 of 1000 ns
    assert alloc.seen == pytest.approx(0.75)
    assert alloc.path.value == pytest.approx(2 / 3)
    assert alloc.sync.value == pytest.approx(1 / 2)
    assert free.path.value == 0.0
    assert np.isnan(free.sync.value)


def test_no_update_is_a_share_of_zero(samples: pd.DataFrame) -> None:
    events = _updates(100, 600, 200).iloc[:0]
    (alloc,) = call_shares(samples, events, WINDOWS, RM_ALLOC, ("alloc",))
    assert alloc.path.value == 0.0
    assert np.isnan(alloc.sync.value)


def test_flagged_cycles_are_left_out(samples: pd.DataFrame) -> None:
    samples.loc[0, "flags"] = 1
    (alloc,) = call_shares(samples, _updates(100, 600, 200), WINDOWS, RM_ALLOC, ("alloc",))
    assert alloc.cycles == 4


def test_variants_are_conditions_of_their_own(samples: pd.DataFrame) -> None:
    samples["variant"] = pd.Categorical(["", ""] + ["chunks:2M"] * 8)
    shares = call_shares(samples, _updates(100, 600, 200), WINDOWS, RM_ALLOC, ("alloc",))
    found = {(share.placement, share.variant): share.cycles for share in shares}
    assert found == {("compressible", ""): 1, ("compressible", "chunks:2M"): 4}


def test_the_probes_effect(samples: pd.DataFrame) -> None:
    (effect,) = probe_effect(samples, WINDOWS, "total_ns")
    assert effect.placement == "compressible"
    assert effect.ratio == pytest.approx(1.1)
