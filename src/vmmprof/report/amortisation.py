# SPDX-License-Identifier: MIT
"""Repayments on the terminal and as JSON, arms side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.amortise import Repayment
from vmmprof.report.json import estimate_fields
from vmmprof.report.numbers import MISSING, NS_PER_US, plain, us, whole, with_interval
from vmmprof.report.tables import new_table
from vmmprof.sizes import format_size, mib

ROUNDING = "uses is the quotient extra / saving; 'repaid after' is its ceiling, whole uses"


def dumps(repayments: Sequence[Repayment], is_model: bool) -> str:
    """All repayments as one JSON document; times in us and ns as the keys say."""
    rows = [
        {
            "size_mib": whole(mib(one.cost.size_bytes)),
            "arm": one.cost.arm,
            "saving": one.saving.name,
            "saving_ns": one.saving.ns,
            **estimate_fields("extra_us", one.cost.extra.scaled(1 / NS_PER_US)),
            **estimate_fields("uses", one.uses),
            "repaid_after": one.repaid_after,
            "verdict": one.verdict,
        }
        for one in repayments
    ]
    document = {"model": is_model, "rounding": ROUNDING, "rows": rows}
    return json.dumps(document, indent=2, allow_nan=False)


def print_text(
    repayments: Sequence[Repayment], is_model: bool, *, console: Console | None = None
) -> None:
    """A table a saving, a row a size and arm."""
    console = console or Console(highlight=False)
    if is_model:
        console.print(Text("MODEL: extra cost computed, not measured", style="bold"))
    for saving in dict.fromkeys(one.saving for one in repayments):
        console.print(Text(f"one use saves {plain(saving.ns)} ns ({saving.name})", style="bold"))
        table = new_table()
        table.add_column("size", justify="right", no_wrap=True)
        table.add_column("arm", no_wrap=True)
        for name in ("extra, us", "uses", "repaid after"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in repayments:
            if one.saving == saving:
                table.add_row(*(Text(cell) for cell in _cells(one)))
        console.print(table)
        console.print()
    console.print(Text(f"{ROUNDING}; in [] 95 % intervals"))


def _cells(one: Repayment) -> list[str]:
    return [
        format_size(one.cost.size_bytes),
        one.cost.arm,
        with_interval(one.cost.extra, us),
        MISSING if one.uses is None else with_interval(one.uses, plain),
        one.verdict if one.repaid_after in (None, 0) else str(one.repaid_after),
    ]
