# SPDX-License-Identifier: MIT
"""``vmmprof amortise``: how many uses repay an allocation's extra cost."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vmmprof.cli.arms import load_arms
from vmmprof.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from vmmprof.analysis.amortise import ExtraCost, Saving

PAPER = "paper"

_DESCRIPTION = """\
How many uses of a placement repay what its allocation costs extra over plain.
The extra cost comes from recordings, arms side by side (stock and patched
driver), or from the paper's table 6 with the word paper as an arm. Nothing is
measured.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "amortise",
        help="how many uses repay an allocation's extra cost",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "arms",
        nargs="+",
        metavar="[ARM=]RECORDING[:PLACEMENT]",
        help="where the extra cost is taken from; an arm without a name is called extra",
    )
    parser.add_argument(
        "--saves",
        action="append",
        default=[],
        type=saving_ns,
        metavar="TIME",
        help="what one use saves, such as 193.4ns or 7.18us; repeatable",
    )
    parser.add_argument(
        "--saves-from",
        metavar="FILE",
        help="take savings from recorded primitives, a CSV with the columns metric, working_set, "
        "same_die, cross_die, unit (the word paper: the paper's table 4)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(handler=run)


def saving_ns(text: str) -> float:
    """``193.4ns`` or ``7.18us`` in ns; may be negative, then nothing repays."""
    from vmmprof.analysis.amortise import NS_OF_UNIT

    match = re.fullmatch(r"(-?\d{1,18}(?:\.\d+)?)(ns|us|ms|s)", text)
    if match is None:
        raise UsageError(f"--saves {text!r} is not a time such as 193.4ns or 7.18us")
    return float(match[1]) * NS_OF_UNIT[match[2]]


def run(arguments: argparse.Namespace) -> ExitCode:
    """Divide, print."""
    from vmmprof.analysis.amortise import Saving, repayment
    from vmmprof.report import amortisation

    savings = [Saving("as given", ns) for ns in arguments.saves]
    if arguments.saves_from is not None:
        savings += _recorded_savings(arguments.saves_from)
    if not savings:
        raise UsageError("say what one use saves: --saves 193.4ns, or --saves-from FILE")
    costs, is_model = _costs(arguments.arms)
    repayments = [repayment(cost, saving) for saving in savings for cost in costs]
    if arguments.json:
        print(amortisation.dumps(repayments, is_model))
    else:
        amortisation.print_text(repayments, is_model)
    return ExitCode.OK


def _costs(texts: list[str]) -> tuple[list[ExtraCost], bool]:
    """Extra costs by size, then arm, and whether any of them is a model's."""
    from vmmprof.analysis.amortise import extra_costs, published_costs
    from vmmprof.reference import table

    words = [text if "=" in text else f"extra={text}" for text in texts if text != PAPER]
    arms = load_arms(words) if words else []
    for arm in arms:
        if arm.placement.is_plain:
            raise UsageError(
                f"arm {arm.name!r} is plain memory, which costs nothing extra; name a placement"
            )
    costs = extra_costs(arms)
    if words and not costs:
        raise UsageError("the recordings have no pairs of a placement with plain")
    if PAPER in texts:
        costs += published_costs(table("ld_table06_vmm_cycle"))
    return sorted(costs, key=lambda cost: cost.size_bytes), any(arm.is_model for arm in arms)


def _recorded_savings(name: str) -> list[Saving]:
    from vmmprof.analysis.amortise import savings_of_primitives
    from vmmprof.reference import parse, table

    if name == PAPER:
        return savings_of_primitives(table("ld_table04_primitives"))
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--saves-from {name!r} cannot be read ({' '.join(str(error).split())}); it is a CSV "
            "like the paper's table 4"
        ) from None
    if not text.startswith("#"):
        text = f"# title: primitives\n# source: {name}\n# platform: not said\n{text}"
    try:
        return savings_of_primitives(parse(name, text))
    except ValueError:
        raise UsageError(f"--saves-from {name!r} holds latencies that are no numbers") from None
