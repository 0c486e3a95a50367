# SPDX-License-Identifier: MIT
"""The support table, generated from series.toml into the documents that show it."""

from __future__ import annotations

import argparse
from pathlib import Path

from driverpatch.errors import DriverError, ExitCode
from driverpatch.series import Series
from driverpatch.system import System

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "driver-patch.md")
BEGIN = "<!-- support table: begin (tools/driver table --write) -->"
END = "<!-- support table: end -->"


def support_table(series: Series) -> str:
    """A Markdown table: driver releases, class, what the series does there."""
    lines = [
        "| driver releases | body | patches | checked on | difference |",
        "|---|---|---|---|---|",
    ]
    for entry in series.unaffected:
        lines.append(f"| {', '.join(entry.tags)} | - | not needed | - | {entry.reason} |")
    for known in series.updates:
        patches = "A, B, A+B, A+B+C" if known.patchable else "none"
        checked = known.verified_on or "-"
        lines.append(
            f"| {', '.join(known.tags)} | {known.id} | {patches} | {checked} | {known.difference} |"
        )
    return "\n".join(lines)


def with_table(document: str, table: str) -> str:
    """The document with the table between the markers. Raises ValueError without markers."""
    head, rest = document.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def stale_documents(series: Series) -> list[Path]:
    """Documents with the markers whose table is not the generated one."""
    table = support_table(series)
    return [
        document
        for document in DOCUMENTS
        if document.is_file()
        and BEGIN in (text := document.read_text())
        and with_table(text, table) != text
    ]


def table_command(options: argparse.Namespace, system: System) -> int:
    del system
    table = support_table(Series.load())
    if not options.write:
        print(table)
        return ExitCode.OK
    for document in DOCUMENTS:
        if not document.is_file() or BEGIN not in (text := document.read_text()):
            if document.name == "README.md":
                continue
            raise DriverError(f"{document}: has no line '{BEGIN}' to put the table after")
        document.write_text(with_table(text, table))
        print(f"wrote {document.relative_to(ROOT)}")
    return ExitCode.OK
