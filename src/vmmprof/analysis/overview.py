# SPDX-License-Identifier: MIT
"""Everything a report shows about one recording, computed once."""

from __future__ import annotations

from dataclasses import dataclass

from vmmprof.analysis.groups import Columns
from vmmprof.analysis.summary import ConditionSummary, summarise
from vmmprof.analysis.threshold import ThresholdSearch, find_thresholds
from vmmprof.operations import Operation
from vmmprof.placement import Placement


@dataclass(frozen=True)
class PlacementOverview:
    """One placement and card state: its summaries by size and attempt, and its threshold."""

    placement: Placement
    scattered: bool
    summaries: list[ConditionSummary]
    threshold: ThresholdSearch

    @property
    def headlines(self) -> list[ConditionSummary]:
        """The summaries that count, one a size, ascending."""
        return [summary for summary in self.summaries if summary.is_headline]

    @property
    def name(self) -> str:
        """The placement and the card's state in words, such as ``domain:0, card scattered``."""
        name = "device (plain, the control)" if self.placement.is_plain else str(self.placement)
        return f"{name}, card scattered" if self.scattered else name


def overview(columns: Columns, operation: Operation, headline: str) -> list[PlacementOverview]:
    """Overviews in reporting order; arguments as for :func:`summary.summarise`."""
    summaries = summarise(columns, operation, headline)
    searches = find_thresholds(columns, headline)
    return [
        PlacementOverview(
            placement,
            scattered,
            [
                summary
                for summary in summaries
                if (summary.condition.placement, summary.condition.scattered)
                == (placement, scattered)
            ],
            search,
        )
        for (placement, scattered), search in searches.items()
    ]
