# SPDX-License-Identifier: MIT
"""What a victim met while others allocated, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from vmmprof.analysis.victims import VictimSummary
from vmmprof.report.numbers import MISSING, ratio, us, with_interval
from vmmprof.report.scaling import level_columns
from vmmprof.report.tables import in_us, new_table
from vmmprof.sizes import format_size

_WORDS = {
    "query": "cuMemGetInfo",
    "alloc": "cuMemCreate and cuMemRelease of 2 MiB",
    "launch": "an empty kernel, launched and waited for",
}


def victim_title(victim: Mapping[str, Any]) -> str:
    """What the victim does, and where."""
    what = _WORDS.get(str(victim.get("kind")), str(victim.get("kind")))
    return f"victim on device {victim.get('device')}: {what}"


_NUMBERS = ("n", *map(in_us, ("P50", "P90", "P99", "max")), "P50 to alone")


def victim_table(summaries: Sequence[VictimSummary]) -> Table:
    """A row a condition that the victim ran beside, the one where it was alone first."""
    shown = level_columns(s.condition.level for s in summaries if not s.is_alone)
    table = new_table()
    # The one column that may fold: numbers never lose a digit for it.
    table.add_column("beside")
    for name in ("size", *(name for name, _ in shown), *_NUMBERS):
        table.add_column(name, justify="right", no_wrap=True)
    for summary in summaries:
        condition = summary.condition
        where = "nobody" if summary.is_alone else str(condition.placement)
        counts = [MISSING if summary.is_alone else str(of(condition.level)) for _, of in shown]
        table.add_row(
            f"{where}, scattered" if condition.scattered else where,
            MISSING if summary.is_alone else format_size(condition.size_bytes),
            *counts,
            *_numbers(summary),
        )
    return table


def _numbers(summary: VictimSummary) -> list[str]:
    quantiles = (summary.p50, summary.p90, summary.p99)
    return [
        str(summary.n),
        *(MISSING if estimate is None else us(estimate.value) for estimate in quantiles),
        us(summary.max_ns),
        with_interval(summary.ratio, _times),
    ]


def _times(value: float) -> str:
    return ratio(value) if value < 100 else f"{value:.0f}"
