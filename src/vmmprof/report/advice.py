# SPDX-License-Identifier: MIT
"""Advice on the terminal and as JSON: the pattern, its cost with each option, what to do."""

from __future__ import annotations

import json

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.advise import Advice, Load
from vmmprof.report.numbers import MISSING, number, plain, whole
from vmmprof.report.tables import new_table
from vmmprof.sizes import format_size, mib


def dumps(advice: Advice) -> str:
    """The advice as one JSON document."""
    document = {
        "pattern": [
            {
                "size_mib": whole(mib(load.size_bytes)),
                "placement": str(load.placement),
                "per_s": number(load.per_s),
                "peak_alive": load.peak_alive,
            }
            for load in advice.loads
        ],
        "options": [
            {
                "option": option.name,
                "ms_per_s": number(option.ms_per_s),
                "once_ms": number(option.once_ms),
                "evidence": option.evidence,
            }
            for option in advice.options
        ],
        "rules": [
            {"advice": rule.advice, "because": rule.because, "evidence": rule.evidence}
            for rule in advice.rules
        ],
        "interpolated": [_words(load) for load in advice.interpolated],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def _words(load: Load) -> str:
    return f"{format_size(load.size_bytes)} at {load.placement}"


def print_text(advice: Advice, *, console: Console | None = None) -> None:
    """Three blocks: the pattern, the options, the rules with their evidence."""
    console = console or Console(highlight=False)
    console.print(Text("pattern", style="bold"))
    for load in advice.loads:
        alive = "" if load.peak_alive is None else f", at most {load.peak_alive} alive"
        console.print(Text(f"  {_words(load)}, {plain(load.per_s)} a second{alive}"))
    console.print()
    console.print(Text("cost of allocating and freeing", style="bold"))
    table = new_table()
    for name in ("with", "ms a second", "ms once", "evidence"):
        table.add_column(name, justify="right" if name.startswith("ms") else "left")
    for option in advice.options:
        once = plain(option.once_ms) if option.once_ms else MISSING
        steady = "not known" if option.ms_per_s is None else plain(option.ms_per_s)
        cells = (option.name, steady, once, option.evidence)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    for load in advice.interpolated:
        console.print(Text(f"{_words(load)} was not measured: taken between its neighbours"))
    console.print()
    console.print(Text("what to do", style="bold"))
    for place, rule in enumerate(advice.rules, start=1):
        console.print(Text(f"{place}. {rule.advice}"))
        console.print(Text(f"   because {rule.because}"))
        console.print(Text(f"   evidence: {rule.evidence}"))
