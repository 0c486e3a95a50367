# SPDX-License-Identifier: MIT
"""The paper, this machine and the model side by side, and what holds here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.reproduce import ReproducedCell, Reproduction, ScalingRow
from vmmprof.report.json import estimate_fields
from vmmprof.report.numbers import MISSING, number, plain, ratio, with_interval
from vmmprof.report.tables import new_table
from vmmprof.sizes import format_size, mib


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
        "scaling": [
            {
                "machine": machine,
                "place": row.place,
                "size_mib": mib(row.size_bytes),
                **asdict(row.level),
                **estimate_fields("p50_us", row.p50_us),
                **estimate_fields("slower", row.slower),
                "queue": number(row.queue),
                **estimate_fields("ratio_to_plain", row.ratio),
                "paper_ratio_to_plain": number(row.paper_ratio),
            }
            for machine, rows in reproduction.scaling.items()
            for row in rows
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
    for machine, rows in reproduction.scaling.items():
        _print_scaling(console, machine, rows)
    console.print(Text("What the paper says, and what the recordings say of it", style="bold"))
    for finding in reproduction.findings:
        console.print(Text(f"{finding.where}: {finding.statement}"))
        console.print(Text(f"  {finding.outcome.value.upper()}: {finding.why}"))


def _print_scaling(console: Console, machine: str, rows: Sequence[ScalingRow]) -> None:
    """A table a placement: the level's cost here beside what a queue for the locks predicts."""
    for place in dict.fromkeys(row.place for row in rows):
        console.print(Text(f"Several at once, {place}; here: {machine}", style="bold"))
        table = new_table()
        has_ratio = any(row.ratio is not None for row in rows if row.place == place)
        names = ["size", "at once", "P50 us", "over 1 thread", "model"]
        names += ["over plain", "paper"] if has_ratio else []
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            if row.place != place:
                continue
            cells = [
                format_size(row.size_bytes),
                str(row.level),
                MISSING if row.p50_us is None else plain(row.p50_us.value),
                with_interval(row.slower, ratio),
                MISSING if row.queue is None else ratio(row.queue),
            ]
            if has_ratio:
                cells.append(with_interval(row.ratio, ratio))
                cells.append(MISSING if row.paper_ratio is None else ratio(row.paper_ratio))
            table.add_row(*map(Text, cells))
        console.print(table)
    console.print(
        Text("model: the locks as one queue, so that T workers take T times as long each\n")
    )


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
