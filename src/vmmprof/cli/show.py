# SPDX-License-Identifier: MIT
"""Show a recording the way the user asked for: table, JSON, pictures. Shared by commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vmmprof.errors import UsageError

if TYPE_CHECKING:
    from vmmprof.recording.reader import Recording


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """The arguments that say how a recording is shown."""
    parser.add_argument("--calls", action="store_true", help="show the P50 of every call, too")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--plot",
        metavar="DIR",
        help="draw into DIR: ratio over size, per-call breakdown, ECDF, scaling",
    )


def require_plot_directory(arguments: argparse.Namespace, recording: Path) -> None:
    """UsageError when --plot names a folder that cannot be made; before anything is measured."""
    if arguments.plot is None:
        return
    directory = Path(arguments.plot)
    if recording == directory or recording in directory.parents:
        return  # inside the recording, which is made and checked on its own
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--plot {directory} cannot be made: {error.strerror}; name another folder"
        ) from None


def show(name: str, arguments: argparse.Namespace, *, table: bool = True) -> None:
    """Print the recording called ``name`` and draw it where that is asked for.

    ``table=False`` leaves out what is printed for people; JSON stays.
    """
    from vmmprof.recording.reader import load

    recording = load(name)
    lines = [] if arguments.plot is None else _draw(recording, arguments.plot)
    if arguments.json:
        from vmmprof.report.json import dumps

        print(dumps(recording))
    if arguments.json or not table:
        return
    from vmmprof.report.terminal import print_recording
    from vmmprof.report.trace import print_traced_recording

    print_recording(recording, calls=arguments.calls)
    print_traced_recording(recording)
    for line in lines:
        print(line)


def _draw(recording: Recording, directory: str) -> list[str]:
    """Draw, and a line for every picture: where it is, or why it is not."""
    from vmmprof.report.figures import WHY_NOT_DRAWN, draw_all

    drawn = {picture.name: picture for picture in draw_all(recording, directory)}
    return [
        f"picture: {drawn[name]}" if name in drawn else f"not drawn: {name}: {why}"
        for name, why in WHY_NOT_DRAWN.items()
    ]
