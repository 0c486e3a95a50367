# SPDX-License-Identifier: MIT
"""The paper, this machine and the model side by side, and what holds here."""

from __future__ import annotations

import json

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.reproduce import ReproducedCell, Reproduction
from vmmprof.report.json import estimate_fields
from vmmprof.report.numbers import MISSING, number, plain, ratio, with_interval
from vmmprof.report.tables import new_table


def dumps(reproduction: Reproduction) -> str:
    """All cells and findings as one JSON document; units are in the column names."""
    document = {
        "model": reproduction.is_model,
        "machines": dict(reproduction.machines),
        "cells": [
            {
                "table": cell.table,
                "row": cell.row,
                "column": cell.column,
                "paper": cell.paper,
                **estimate_fields("here", cell.here),
                "model": number(cell.model),
                "ratio": number(cell.ratio),
            }
            for cell in reproduction.cells
        ],
        "findings": [
            {
                "where": finding.where,
                "statement": finding.statement,
                "finding": finding.outcome.value,
                "why": finding.why,
            }
            for finding in reproduction.findings
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def print_text(reproduction: Reproduction, *, console: Console | None = None) -> None:
    """A table for each of the paper's that the recordings answer, then every finding."""
    console = console or Console(highlight=False)
    if reproduction.is_model:
        console.print(Text("MODEL: 'here' is computed, not measured", style="bold"))
    for name in dict.fromkeys(cell.table for cell in reproduction.cells):
        console.print(
            Text(f"{name} of the paper; here: {reproduction.machines[name]}", style="bold")
        )
        _print_cells(console, [c for c in reproduction.cells if c.table == name])
    console.print(Text("What the paper says, and what the recordings say of it", style="bold"))
    for finding in reproduction.findings:
        console.print(Text(f"{finding.where}: {finding.statement}"))
        console.print(Text(f"  {finding.outcome.value.upper()}: {finding.why}"))


def _print_cells(console: Console, cells: list[ReproducedCell]) -> None:
    answered = [cell for cell in cells if cell.here is not None]
    if not answered:
        console.print(Text("none of its cells can be answered by these recordings\n"))
        return
    table = new_table()
    for column in ("MiB", "column", "paper", "here", "model", "here / paper"):
        table.add_column(column, justify="left" if column == "column" else "right", no_wrap=True)
    for cell in answered:
        table.add_row(
            *(
                Text(text)
                for text in (
                    cell.row,
                    cell.column,
                    plain(cell.paper),
                    with_interval(cell.here, plain),
                    MISSING if cell.model is None else plain(cell.model),
                    MISSING if cell.ratio is None else ratio(cell.ratio),
                )
            )
        )
    console.print(table)
    left_out = len(cells) - len(answered)
    if left_out:
        console.print(Text(f"{left_out} cells are not in these recordings"))
    console.print()
