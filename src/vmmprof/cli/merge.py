# SPDX-License-Identifier: MIT
"""``vmmprof merge``: recordings of many hosts as one data set."""

from __future__ import annotations

import argparse
import sys

from vmmprof.errors import ExitCode


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "merge",
        help="recordings of many hosts as one data set",
        description="Write several recordings as one, and say how far each is off the others. "
        "Pairs stay within their recording. Nothing is measured.",
        allow_abbrev=False,
    )
    parser.add_argument("output", metavar="OUTPUT", help="the recording to write")
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="what to merge")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load, write, say where each stands."""
    from vmmprof.analysis.merge import deviations, rows_to_merge
    from vmmprof.recording.merged import check_alike, write_merged
    from vmmprof.recording.reader import load
    from vmmprof.recording.schema import EVENTS_FILE
    from vmmprof.recording.writer import recording_path
    from vmmprof.report.fleet import print_fleet

    recordings = [load(name) for name in arguments.recordings]
    check_alike(recordings)
    output = recording_path(arguments.output)
    kept = [rows_to_merge(recording) for recording in recordings]
    write_merged(output, recordings, kept, ["vmmprof", *sys.argv[1:]])
    traced = sum((recording.path / EVENTS_FILE).is_file() for recording in recordings)
    if traced:
        print(
            f"vmmprof merge: kernel events stay behind: {traced} of the {len(recordings)} "
            "recordings were traced, read those one by one",
            file=sys.stderr,
        )
    print_fleet(recordings, [int(mask.sum()) for mask in kept], deviations(recordings))
    print(f"recording: {output}")
    return ExitCode.OK
