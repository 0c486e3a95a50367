# SPDX-License-Identifier: MIT
"""``vmmprof compare``: is one arm faster than another, and how sure is that."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from vmmprof.cli.arguments import percentage_of
from vmmprof.cli.arms import HELP, load_arms
from vmmprof.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from vmmprof.analysis.arms import Arm
    from vmmprof.analysis.compare import Comparison

_DESCRIPTION = """\
Compare arms call by call and size by size. Arms in one recording are compared
pair by pair. Arms in different recordings (a driver was reloaded between them)
are compared by their extra cost over plain inside each recording, which takes
at least two recordings an arm, best alternated: A B B A. Nothing is measured.
"""
_EPILOG = """\
example: LD off and on from one recording, patched drivers from others
  vmmprof compare off=stock:device on=stock:domain:0 b=b:domain:0 ab=ab:domain:0
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="is one arm faster than another, and how sure is that",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("arms", nargs="+", metavar="ARM=RECORDING[:PLACEMENT]", help=HELP)
    parser.add_argument(
        "--baseline",
        metavar="ARM",
        help="arm that the others are compared with (default: the first arm that has the last "
        "arm's placement; of two arms the first)",
    )
    parser.add_argument(
        "--calls", action="store_true", help="show every call, not only the recording's headline"
    )
    parser.add_argument(
        "--margin",
        type=percentage_of("--margin"),
        default=0.05,
        metavar="P%",
        help="a gain whose interval lies within P%% of none counts as same (default 5%%)",
    )
    parser.add_argument(
        "--fail-if-slower",
        type=percentage_of("--fail-if-slower"),
        metavar="P%",
        help="exit 1 when the headline of an arm takes more than P%% longer than the baseline's",
    )
    parser.add_argument(
        "--allow-model", action="store_true", help="compare modelled with measured times, too"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--format",
        choices=("text", "markdown", "csv", "json"),
        default="text",
        help="how to print it (default text)",
    )
    output.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as --format json"
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Compare, print, judge."""
    from vmmprof.analysis.compare import compare

    arms = load_arms(arguments.arms)
    baseline = _baseline(arms, arguments.baseline)
    _check_models(arms, arguments.allow_model)
    comparison = compare(arms, baseline, arguments.margin)
    headline = _headline(arms, comparison)
    calls = list(comparison.calls) if arguments.calls else [headline]
    _show(comparison, calls, arguments.format)
    return _gate(comparison, headline, arguments.fail_if_slower)


def _gate(comparison: Comparison, headline: str, limit: float | None) -> ExitCode:
    """What --fail-if-slower says; it does not pass for want of samples."""
    from vmmprof.analysis.compare import slower_rows, undecided_rows

    if limit is None:
        return ExitCode.OK
    if slower_rows(comparison, headline, limit):
        return ExitCode.FAILED
    undecided = undecided_rows(comparison, headline, limit)
    if undecided:
        print(
            f"vmmprof compare: {len(undecided)} ambiguous comparisons leave open whether "
            f"--fail-if-slower {limit:.3g} is met; more repeats or recordings would tell",
            file=sys.stderr,
        )
        return ExitCode.PARTIAL
    return ExitCode.OK


def _baseline(arms: list[Arm], name: str | None) -> Arm:
    from vmmprof.analysis.compare import default_baseline

    if len(arms) < 2:
        raise UsageError("a comparison takes at least two arms, such as old=a new=b")
    if name is None:
        return default_baseline(arms)
    for arm in arms:
        if arm.name == name:
            return arm
    names = ", ".join(arm.name for arm in arms)
    raise UsageError(f"--baseline {name!r} is none of the arms; they are {names}")


def _check_models(arms: list[Arm], allowed: bool) -> None:
    kinds = {part.recording.is_model for arm in arms for part in arm.parts}
    if len(kinds) > 1 and not allowed:
        models = ", ".join(
            str(part.recording.path)
            for arm in arms
            for part in arm.parts
            if part.recording.is_model
        )
        raise UsageError(
            f"{models} is modelled and other arms are measured; --allow-model compares them"
        )


def _headline(arms: list[Arm], comparison: Comparison) -> str:
    """The headline that all recordings share, else the total, else the first call known."""
    headlines = {part.recording.headline for arm in arms for part in arm.parts}
    shared = headlines.pop() if len(headlines) == 1 else "total"
    if not comparison.calls:
        raise UsageError("the arms have no usable samples to compare")
    return shared if shared in comparison.calls else comparison.calls[0]


def _show(comparison: Comparison, calls: list[str], form: str) -> None:
    from vmmprof.report import comparison as shown

    if form == "json":
        print(shown.dumps(comparison))
    elif form == "csv":
        print(shown.csv_text(comparison), end="")
    elif form == "markdown":
        print(shown.markdown(comparison, calls))
    else:
        shown.print_text(comparison, calls)
