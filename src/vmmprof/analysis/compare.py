# SPDX-License-Identifier: MIT
"""Is an arm faster than the baseline? Per size and call, with the reason for the verdict.

Arms that share a recording are compared pair by pair. Arms in different
recordings, between which a driver was reloaded, are compared only by their
extra cost over the plain control inside each recording, with the spread
between recordings as the error: that takes at least two recordings an arm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from vmmprof.analysis.arms import Arm, ArmRecording, Cell, all_cells, common_calls
from vmmprof.analysis.intervals import Estimate, FloatArray, median
from vmmprof.analysis.student import two_sided_95
from vmmprof.analysis.update_path import UpdatePaths
from vmmprof.kernel.calls import CallShare
from vmmprof.placement import PLAIN

MIN_RECORDINGS = 2
DEFAULT_MARGIN = 0.05

# What differs between any two runs and says nothing about their conditions.
_VOLATILE = (
    "command", "started", "duration_s", "outcome", "conditions", "placements_asked_for",
    "options", "missing", "remeasured", "not_converged", "plan_notes", "kernel_log",
    "gpu.free_memory_mib", "machine.scheduling.load_average", "machine.clock.monotonic_against",
    "gpu.empty_interval_ns", "gpu.temperature", "gpu.power",
)  # fmt: skip


class Verdict(str, Enum):
    """What can be said of an arm against the baseline."""

    BASELINE = "baseline"
    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True)
class Row:
    """One arm at one size and call.

    ``p50``: of the arm, in ns. ``gain``: time of the baseline over time of the
    arm, above 1 where the arm is faster; None where no comparison is possible.
    ``effect``: the share of comparisons of single samples that the arm wins,
    0.5 for no difference. ``reason`` says on what the verdict rests.
    """

    cell: Cell
    arm: str
    p50: Estimate | None
    gain: Estimate | None
    effect: float | None
    verdict: Verdict
    reason: str
    path: CallShare | None = None
    """What the arm's traced calls spent in the driver's update path; None where not traced."""


@dataclass(frozen=True)
class Difference:
    """A fact on which the recordings differ: its name and each recording's value."""

    fact: str
    values: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """All rows, in order of call, size and arm; what else differs; what to beware of."""

    arms: tuple[str, ...]
    baseline: str
    calls: tuple[str, ...]
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    cautions: tuple[str, ...]
    is_model: bool

    def row(self, arm: str, cell: Cell) -> Row:
        return next(row for row in self.rows if (row.arm, row.cell) == (arm, cell))

    @property
    def traced_calls(self) -> list[str]:
        """Calls of which some arm's recordings show the kernel side."""
        return list(dict.fromkeys(row.cell.call for row in self.rows if row.path is not None))

    def cells(self, call: str) -> list[Cell]:
        """The cells of a call, by size."""
        return list(dict.fromkeys(row.cell for row in self.rows if row.cell.call == call))


def default_baseline(arms: list[Arm]) -> Arm:
    """The first arm with the last arm's placement, or the first arm when that is the last.

    With LD-off, LD-on and three patched LD arms that is LD-on; with two arms the first.
    """
    same = next(arm for arm in arms if arm.placement == arms[-1].placement)
    return arms[0] if same is arms[-1] else same


def compare(arms: list[Arm], baseline: Arm, margin: float = DEFAULT_MARGIN) -> Comparison:
    """Compare every arm with the baseline at every size and call.

    ``margin``: a gain whose whole interval lies within ``1 +- margin`` counts as same.
    """
    calls = common_calls(arms)
    paths = UpdatePaths(arms)
    rows = []
    for call in calls:
        for cell in all_cells(arms, call):
            of_cell = [
                replace(compare_at(arm, baseline, cell, margin), path=paths.at(arm, cell))
                for arm in arms
            ]
            if any(row.p50 is not None for row in of_cell):
                rows += of_cell
    known = {row.cell.call for row in rows}
    return Comparison(
        arms=tuple(arm.name for arm in arms),
        baseline=baseline.name,
        calls=tuple(call for call in calls if call in known),
        rows=tuple(rows),
        differences=tuple(differences(arms)),
        cautions=(*_cautions(arms, baseline), *paths.cautions()),
        is_model=any(arm.is_model for arm in arms),
    )


def compare_at(arm: Arm, baseline: Arm, cell: Cell, margin: float = DEFAULT_MARGIN) -> Row:
    """Compare one arm with the baseline at one size and call."""
    row = Row(cell, arm.name, arm.p50(cell), None, None, Verdict.AMBIGUOUS, "")
    if arm is baseline:
        return replace(row, verdict=Verdict.BASELINE, reason="the others are compared with it")
    if row.p50 is None:
        return replace(row, reason=f"{arm.name} has no samples here")
    if baseline.p50(cell) is None:
        return replace(row, reason=f"{baseline.name} has no samples here")
    shared = _shared_parts(arm, baseline)
    if shared:
        return _judged(_by_pairs(row, shared, baseline, cell), margin)
    return _judged(_by_extra_cost(row, arm, baseline, cell), margin)


def _shared_parts(arm: Arm, baseline: Arm) -> list[ArmRecording]:
    paths = {part.recording.path for part in baseline.parts}
    return [part for part in arm.parts if part.recording.path in paths]


def _by_pairs(row: Row, shared: list[ArmRecording], baseline: Arm, cell: Cell) -> Row:
    """Pairs of one round, pooled over the recordings that hold both arms."""
    found = [part.pairs_with(baseline.placement, cell) for part in shared]
    pairs = [one for one in found if one is not None]
    if not pairs:
        return replace(row, reason="no pairs: the arms have no round in common")
    gains, rounds, wins, first_round = [], [], [], 0
    for one in pairs:
        timed = one.placed_ns > 0
        gains.append(one.control_ns[timed] / one.placed_ns[timed])
        rounds.append(one.rounds[timed] + first_round)
        wins.append(_wins(one.extra_ns))
        first_round += int(one.rounds.max()) + 1
    gain = np.concatenate(gains)
    if not len(gain):
        return replace(row, reason="no time to compare: the call took none")
    return replace(
        row,
        gain=median(gain, np.concatenate(rounds)),
        effect=float(np.mean(np.concatenate(wins))),
        reason=f"{len(gain)} pairs of one round",
    )


def _wins(arm_less_baseline: FloatArray) -> FloatArray:
    wins: FloatArray = (arm_less_baseline < 0) + 0.5 * (arm_less_baseline == 0)
    return wins


def _by_extra_cost(row: Row, arm: Arm, baseline: Arm, cell: Cell) -> Row:
    """Extra cost over the control inside each recording, compared between recordings."""
    if arm.placement.is_plain or baseline.placement.is_plain:
        return replace(
            row, reason="plain is the control of each recording; it is not compared across them"
        )
    arm_extras, base_extras = arm.extras(cell), baseline.extras(cell)
    if not arm_extras or not base_extras:
        return replace(row, reason="no pairs with the plain control")
    modelled = arm.is_model and baseline.is_model
    if not modelled and min(len(arm_extras), len(base_extras)) < MIN_RECORDINGS:
        gain = _gain(arm, baseline, cell, math.nan)
        return replace(row, gain=gain, reason="one recording an arm")
    error = 0.0 if modelled else _error_between(arm_extras, base_extras)
    how = (
        "model: no error between runs"
        if modelled
        else f"extra over plain, {len(base_extras)} against {len(arm_extras)} recordings"
    )
    return replace(
        row,
        gain=_gain(arm, baseline, cell, error),
        effect=_win_share_between(arm, baseline, cell),
        reason=how,
    )


def _error_between(arm: list[Estimate], baseline: list[Estimate]) -> float:
    """Half-width of the 95 % interval of the difference of two means of recordings."""
    groups = [np.array([estimate.value for estimate in side]) for side in (arm, baseline)]
    freedom = sum(len(group) for group in groups) - 2
    pooled = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom
    return two_sided_95(freedom) * math.sqrt(pooled * sum(1 / len(group) for group in groups))


def _gain(arm: Arm, baseline: Arm, cell: Cell, error_ns: float) -> Estimate:
    """Gain with both arms' extra cost set on one and the same control level."""
    arm_extras, base_extras = arm.extras(cell), baseline.extras(cell)
    level = float(np.mean(_control_levels((*arm.parts, *baseline.parts), cell)))
    arm_ns = level + float(np.mean([estimate.value for estimate in arm_extras]))
    saved_ns = float(np.mean([estimate.value for estimate in base_extras])) + level - arm_ns
    n = min(sum(e.n for e in arm_extras), sum(e.n for e in base_extras))
    return Estimate(
        1 + saved_ns / arm_ns,
        1 + (saved_ns - error_ns) / arm_ns,
        1 + (saved_ns + error_ns) / arm_ns,
        n,
    )


def _control_levels(parts: tuple[ArmRecording, ...], cell: Cell) -> list[float]:
    """The control's median in each recording that has pairs there."""
    found = [part.pairs_with(PLAIN, cell) for part in parts]
    return [float(np.median(pairs.control_ns)) for pairs in found if pairs is not None]


def _win_share_between(arm: Arm, baseline: Arm, cell: Cell) -> float:
    """Share of all pairings of an arm's extra cost with a baseline's that the arm wins."""
    arm_ns, base_ns = (np.sort(_all_extras(side, cell)) for side in (arm, baseline))
    below = np.searchsorted(base_ns, arm_ns, side="left")
    up_to = np.searchsorted(base_ns, arm_ns, side="right")
    beaten = (len(base_ns) - up_to) + 0.5 * (up_to - below)
    return float(beaten.mean() / len(base_ns))


def _all_extras(arm: Arm, cell: Cell) -> FloatArray:
    found = [part.pairs_with(PLAIN, cell) for part in arm.parts]
    return np.concatenate([pairs.extra_ns for pairs in found if pairs is not None])


def _judged(row: Row, margin: float) -> Row:
    gain = row.gain
    if gain is None or not gain.has_interval:
        reason = row.reason or "too few samples for an interval"
        if gain is not None and not math.isnan(gain.value) and "recording an arm" not in reason:
            reason = f"too few independent samples for an interval ({reason})"
        return replace(row, verdict=Verdict.AMBIGUOUS, reason=reason)
    percent = f"{100 * margin:g} %"
    if 1 - margin <= gain.lo and gain.hi <= 1 + margin:
        return replace(row, verdict=Verdict.SAME, reason=f"within {percent}; {row.reason}")
    if gain.lo > 1:
        return replace(row, verdict=Verdict.FASTER, reason=row.reason)
    if gain.hi < 1:
        return replace(row, verdict=Verdict.SLOWER, reason=row.reason)
    return replace(
        row,
        verdict=Verdict.AMBIGUOUS,
        reason=f"the interval holds both none and over {percent}; {row.reason}",
    )


def slower_rows(comparison: Comparison, call: str, by_more_than: float) -> list[Row]:
    """Rows of a call with verdict slower and over ``by_more_than`` (0.05 is 5 %) more time."""
    return [
        row
        for row in comparison.rows
        if row.cell.call == call
        and row.verdict is Verdict.SLOWER
        and row.gain is not None
        and 1 / row.gain.value - 1 > by_more_than
    ]


def undecided_rows(comparison: Comparison, call: str, by_more_than: float) -> list[Row]:
    """Ambiguous rows of a call that may well take over ``by_more_than`` more time."""
    return [
        row
        for row in comparison.rows
        if row.cell.call == call
        and row.verdict is Verdict.AMBIGUOUS
        and (row.gain is None or not row.gain.has_interval or 1 / row.gain.lo - 1 > by_more_than)
    ]


def differences(arms: list[Arm]) -> list[Difference]:
    """Facts on which the arms' recordings differ, but for what differs between any two runs."""
    facts = {
        str(part.recording.path): _flat(part.recording.environment)
        for arm in arms
        for part in arm.parts
    }
    names = dict.fromkeys(name for one in facts.values() for name in one)
    found = []
    for name in names:
        values = {path: one.get(name, "not recorded") for path, one in facts.items()}
        if len(set(values.values())) > 1 and not name.startswith(_VOLATILE):
            found.append(Difference(name, values))
    return found


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def _cautions(arms: list[Arm], baseline: Arm) -> list[str]:
    """What the reader must beware of: arms that were not alternated, unfinished recordings."""
    cautions = []
    for arm in arms:
        if arm is baseline or _shared_parts(arm, baseline) or arm.is_model:
            continue
        started = [
            sorted(str(part.recording.environment.get("started", "")) for part in side.parts)
            for side in (arm, baseline)
        ]
        if started[0][-1] < started[1][0] or started[1][-1] < started[0][0]:
            cautions.append(
                f"{arm.name} and {baseline.name} were not alternated: a drift between reloads "
                "looks like a difference; record A B B A"
            )
    for arm in arms:
        for part in arm.parts:
            outcome = part.recording.environment.get("outcome", "complete")
            if outcome != "complete":
                cautions.append(f"{part.recording.path} did not complete: {outcome}")
    return list(dict.fromkeys(cautions))
