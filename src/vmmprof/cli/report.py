# SPDX-License-Identifier: MIT
"""``vmmprof report``: show a recording again, as table, JSON or pictures."""

from __future__ import annotations

import argparse

from vmmprof.errors import ExitCode


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="show a recording again, as table, JSON or pictures",
        description="Show what a recording holds. Nothing is measured.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="NAME", help="the recording, NAME or NAME.vmmprof")
    parser.add_argument("--calls", action="store_true", help="show the P50 of every call, too")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--plot",
        metavar="DIR",
        help="write pictures to DIR: ratio over size, per-call breakdown, ECDF",
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load, show, draw."""
    from vmmprof.recording.reader import load

    recording = load(arguments.recording)
    if arguments.plot is not None:
        from vmmprof.report.figures import draw_all

        drawn = draw_all(recording, arguments.plot)
    if arguments.json:
        from vmmprof.report.json import dumps

        print(dumps(recording))
    else:
        from vmmprof.report.terminal import print_recording

        print_recording(recording, calls=arguments.calls)
        if arguments.plot is not None:
            for path in drawn:
                print(f"picture: {path}")
    return ExitCode.OK
