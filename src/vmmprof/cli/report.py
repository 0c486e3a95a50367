# SPDX-License-Identifier: MIT
"""``vmmprof report``: show a recording again, as table, JSON or pictures."""

from __future__ import annotations

import argparse

from vmmprof.cli import show
from vmmprof.errors import ExitCode


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="show a recording again, as table, JSON or pictures",
        description="Show what a recording holds. Nothing is measured.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="NAME", help="the recording, NAME or NAME.vmmprof")
    show.add_arguments(parser)
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load, show, draw."""
    show.show(arguments.recording, arguments)
    return ExitCode.OK
