# SPDX-License-Identifier: MIT
"""The doctor's findings as tables within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_findings(
    findings: Sequence[tuple[str, str, str, str]], abilities: Sequence[tuple[str, str, str]]
) -> None:
    """Print (section, question, answer, detail) rows, then (ability, answer, reason) rows."""
    console = Console(markup=False, highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    section = ""
    for row_section, question, answer, detail in findings:
        if row_section != section:
            section = row_section
            table.add_row(Text(section, "bold"), "", "")
        table.add_row(f"  {question}", answer, detail)
    console.print(table)
    console.print()
    can = Table(box=None, pad_edge=False, title="what can be done here", title_justify="left")
    can.add_column("", overflow="fold")
    can.add_column("here", no_wrap=True)
    can.add_column("why", overflow="fold")
    for what, answer, reason in abilities:
        can.add_row(what, answer, reason)
    console.print(can)
