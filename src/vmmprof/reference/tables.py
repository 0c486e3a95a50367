# SPDX-License-Identifier: MIT
"""Load reference tables: CSV files that say in their head where they come from.

A file starts with the lines ``# title:``, ``# source:`` and ``# platform:``;
the header and the rows follow. Units stand in the column names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from vmmprof.errors import UsageError

_FOLDER = files("vmmprof.reference") / "data"
_HEAD = ("title", "source", "platform")


@dataclass(frozen=True)
class Table:
    """One table, as text cells.

    ``columns`` are the header's names; ``rows`` hold one string a column. The
    first column names the row.
    """

    name: str
    title: str
    source: str
    platform: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def row_names(self) -> tuple[str, ...]:
        """The first column, which names the rows."""
        return tuple(row[0] for row in self.rows)

    def texts(self, column: str) -> tuple[str, ...]:
        """All cells of a column, top to bottom."""
        if column not in self.columns:
            raise UsageError(
                f"reference table {self.name} has no column {column!r}; "
                f"it has {', '.join(self.columns)}"
            )
        index = self.columns.index(column)
        return tuple(row[index] for row in self.rows)

    def numbers(self, column: str) -> tuple[float, ...]:
        """All cells of a column of numbers, in the unit that its name says."""
        return tuple(float(text) for text in self.texts(column))

    def number(self, row_name: str, column: str) -> float:
        """The one cell of the first row called ``row_name``."""
        if row_name not in self.row_names:
            raise UsageError(
                f"reference table {self.name} has no row {row_name!r}; "
                f"it has {', '.join(self.row_names)}"
            )
        return self.numbers(column)[self.row_names.index(row_name)]


def parse(name: str, text: str) -> Table:
    """A table from a file's text; UsageError when it has no head or ragged rows."""
    lines = text.splitlines()
    head = dict(_head_entries(lines))
    missing = [key for key in _HEAD if key not in head]
    if missing:
        raise UsageError(
            f"reference table {name} does not say its {', '.join(missing)}; "
            "it starts with '# title:', '# source:' and '# platform:' lines"
        )
    try:
        records = list(csv.reader(line for line in lines if line and not line.startswith("#")))
    except csv.Error as error:
        raise UsageError(f"reference table {name} is no CSV: {error}") from None
    if not records or any(len(record) != len(records[0]) for record in records):
        raise UsageError(f"reference table {name} has no header or rows of different lengths")
    columns, *rows = (tuple(record) for record in records)
    return Table(name, head["title"], head["source"], head["platform"], columns, tuple(rows))


def _head_entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if line.startswith("# "):
            key, _, value = line.removeprefix("# ").partition(": ")
            yield key, value


def table_names() -> tuple[str, ...]:
    """The names that :func:`table` takes, sorted."""
    return tuple(
        sorted(
            entry.name.removesuffix(".csv")
            for entry in _FOLDER.iterdir()
            if entry.name.endswith(".csv")
        )
    )


def table(name: str) -> Table:
    """The reference table called ``name``, such as ``ld_table06_vmm_cycle``."""
    if name not in table_names():
        raise UsageError(
            f"reference table {name!r} is unknown; the tables are {', '.join(table_names())}"
        )
    return parse(name, (_FOLDER / f"{name}.csv").read_text(encoding="utf-8"))
