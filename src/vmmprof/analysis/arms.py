# SPDX-License-Identifier: MIT
"""Arms of a comparison: a name for one placement in one or several recordings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vmmprof.analysis.bursts import visits_of
from vmmprof.analysis.groups import (
    Group,
    group_samples,
    headline_attempts,
    round_numbers,
    times_ns,
)
from vmmprof.analysis.intervals import Estimate, FloatArray, IntArray, median
from vmmprof.analysis.pairs import Pairs, pair
from vmmprof.placement import ALONE, PLAIN, Condition, Level, Placement
from vmmprof.recording.reader import Recording
from vmmprof.variant import STANDARD, Variant

# A time of the cycle that every operation has beside its calls.
TOTAL = "total"


@dataclass(frozen=True)
class Cell:
    """What is compared: a call (or ``total``) at one size, card state and level."""

    size_bytes: int
    call: str
    scattered: bool = False
    level: Level = ALONE
    variant: Variant = STANDARD

    def condition(self, placement: Placement) -> Condition:
        return Condition(placement, self.size_bytes, self.scattered, self.level, self.variant)


class ArmRecording:
    """One recording of an arm: the groups of its placement and of the control, by condition.

    Only each condition's headline attempt takes part, and pairs only samples
    of one attempt. A burst of several workers counts as one sample.
    """

    def __init__(self, recording: Recording, placement: Placement) -> None:
        self.recording = recording
        self.placement = placement
        self.visits = visits_of(recording.columns, recording.operation, recording.headline)
        self._groups = group_samples(self.visits, recording.headline)
        self._chosen = headline_attempts(self._groups)

    def group(self, condition: Condition, attempt: int | None = None) -> Group | None:
        """The condition's headline group, or that of an attempt; None without usable samples."""
        wanted = self._chosen.get(condition) if attempt is None else attempt
        for group in self._groups:
            if group.condition == condition and group.attempt == wanted and len(group.rows):
                return group
        return None

    def times(self, cell: Cell) -> tuple[FloatArray, IntArray]:
        """Times of the arm's own samples in ns and their rounds; empty without any."""
        group = self.group(cell.condition(self.placement))
        if group is None:
            return np.empty(0), np.empty(0, dtype=np.int64)
        times = times_ns(self.visits, cell.call)[group.rows]
        known = ~np.isnan(times)
        rounds = round_numbers(self.visits)[group.rows]
        return times[known], rounds[known]

    def pairs_with(self, other: Placement, cell: Cell) -> Pairs | None:
        """Pairs of this arm's samples with those of another placement in this recording."""
        return self._pairs(cell, cell.condition(other))

    def pairs_with_level(self, other: Level, cell: Cell) -> Pairs | None:
        """Pairs of the arm's samples with its own of another level of the same rounds."""
        return self._pairs(cell, replace(cell, level=other).condition(self.placement))

    def _pairs(self, cell: Cell, other: Condition) -> Pairs | None:
        group = self.group(cell.condition(self.placement))
        if group is None:
            return None
        against = self.group(other, group.attempt)
        if against is None:
            return None
        pairs = pair(self.visits, group, against, cell.call)
        return pairs if len(pairs.rounds) else None

    def cells(self, call: str) -> set[Cell]:
        """Where the arm's placement has samples."""
        return {
            Cell(c.size_bytes, call, c.scattered, c.level, c.variant)
            for c in (group.condition for group in self._groups if len(group.rows))
            if c.placement == self.placement
        }


@dataclass(frozen=True)
class Arm:
    """A named arm; its recordings all hold the same placement."""

    name: str
    placement: Placement
    parts: tuple[ArmRecording, ...]

    @property
    def is_model(self) -> bool:
        return any(part.recording.is_model for part in self.parts)

    def p50(self, cell: Cell) -> Estimate | None:
        """Median over the samples of all of the arm's recordings, in ns."""
        parts = [part.times(cell) for part in self.parts]
        parts = [(times, rounds) for times, rounds in parts if len(times)]
        if not parts:
            return None
        first_round = 0
        all_rounds = []
        for _, rounds in parts:
            all_rounds.append(rounds + first_round)
            first_round += int(rounds.max()) + 1
        return median(np.concatenate([times for times, _ in parts]), np.concatenate(all_rounds))

    def pairs(self, cell: Cell) -> Pairs | None:
        """Pairs with plain of all of the arm's recordings, rounds numbered through."""
        return _joined([part.pairs_with(PLAIN, cell) for part in self.parts])

    def pairs_with_level(self, other: Level, cell: Cell) -> Pairs | None:
        """Pairs with the arm's own samples of another level, rounds numbered through."""
        return _joined([part.pairs_with_level(other, cell) for part in self.parts])

    def extras(self, cell: Cell) -> list[Estimate]:
        """Extra cost over plain in ns, one estimate a recording that has pairs."""
        pairs = [part.pairs_with(PLAIN, cell) for part in self.parts]
        estimates = [one.extra() for one in pairs if one is not None]
        return [estimate for estimate in estimates if estimate is not None]


def _joined(found: list[Pairs | None]) -> Pairs | None:
    parts = [one for one in found if one is not None]
    if not parts:
        return None
    ends = np.cumsum([0, *(int(one.rounds.max()) + 1 for one in parts)])
    return Pairs(
        np.concatenate([one.rounds + end for one, end in zip(parts, ends, strict=False)]),
        np.concatenate([one.placed_ns for one in parts]),
        np.concatenate([one.control_ns for one in parts]),
    )


def common_calls(arms: list[Arm]) -> list[str]:
    """Calls that every arm's operation has, and ``total``; the first arm's headline first."""
    recordings = [part.recording for arm in arms for part in arm.parts]
    calls = [
        call
        for call in recordings[0].operation.calls
        if all(call in recording.operation.calls for recording in recordings)
    ]
    headline = recordings[0].headline
    return sorted([*calls, TOTAL], key=lambda call: call != headline)


def all_cells(arms: list[Arm], call: str) -> list[Cell]:
    """Where any arm has samples: unscattered first, then by level, variant and size."""
    cells: set[Cell] = set().union(*(part.cells(call) for arm in arms for part in arm.parts))
    return sorted(cells, key=lambda c: (c.scattered, c.level, c.variant, c.size_bytes))
