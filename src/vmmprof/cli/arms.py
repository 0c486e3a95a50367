# SPDX-License-Identifier: MIT
"""Arms on the command line: ``ARM=RECORDING[:PLACEMENT]``, one for each recording of an arm.

Without a placement it is the recording's only one beside plain, or plain
where there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vmmprof.errors import UsageError

if TYPE_CHECKING:
    from vmmprof.analysis.arms import Arm
    from vmmprof.placement import Placement
    from vmmprof.recording.reader import Recording

HELP = "an arm: its name, a recording and the placement in it; repeat the name for more recordings"


def load_arms(texts: Sequence[str]) -> list[Arm]:
    """Arms in order of first mention, each recording loaded once."""
    from vmmprof.analysis.arms import Arm, ArmRecording
    from vmmprof.recording.reader import load

    loaded: dict[str, Recording] = {}
    parts: dict[str, list[ArmRecording]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name or not rest:
            raise UsageError(f"arm {text!r} is not ARM=RECORDING[:PLACEMENT]")
        path, placement_text = _split(rest)
        if path not in loaded:
            loaded[path] = load(path)
        placement = _placement(loaded[path], placement_text)
        parts.setdefault(name, []).append(ArmRecording(loaded[path], placement))
    arms = []
    for name, of_arm in parts.items():
        placements = {part.placement for part in of_arm}
        if len(placements) > 1:
            raise UsageError(
                f"arm {name!r} mixes placements {', '.join(sorted(map(str, placements)))}; "
                "give each its own arm"
            )
        arms.append(Arm(name, of_arm[0].placement, tuple(of_arm)))
    check_operations(arms)
    return arms


def _split(text: str) -> tuple[str, str | None]:
    """Recording and placement; both may hold colons, so the recording is what exists."""
    from vmmprof.recording.readable import is_folder
    from vmmprof.recording.writer import recording_path

    whole = [(text, None)]
    parted = [
        (text[:at], text[at + 1 :]) for at, character in enumerate(text) if character == ":" and at
    ]
    for path, placement in (*whole, *parted):
        if is_folder(recording_path(path)):
            return path, placement
    return (parted[0][0], parted[0][1]) if parted else (text, None)


def _placement(recording: Recording, text: str | None) -> Placement:
    from vmmprof.analysis.groups import placement_of, placements_in
    from vmmprof.placement import PLAIN

    present = placements_in(recording.columns)
    if not present:
        raise UsageError(f"{recording.path} has no samples; name another recording")
    if text is not None:
        placement = placement_of(text)
        if placement not in present:
            raise UsageError(f"{recording.path} has no placement {text!r}; it has {_list(present)}")
        return placement
    others = present - {PLAIN}
    if len(others) > 1:
        raise UsageError(
            f"{recording.path} has several placements; name one as {recording.path}:PLACEMENT "
            f"({_list(present)})"
        )
    return others.pop() if others else PLAIN


def _list(placements: Iterable[Placement]) -> str:
    return ", ".join(sorted(map(str, placements)))


def check_operations(arms: Sequence[Arm]) -> None:
    """UsageError when the arms' recordings time different operations."""
    operations = {
        part.recording.operation.name: part.recording.path for arm in arms for part in arm.parts
    }
    if len(operations) > 1:
        what = ", ".join(f"{path} times {name}" for name, path in operations.items())
        raise UsageError(f"the recordings time different operations and do not compare: {what}")
