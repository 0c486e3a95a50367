# SPDX-License-Identifier: MIT
"""A comparison as text, Markdown, CSV and JSON: what differs first, then gains, then verdicts."""

from __future__ import annotations

import csv
import io
import json
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


def _title(comparison: Comparison, call: str) -> str:
    mark = "MODEL: " if comparison.is_model else ""
    last = _last_arm(comparison)
    return (
        f"{mark}{call}: P50 in us of each arm; gain of {last} over {comparison.baseline} with its "
        "95 % interval"
    )


def _gain_cells(comparison: Comparison, call: str) -> list[list[str]]:
    """The table of the arms side by side: a row a size, the gain last."""
    table = []
    last = _last_arm(comparison)
    for cell in comparison.cells(call):
        rows = [comparison.row(arm, cell) for arm in comparison.arms]
        judged = comparison.row(last, cell)
        table.append(
            [
                _where(cell),
                *(MISSING if row.p50 is None else us(row.p50.value) for row in rows),
                _gain_text(judged.gain),
                judged.verdict.value,
            ]
        )
    return table


def _gain_text(gain: Estimate | None) -> str:
    return with_interval(gain, ratio)


def _verdict_cells(comparison: Comparison, call: str) -> list[list[str]]:
    return [
        [
            _where(row.cell),
            row.arm,
            _gain_text(row.gain),
            MISSING if row.effect is None else f"{row.effect:.2f}",
            row.verdict.value,
            row.reason,
        ]
        for row in comparison.rows
        if row.cell.call == call and row.verdict is not Verdict.BASELINE
    ]


def _gain_head(comparison: Comparison) -> list[str]:
    return ["size", *comparison.arms, "gain", "verdict"]


_PATH_HEAD = ["size", "arm", "iter.", "runs", "syncs", "us", "path, %", "barrier + TLB, %"]


def _path_title(call: str) -> str:
    return (
        f"{call}: the driver's update path, mean a traced call; path as a share of the call, "
        "barrier + TLB as a share of the path with its 95 % interval"
    )


def _path_cells(comparison: Comparison, call: str) -> list[list[str]]:
    """The arms below each other at every size, so that their counts stand in one column."""
    table = []
    for cell in comparison.cells(call):
        for arm in comparison.arms:
            path = comparison.row(arm, cell).path
            table.append([_where(cell), arm, *_path_texts(path)])
    return table


def _path_texts(path: CallShare | None) -> list[str]:
    if path is None:
        return ["not traced", *[MISSING] * 5]
    return [
        *(count_text(count) for count in (path.iterations, path.runs, path.invalidates)),
        UNKNOWN if path.path_us is None else f"{path.path_us:.1f}",
        percent_text(path.path),
        share_text(path.sync),
    ]


_VERDICT_HEAD = ["size", "arm", "gain", "effect", "verdict", "reason"]


def print_text(comparison: Comparison, calls: list[str], *, console: Console | None = None) -> None:
    """What differs, the arms side by side, and every verdict with its reason."""
    console = console or Console(highlight=False)
    for line in _preamble(comparison):
        console.print(Text(line))
    for call in calls:
        console.print()
        console.print(Text(_title(comparison, call), style="bold"))
        _print_table(console, _gain_head(comparison), _gain_cells(comparison, call))
        console.print()
        console.print(
            Text(f"{call}: every arm against {comparison.baseline} (effect: share of wins)")
        )
        _print_table(console, _VERDICT_HEAD, _verdict_cells(comparison, call))
    for call in comparison.traced_calls:
        console.print()
        console.print(Text(_path_title(call), style="bold"))
        _print_table(console, _PATH_HEAD, _path_cells(comparison, call))


def _print_table(console: Console, head: list[str], rows: list[list[str]]) -> None:
    table = new_table()
    for name in head:
        is_text = name in ("arm", "verdict", "reason")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=name != "reason")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


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
    for call in calls:
        blocks.append(f"**{_title(comparison, call)}**")
        blocks.append(_markdown_table(_gain_head(comparison), _gain_cells(comparison, call)))
        blocks.append(_markdown_table(_VERDICT_HEAD, _verdict_cells(comparison, call)))
    for call in comparison.traced_calls:
        blocks.append(f"**{_path_title(call)}**")
        blocks.append(_markdown_table(_PATH_HEAD, _path_cells(comparison, call)))
    return "\n\n".join(blocks)


def _markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(_markdown_line(line) for line in lines)


def _markdown_line(cells: list[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
