# SPDX-License-Identifier: MIT
"""Verdicts and mutant tables as text of 80 columns and as JSON-ready data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.judge import Verdict

WIDTH = 80


@dataclass(frozen=True)
class MutantResult:
    name: str
    mistake: str
    killed_by: str
    """The property that failed; '' when it survived; 'n/a' when it cannot exist here."""

    @property
    def survived(self) -> bool:
        return not self.killed_by


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(f"{label}{text}", WIDTH, subsequent_indent=" " * len(label))


def verdict_text(title: str, verdict: Verdict) -> str:
    """The table of costs and the verdict, with the failing case when there is one."""
    features = verdict.features
    memory = "localized" if features.localized else "compressible"
    lines = [
        title,
        f"One commit of fresh {memory} memory, pages of 2 MiB:",
        "",
        f"{'size MiB':>9} {'calls':>7} {'flushes':>8} {'invalidates':>12} {'PTE writes':>11}",
    ]
    lines += [
        f"{row.size_mib:>9} {row.calls:>7} {row.flushes:>8} {row.invalidates:>12} "
        f"{row.pte_writes:>11}"
        for row in verdict.rows
    ]
    lines.append("")
    if verdict.failure is None:
        lines.append(_wrapped("verdict: ", f"behaves as {verdict.name} ({verdict.cases} cases)"))
    else:
        lines.append(_wrapped("verdict: ", f"wrong, held against {verdict.arm.name}"))
        lines.append(_wrapped("  property ", str(verdict.failure)))
        lines.append(_wrapped("  case     ", str(verdict.failure.case)))
    if not features.localized:
        lines.append(
            _wrapped("note: ", "this body does not map localized memory as such; not asked of it")
        )
    return "\n".join(lines)


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    failure = verdict.failure
    return {
        "verdict": verdict.name,
        "arm": verdict.arm.name,
        "cases": verdict.cases,
        "features": asdict(verdict.features),
        "failure": None
        if failure is None
        else {"property": failure.prop, "detail": failure.detail, "case": str(failure.case)},
        "rows": [asdict(row) for row in verdict.rows],
    }


def mutants_text(results: Sequence[MutantResult]) -> str:
    lines = [f"{'mutant':<24} {'killed by':<22} mistake"]
    for result in results:
        killed = result.killed_by or "SURVIVED"
        mistake = textwrap.wrap(result.mistake, WIDTH - 48)
        lines.append(f"{result.name:<24} {killed:<22} {mistake[0]}")
        lines += [" " * 48 + more for more in mistake[1:]]
    survived = sum(result.survived for result in results)
    possible = sum(result.killed_by != "n/a" for result in results)
    lines += ["", f"{possible - survived} of {possible} mutants killed"]
    return "\n".join(lines)
