# SPDX-License-Identifier: MIT
"""``vmmprof doctor``: what this machine can and cannot measure, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vmmprof.cli.arguments import whole_number
from vmmprof.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vmmprof.doctor.abilities import Ability
    from vmmprof.doctor.findings import Finding


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="say what this machine can and cannot measure, and why",
        description="Say what this machine can and cannot measure, and why. Changes nothing.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--device",
        type=whole_number("--device", 0, 4095),
        default=0,
        metavar="N",
        help="CUDA device ordinal (default 0)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        help="also write FILE, a .tar.gz for bug reports: findings and the machine's facts",
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Examine, show, bundle."""
    from vmmprof.doctor import abilities, examine
    from vmmprof.doctor.bundle import write_bundle

    findings = examine(arguments.device)
    able = abilities(findings)
    document = _document(findings, able)
    if arguments.bundle is not None:
        write_bundle(arguments.bundle, document)
    if arguments.json:
        import json

        print(json.dumps(document, indent=2))
    else:
        from vmmprof.report.doctor import print_findings

        print_findings(
            [(f.section, f.question, f.answer_text, f.detail) for f in findings],
            [(a.what, a.answer.value, a.reason) for a in able],
        )
        if arguments.bundle is not None:
            print(f"bundle: {arguments.bundle}")
    return ExitCode.OK


def _document(findings: Sequence[Finding], able: Sequence[Ability]) -> dict[str, object]:
    return {
        "findings": {
            f.key: {
                "section": f.section,
                "question": f.question,
                "answer": f.answer.value if f.answer else None,
                "detail": f.detail,
            }
            for f in findings
        },
        "abilities": [{"what": a.what, "answer": a.answer.value, "reason": a.reason} for a in able],
    }
