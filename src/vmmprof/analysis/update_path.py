# SPDX-License-Identifier: MIT
"""What the calls of arms spent in the driver's update path, where their recordings were traced."""

from __future__ import annotations

from vmmprof.analysis.arms import Arm, ArmRecording, Cell
from vmmprof.analysis.groups import placement_of
from vmmprof.kernel.calls import CallShare, TracedCalls, call_share
from vmmprof.kernel.recorded import TracedRecording, load_traced
from vmmprof.placement import ALONE


class UpdatePaths:
    """The traced calls of all arms; each recording's events are read once."""

    def __init__(self, arms: list[Arm]) -> None:
        recordings = {part.recording.path: part.recording for arm in arms for part in arm.parts}
        found = {path: load_traced(recording) for path, recording in recordings.items()}
        self._traced = {path: traced for path, traced in found.items() if traced is not None}
        self._arms = arms

    def at(self, arm: Arm, cell: Cell) -> CallShare | None:
        """An arm's call over all its recordings of one method; None where none was traced."""
        calls = [
            one for traced in self._pooled(arm) for one in traced.calls if _is_at(one, arm, cell)
        ]
        return call_share(calls) if calls else None

    def _pooled(self, arm: Arm) -> list[TracedRecording]:
        """Recordings that can be taken together: the counted ones, else those of one period."""
        traced = [self._traced[p.recording.path] for p in arm.parts if self._is_traced(p)]
        if not traced:
            return []
        periods = [one.facts.get("period_ns") for one in traced]
        chosen = None if None in periods else periods[0]
        return [one for one, period in zip(traced, periods, strict=True) if period == chosen]

    def _is_traced(self, part: ArmRecording) -> bool:
        return part.recording.path in self._traced

    def cautions(self) -> list[str]:
        """What the reader of counts and shares must beware of."""
        lines = []
        for path, traced in self._traced.items():
            if traced.losses:
                lines.append(f"{path} lost kernel events: its counts are lower bounds")
            if traced.facts.get("driver_reloaded"):
                lines.append(f"{path}: the driver was reloaded while it was traced")
        for arm in self._arms:
            traced_parts = sum(self._is_traced(part) for part in arm.parts)
            if 0 < len(self._pooled(arm)) < traced_parts:
                lines.append(
                    f"{arm.name} was traced by several methods: its update path is that of "
                    f"{len(self._pooled(arm))} of {traced_parts} recordings"
                )
        return lines


def _is_at(calls: TracedCalls, arm: Arm, cell: Cell) -> bool:
    return (
        calls.name == cell.call
        and placement_of(calls.placement) == arm.placement
        and calls.variant == str(cell.variant)
        and calls.size_bytes == cell.size_bytes
        and calls.scattered == cell.scattered
        and cell.level == ALONE
    )
