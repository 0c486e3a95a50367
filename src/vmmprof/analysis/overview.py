# SPDX-License-Identifier: MIT
"""Everything a report shows about one recording, computed once."""

from __future__ import annotations

from dataclasses import dataclass

from vmmprof.analysis.bursts import visits_of
from vmmprof.analysis.groups import Columns, group_samples
from vmmprof.analysis.summary import ConditionSummary, summarise
from vmmprof.analysis.threshold import ThresholdSearch, find_thresholds
from vmmprof.operations import Operation
from vmmprof.placement import ALONE, Level, Placement, Series


@dataclass(frozen=True)
class PlacementOverview:
    """One series: its summaries by size and attempt, and its threshold."""

    series: Series
    summaries: list[ConditionSummary]
    threshold: ThresholdSearch

    @property
    def placement(self) -> Placement:
        return self.series.placement

    @property
    def scattered(self) -> bool:
        return self.series.scattered

    @property
    def level(self) -> Level:
        return self.series.level

    @property
    def headlines(self) -> list[ConditionSummary]:
        """The summaries that count, one a size, ascending."""
        return [summary for summary in self.summaries if summary.is_headline]

    @property
    def name(self) -> str:
        """The series in words, such as ``domain:0, card scattered, 8 threads``."""
        return self.place if self.level == ALONE else f"{self.place}, {self.level}"

    @property
    def place(self) -> str:
        return self.series.place


def overview(columns: Columns, operation: Operation, headline: str) -> list[PlacementOverview]:
    """Overviews in reporting order; arguments as for :func:`summary.summarise`."""
    groups = group_samples(columns, headline)
    visits = visits_of(columns, operation, headline)
    summaries = summarise(columns, operation, headline, groups)
    searches = find_thresholds(visits, headline, groups if visits is columns else None)
    by_series: dict[Series, list[ConditionSummary]] = {}
    for summary in summaries:
        by_series.setdefault(summary.condition.series, []).append(summary)
    none = ThresholdSearch(None, "no usable samples")
    return [
        PlacementOverview(series, of_series, searches.get(series, none))
        for series, of_series in by_series.items()
    ]
