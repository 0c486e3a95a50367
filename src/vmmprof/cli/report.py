# SPDX-License-Identifier: MIT
"""``vmmprof report``: show a recording again, as table, JSON, pictures or page."""

from __future__ import annotations

import argparse

from vmmprof.cli import show
from vmmprof.errors import ExitCode


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="show a recording again, as table, JSON, pictures or page",
        description="Show what a recording holds. Nothing is measured.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="NAME", help="the recording, NAME or NAME.vmmprof")
    show.add_arguments(parser)
    parser.add_argument(
        "--html",
        metavar="OUT",
        help="write one self-contained page with interactive charts; it needs no network",
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load, show, draw."""
    show.show(arguments.recording, arguments, table=arguments.html is None)
    if arguments.html is not None:
        from vmmprof.recording.reader import load
        from vmmprof.report.html import write_html

        written = write_html(load(arguments.recording), arguments.html)
        if not arguments.json:
            print(f"page: {written}")
    return ExitCode.OK
