# SPDX-License-Identifier: MIT
"""A verify report as lines of at most 80 columns, and as JSON. Never prints."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from vmmprof.verify.outcome import Check, Outcome, Report
from vmmprof.verify.sharing import CALLS

WIDTH = 80
_CASE_WIDTH = 32
_BAD = (Outcome.FAILED, Outcome.UNTESTED, Outcome.WAIVED)
_CALL_HEADS = {
    "create": "create",
    "map": "map",
    "export": "export",
    "import": "import",
    "bar1_map": "bar1 map",
    "bar1_unmap": "bar1 unm",
    "duplicate": "dup",
    "free_duplicate": "free dup",
    "free_import": "free imp",
    "unmap": "unmap",
    "release": "release",
}


def case_lines(report: Report, case: str) -> list[str]:
    """A case in one line, then a paragraph for each check that did not pass."""
    checks = [check for check in report.checks if check.case == case]
    passed = sum(check.outcome is Outcome.PASSED for check in checks)
    facts = report.facts.get(case, {})
    lines = []
    if passed:
        lines.append(f"{case:<{_CASE_WIDTH}} {passed:3} passed  {_summary(facts)}".rstrip())
    for check in checks:
        if check.outcome in _BAD:
            lines += _paragraph(check)
    if "placements" in facts:
        lines += _sharing_lines(facts)
    return lines


def closing_lines(report: Report) -> list[str]:
    """What the passes prove, and the totals."""
    placements: dict[str, tuple[Mapping[str, str], list[str]]] = {}
    for case, facts in report.facts.items():
        proof = facts.get("proof")
        if isinstance(proof, Mapping) and not report.failures_of(case):
            _, named = placements.setdefault(str(proof), (proof, []))
            placement = case.rsplit(" ", 2)[0]
            if placement not in named:
                named.append(placement)
    lines = _loop_legend(report)
    for proof, named in placements.values():
        lines += ["", *_wrapped(f"What a pass proves for {', '.join(named)}:", "")]
        for key, text in proof.items():
            lines += _wrapped(f"{key}: {text}", "  ")
    totals = ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in Outcome)
    return [*lines, "", totals]


def _loop_legend(report: Report) -> list[str]:
    if not any(facts.get("iterations_stock") for facts in report.facts.values()):
        return []
    return [
        "",
        "loop A -> B: iterations of the update loop on a stock driver, and on one that",
        "merges physical neighbours; ? where it needs root to know",
    ]


def as_json(report: Report) -> dict[str, Any]:
    """The whole report, JSON-ready."""
    return {
        "checks": [
            {
                "case": check.case,
                "check": check.name,
                "outcome": check.outcome.value,
                "detail": check.detail,
            }
            for check in report.checks
        ],
        "facts": report.facts,
        "totals": {outcome.value: report.count(outcome) for outcome in Outcome},
    }


def _summary(facts: Mapping[str, object]) -> str:
    if "physical_runs" in facts:
        where = _where(facts["pages"], facts["physical_runs"])
        stock, merged = facts["iterations_stock"], facts["iterations_coalescing"]
        if stock == 0:
            return f"{where}, no loop"
        return f"{where}, loop {'?' if isinstance(stock, str) else stock} -> {merged}"
    if "tested_rounds" in facts:
        return (
            f"{facts['tested_rounds']}/{facts['rounds']} rounds tested, "
            f"{facts['reused_pages']} pages reused"
        )
    return ""


def _where(pages: object, runs: object) -> str:
    return f"{pages} page{'' if pages == 1 else 's'} in {runs} run{'' if runs == 1 else 's'}"


def _paragraph(check: Check) -> list[str]:
    head = f"{check.outcome.value.upper()} {check.case}: {check.name}"
    return [*_wrapped(head, ""), *(_wrapped(check.detail, "    ") if check.detail else [])]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if indent else "    ",
        break_on_hyphens=False,
    )


def _sharing_lines(facts: Mapping[str, Any]) -> list[str]:
    """Two tables of P50 in us: making and sharing, then undoing."""
    lines: list[str] = []
    for calls in (CALLS[:6], CALLS[6:]):
        head = "".join(f"{_CALL_HEADS[call]:>9}" for call in calls)
        lines.append(f"  {'P50 us':<22}{head}")
        for placement, row in facts["placements"].items():
            cells = "".join(f"{row['p50_us'][call]:9.1f}" for call in calls)
            lines.append(f"  {placement:<22}{cells}")
    for placement, row in facts["placements"].items():
        lines.append(f"  {placement}: {_where(facts['pages'], row['physical_runs'])}")
        if "loop_reruns" in row:
            again = ", ".join(f"{call} {answer}" for call, answer in row["loop_reruns"].items())
            lines += _wrapped(f"{placement}: update loop runs again at: {again}", "  ")
    return lines
