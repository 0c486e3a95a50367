# SPDX-License-Identifier: MIT
"""``vmmprof export``: a recording in another tool's format."""

from __future__ import annotations

import argparse

from vmmprof.errors import ExitCode


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export",
        help="a recording as a trace for ui.perfetto.dev",
        description="Write a recording in another tool's format. Nothing is measured.",
        allow_abbrev=False,
    )
    parser.add_argument("recording", metavar="NAME", help="the recording, NAME or NAME.vmmprof")
    parser.add_argument(
        "--perfetto",
        required=True,
        metavar="OUT",
        help="write a trace of cycles, calls and kernel phases that ui.perfetto.dev opens (JSON)",
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load, write, say how much."""
    from vmmprof.recording.reader import load
    from vmmprof.report.perfetto import export

    recording = load(arguments.recording)
    written = export(recording, arguments.perfetto)
    mark = "MODEL: " if recording.is_model else ""
    print(
        f"{mark}{written.cycles} cycles, {written.calls} calls, {written.updates} kernel updates "
        f"and {written.samples} samples: {arguments.perfetto}"
    )
    return ExitCode.OK
