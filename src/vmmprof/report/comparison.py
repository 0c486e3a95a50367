# SPDX-License-Identifier: MIT
"""A comparison as text, Markdown, CSV and JSON: what differs first, then gains, then verdicts."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.arms import Cell
from vmmprof.analysis.compare import Comparison, Row, Verdict
from vmmprof.analysis.intervals import Estimate
from vmmprof.kernel.calls import UNKNOWN, CallShare
from vmmprof.placement import ALONE
from vmmprof.report.json import estimate_fields
from vmmprof.report.kernel import path_fields
from vmmprof.report.numbers import MISSING, NS_PER_US, number, ratio, us, whole, with_interval
from vmmprof.report.tables import new_table
from vmmprof.report.trace import count_text, percent_text, share_text
from vmmprof.sizes import format_size, mib
from vmmprof.variant import STANDARD

COLUMNS = (
    "size_mib", "scattered", "level", "variant", "call", "arm", "n", "p50_us", "lo_us", "hi_us",
    "gain", "gain_lo", "gain_hi", "effect", "verdict", "reason",
)  # fmt: skip


# What CSV has of each row's update path; JSON has the same in an object of its own.
PATH_COLUMNS = ("direction", "traced_cycles", *path_fields(None))


def row_object(row: Row) -> dict[str, Any]:
    """A row for JSON: times in us, ``gain`` as baseline over arm, null where nothing was traced."""
    return plain_fields(row) | {"update_path": None if row.path is None else path_object(row)}


def path_object(row: Row) -> dict[str, Any]:
    """The update path in a row's calls; null where its method does not give a field."""
    return {
        "direction": None if row.path is None else row.path.direction,
        "traced_cycles": None if row.path is None else row.path.cycles,
        **path_fields(row.path),
    }


def plain_fields(row: Row) -> dict[str, Any]:
    """What a row says without its kernel side."""
    p50 = None if row.p50 is None else row.p50.scaled(1 / NS_PER_US)
    return {
        "size_mib": whole(mib(row.cell.size_bytes)),
        "scattered": row.cell.scattered,
        "level": str(row.cell.level),
        "variant": str(row.cell.variant),
        "call": row.cell.call,
        "arm": row.arm,
        "n": 0 if p50 is None else p50.n,
        "p50_us": None if p50 is None else number(p50.value),
        "lo_us": None if p50 is None else number(p50.lo),
        "hi_us": None if p50 is None else number(p50.hi),
        **estimate_fields("gain", row.gain),
        "effect": number(row.effect),
        "verdict": row.verdict.value,
        "reason": row.reason,
    }


def dumps(comparison: Comparison) -> str:
    """The comparison as one JSON document."""
    document = {
        "model": comparison.is_model,
        "arms": list(comparison.arms),
        "baseline": comparison.baseline,
        "differences": [
            {"fact": difference.fact, "values": difference.values}
            for difference in comparison.differences
        ],
        "cautions": list(comparison.cautions),
        "rows": [row_object(row) for row in comparison.rows],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def csv_text(comparison: Comparison) -> str:
    """All rows as CSV with a header; MODEL says so in a comment line.

    Columns of the update path are there when any arm was traced, empty where unknown.
    """
    out = io.StringIO()
    if comparison.is_model:
        out.write("# MODEL: not measured\n")
    columns = (*COLUMNS, *PATH_COLUMNS) if comparison.traced_calls else COLUMNS
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain_fields(row) | path_object(row) for row in comparison.rows)
    return out.getvalue()


def _where(cell: Cell) -> str:
    state = " scattered" if cell.scattered else ""
    level = "" if cell.level == ALONE else f", {cell.level}"
    variant = "" if cell.variant == STANDARD else f", {cell.variant}"
    return f"{format_size(cell.size_bytes)}{state}{level}{variant}"


def _last_arm(comparison: Comparison) -> str:
    """The arm that the gain column is of: the last that is not the baseline."""
    return next(arm for arm in reversed(comparison.arms) if arm != comparison.baseline)


def _gain_text(gain: Estimate | None) -> str:
    return with_interval(gain, ratio)


def _p50_cells(comparison: Comparison, cell: Cell) -> list[str]:
    rows = (comparison.row(arm, cell) for arm in comparison.arms)
    return [MISSING if row.p50 is None else us(row.p50.value) for row in rows]


def _effect_text(row: Row) -> str:
    return MISSING if row.effect is None else f"{row.effect:.2f}"


@dataclass(frozen=True)
class _Table:
    title: str
    head: list[str]
    rows: list[list[str]]


def _tables(comparison: Comparison, call: str) -> list[_Table]:
    """Of two arms one table says everything; of more, side by side first, then each verdict."""
    mark = "MODEL: " if comparison.is_model else ""
    last = _last_arm(comparison)
    title = (
        f"{mark}{call}: P50 in us of each arm; gain of {last} over {comparison.baseline} with its "
        "95 % interval"
    )
    judged = [(cell, comparison.row(last, cell)) for cell in comparison.cells(call)]
    if len(comparison.arms) == 2:
        return [
            _Table(
                f"{title}; effect: share of wins",
                ["size", *comparison.arms, "gain", "effect", "verdict", "reason"],
                [
                    [
                        _where(cell),
                        *_p50_cells(comparison, cell),
                        _gain_text(row.gain),
                        _effect_text(row),
                        row.verdict.value,
                        row.reason,
                    ]
                    for cell, row in judged
                ],
            )
        ]
    side_by_side = [
        [_where(cell), *_p50_cells(comparison, cell), _gain_text(row.gain), row.verdict.value]
        for cell, row in judged
    ]
    verdicts = [
        [
            _where(row.cell),
            row.arm,
            _gain_text(row.gain),
            _effect_text(row),
            row.verdict.value,
            row.reason,
        ]
        for row in comparison.rows
        if row.cell.call == call and row.verdict is not Verdict.BASELINE
    ]
    return [
        _Table(title, ["size", *comparison.arms, "gain", "verdict"], side_by_side),
        _Table(
            f"{mark}{call}: every arm against {comparison.baseline}; effect: share of wins",
            ["size", "arm", "gain", "effect", "verdict", "reason"],
            verdicts,
        ),
    ]


def _path_table(comparison: Comparison, call: str) -> _Table:
    """The arms below each other at every size, so that their counts stand in one column."""
    return _Table(
        f"{call}: the driver's update path, mean a traced call; path as a share of the call, "
        "barrier + TLB as a share of the path with its 95 % interval",
        ["size", "arm", "iter.", "runs", "syncs", "us", "path, %", "barrier + TLB, %"],
        [
            [_where(cell), arm, *_path_texts(comparison.row(arm, cell).path)]
            for cell in comparison.cells(call)
            for arm in comparison.arms
        ],
    )


def _path_texts(path: CallShare | None) -> list[str]:
    if path is None:
        return ["not traced", *[MISSING] * 5]
    return [
        *(count_text(count) for count in (path.iterations, path.runs, path.invalidates)),
        UNKNOWN if path.path_us is None else f"{path.path_us:.1f}",
        percent_text(path.path),
        share_text(path.sync),
    ]


def _all_tables(comparison: Comparison, calls: list[str]) -> list[_Table]:
    compared = [table for call in calls for table in _tables(comparison, call)]
    return compared + [_path_table(comparison, call) for call in comparison.traced_calls]


def print_text(comparison: Comparison, calls: list[str], *, console: Console | None = None) -> None:
    """What differs, then the tables of each call."""
    console = console or Console(highlight=False)
    for line in _preamble(comparison):
        console.print(Text(line))
    for table in _all_tables(comparison, calls):
        console.print()
        console.print(Text(table.title, style="bold"))
        _print_table(console, table)


def _print_table(console: Console, table: _Table) -> None:
    drawn = new_table()
    for name in table.head:
        is_text = name in ("arm", "verdict", "reason")
        drawn.add_column(name, justify="left" if is_text else "right", no_wrap=name != "reason")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)


def _preamble(comparison: Comparison) -> list[str]:
    lines = ["MODEL: computed, not measured"] if comparison.is_model else []
    if not comparison.differences:
        lines.append("environments: nothing else differs")
    for difference in comparison.differences:
        by_value: dict[str, list[str]] = {}
        for path, value in difference.values.items():
            by_value.setdefault(value, []).append(path)
        values = "; ".join(f"{value} ({', '.join(paths)})" for value, paths in by_value.items())
        lines.append(f"differs: {difference.fact}: {values}")
    return lines + [f"beware: {caution}" for caution in comparison.cautions]


def markdown(comparison: Comparison, calls: list[str]) -> str:
    """The same as Markdown tables."""
    blocks = ["\n".join(f"- {line}" for line in _preamble(comparison))]
    for table in _all_tables(comparison, calls):
        blocks += [f"**{table.title}**", _markdown_table(table)]
    return "\n\n".join(blocks)


def _markdown_table(table: _Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join(_markdown_line(line) for line in lines)


def _markdown_line(cells: list[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
