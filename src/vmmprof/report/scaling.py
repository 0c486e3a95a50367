# SPDX-License-Identifier: MIT
"""Several at once on the terminal: a table a placement, a row a size and level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from vmmprof.analysis.overview import PlacementOverview
from vmmprof.analysis.summary import ConditionSummary
from vmmprof.placement import Level
from vmmprof.report.numbers import MISSING, plain, ratio, us, with_interval
from vmmprof.report.tables import new_table
from vmmprof.sizes import format_size


@dataclass
class Scaling:
    """A placement and card state at all its levels."""

    place: str
    is_plain: bool
    placements: list[PlacementOverview] = field(default_factory=list)

    @property
    def rows(self) -> list[ConditionSummary]:
        """The summaries that count, by size, then level."""
        summaries = [s for placement in self.placements for s in placement.headlines]
        return sorted(summaries, key=lambda s: (s.condition.size_bytes, s.condition.level))


def has_bursts(placements: Sequence[PlacementOverview]) -> bool:
    """Whether visits were bursts, which have a rate."""
    return any(s.cycles_per_s is not None for p in placements for s in p.headlines)


def scalings(placements: Sequence[PlacementOverview]) -> list[Scaling]:
    """The placements of a recording with their levels together, in reporting order."""
    by_place: dict[str, Scaling] = {}
    for placement in placements:
        place = placement.place
        found = by_place.setdefault(place, Scaling(place, placement.series.is_control))
        found.placements.append(placement)
    return list(by_place.values())


_LEVEL_COLUMNS: tuple[tuple[str, Callable[[Level], int]], ...] = (
    ("proc", lambda level: level.processes),
    ("thr", lambda level: level.threads),
    ("dev", lambda level: level.devices),
)


def level_columns(levels: Iterable[Level]) -> list[tuple[str, Callable[[Level], int]]]:
    """Names and values of the counts that are not 1 at every level; threads if all are."""
    seen = set(levels)
    shown = [(name, of) for name, of in _LEVEL_COLUMNS if {of(level) for level in seen} != {1}]
    return shown or [_LEVEL_COLUMNS[1]]


def scaling_table(scaling: Scaling, wide: bool) -> Table:
    """Quantiles and rate over the levels; ``wide`` adds every interval."""
    shown = level_columns(summary.condition.level for summary in scaling.rows)
    table = new_table()
    names = ["size", *(name for name, _ in shown), "n", "P50", "P90", "P99", "max", "cycles/s"]
    if not scaling.is_plain:
        names += ["ratio to plain"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for summary in scaling.rows:
        level: Level = summary.condition.level
        cells = [format_size(summary.condition.size_bytes), *(str(of(level)) for _, of in shown)]
        table.add_row(*cells, *_cells(summary, scaling.is_plain, wide))
    return table


def left_out_line(scaling: Scaling) -> str:
    """How many cycles the table leaves out because not all workers were running."""
    left_out = sum(summary.outside_window for summary in scaling.rows)
    kept = sum(summary.n for summary in scaling.rows)
    return f"left out, not all workers running: {left_out} of {left_out + kept} cycles"


def _cells(summary: ConditionSummary, is_plain: bool, wide: bool) -> list[str]:
    quantiles = (summary.p50, summary.p90, summary.p99)
    if wide:
        texts = [with_interval(estimate, us) for estimate in quantiles]
    else:
        texts = [MISSING if e is None else us(e.value) for e in quantiles]
    rate = summary.cycles_per_s
    cells = [
        str(summary.n),
        *texts,
        us(summary.max_ns),
        MISSING if rate is None else with_interval(rate, plain) if wide else plain(rate.value),
    ]
    return cells if is_plain else [*cells, with_interval(summary.ratio, ratio)]
