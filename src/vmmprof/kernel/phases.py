# SPDX-License-Identifier: MIT
"""What a trace says in sum: by direction and size, with intervals. Pure functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vmmprof.kernel.attribution import SYNC_PHASES, UPDATE_PHASES, Phase
from vmmprof.kernel.calls import UNKNOWN
from vmmprof.kernel.shares import PHASES, Share, count_phases, ratio_share, share
from vmmprof.recording.events import SAMPLE, UPDATE

# The functions of the driver in which cuMemCreate and cuMemRelease do their kernel work.
CREATE_FUNCTION = "vidmemConstruct_IMPL"
RELEASE_FUNCTION = "vidmemDestruct_IMPL"
# Samples hang together within a call; pieces of time this long hold several calls.
BLOCK_NS = 50_000_000


@dataclass(frozen=True)
class UpdateGroup:
    """All counted update calls of one direction and size. Times are corrected."""

    direction: str
    bytes: int
    calls: int
    iterations: float
    """Mean a call; also runs, barriers, invalidates."""
    runs: float
    barriers: float
    invalidates: float
    us_per_call: float
    us_per_iteration: float
    pte: Share
    """Share of the call's time; also barrier, tlb and sync, which is both."""
    barrier: Share
    tlb: Share
    sync: Share
    failed: int
    """Calls that returned an error."""


def update_groups(events: pd.DataFrame) -> list[UpdateGroup]:
    """Counted calls by direction and size, commits before releases, small before large."""
    updates = events[events["kind"] == UPDATE]
    directions = updates["direction"].astype("object").fillna(UNKNOWN)
    groups = []
    for direction in sorted(directions.unique()):
        of_direction = updates[directions == direction]
        for size_bytes in sorted(of_direction["bytes"].unique()):
            of_size = of_direction[of_direction["bytes"] == size_bytes]
            groups.append(_group(direction, int(size_bytes), of_size))
    return groups


def _group(direction: str, size_bytes: int, frame: pd.DataFrame) -> UpdateGroup:
    whole = np.asarray(frame["duration_ns"], np.float64)

    def of_whole(part: pd.Series[float]) -> Share:
        return ratio_share(np.asarray(part, np.float64), whole)

    return UpdateGroup(
        direction,
        size_bytes,
        len(frame),
        frame["iterations"].mean(),
        frame["runs"].mean(),
        frame["barriers"].mean(),
        frame["invalidates"].mean(),
        whole.mean() / 1e3,
        whole.sum() / 1e3 / max(1, frame["iterations"].sum()),
        of_whole(frame["pte_ns"]),
        of_whole(frame["barrier_ns"]),
        of_whole(frame["tlb_ns"]),
        of_whole(frame["barrier_ns"] + frame["tlb_ns"]),
        int((frame["status"] != 0).sum()),
    )


def iteration_histogram(events: pd.DataFrame) -> dict[int, int]:
    """Update calls by iterations: the key is the power of two that begins the bin."""
    iterations = events.loc[events["kind"] == UPDATE, "iterations"].dropna()
    bins = Counter(1 << (int(n).bit_length() - 1) if n > 0 else 0 for n in iterations)
    return dict(sorted(bins.items()))


@dataclass(frozen=True)
class SampledGroup:
    """Samples of one kernel side of a call: how much of it is the update path, and its phases."""

    name: str
    samples: int
    path: Share
    """The update path's share of these samples."""
    phases: dict[Phase, int]
    sync: Share
    """Barrier and TLB invalidate as a share of the update path."""


def sampled_groups(events: pd.DataFrame) -> list[SampledGroup]:
    """All samples, and those under the kernel side of create and of release."""
    samples = events[events["kind"] == SAMPLE].sort_values("time_ns")
    stacks = samples["stack"].astype("object").fillna("")
    groups = [("all samples", samples)]
    for label, function in (("create", CREATE_FUNCTION), ("release", RELEASE_FUNCTION)):
        groups.append((label, samples[stacks.str.contains(function, regex=False)]))
    return [_sampled(name, frame) for name, frame in groups]


def _sampled(name: str, frame: pd.DataFrame) -> SampledGroup:
    time_ns = np.asarray(frame["time_ns"], np.int64)
    numbers = {phase.value: index for index, phase in enumerate(PHASES)}
    phase = np.asarray(frame["phase"].astype("object").map(numbers), np.int64)
    begin = time_ns[0] if len(time_ns) else 0
    end = time_ns[-1] + 1 if len(time_ns) else 0
    starts = np.arange(begin, end, BLOCK_NS, dtype=np.int64)
    counts = count_phases(starts, starts + BLOCK_NS, time_ns, phase)
    return SampledGroup(
        name,
        len(frame),
        share(counts, UPDATE_PHASES, PHASES),
        {p: int(n) for p, n in zip(PHASES, counts.sum(axis=0), strict=True)},
        share(counts, SYNC_PHASES, UPDATE_PHASES),
    )


def folded_stacks(events: pd.DataFrame) -> dict[str, int]:
    """Sampled stacks, outermost function first and joined by ';', with their samples."""
    samples = events[events["kind"] == SAMPLE]
    return {
        str(stack): int(n) for stack, n in samples["stack"].astype("object").value_counts().items()
    }
