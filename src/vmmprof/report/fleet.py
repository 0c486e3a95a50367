# SPDX-License-Identifier: MIT
"""The recordings of a fleet, one a line: where it was taken, how much, how far off the others."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vmmprof.analysis.merge import Deviation
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import SUFFIX
from vmmprof.report.context import MODEL
from vmmprof.report.numbers import MISSING
from vmmprof.report.tables import new_table


def print_fleet(
    recordings: Sequence[Recording],
    cycles: Sequence[int],
    deviations: Sequence[Deviation | None],
    *,
    console: Console | None = None,
) -> None:
    """A row a recording, in the order given; the deviation is from the median over all."""
    console = console or Console(highlight=False)
    if any(recording.is_model for recording in recordings):
        console.print(Text(f"{MODEL}: computed, not measured", style="bold"))
    table = new_table()
    table.add_column("recording")
    table.add_column("host")
    table.add_column("cycles", justify="right")
    table.add_column("furthest off the median of all")
    for recording, count, deviation in zip(recordings, cycles, deviations, strict=True):
        machine = recording.environment.get("machine")
        host = machine.get("host", "unknown") if isinstance(machine, dict) else "unknown"
        where = (
            MISSING if deviation is None else f"{deviation.relative:+.1%} at {deviation.condition}"
        )
        name = recording.path.name.removesuffix(SUFFIX)
        table.add_row(*(Text(text) for text in (name, str(host), str(count), where)))
    console.print(table)
