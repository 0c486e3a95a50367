# SPDX-License-Identifier: MIT
"""A recording on the terminal: a table a placement, its threshold, what was left out.

Everything is said in plain ASCII words, so that it reads the same without
colour, in a log file and through a pipe. Below 110 columns the tables keep to
what decides; wider ones add every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmmprof.analysis.overview import PlacementOverview, overview
from vmmprof.analysis.summary import ConditionSummary
from vmmprof.analysis.threshold import Threshold, ThresholdSearch
from vmmprof.analysis.victims import summarise_victims
from vmmprof.operations import Operation
from vmmprof.recording.reader import Recording, load_victims
from vmmprof.report.context import Context, context
from vmmprof.report.numbers import MISSING, mib_text, plain, ratio, us, with_interval
from vmmprof.report.scaling import has_bursts, left_out_line, scaling_table, scalings
from vmmprof.report.tables import in_us, new_table
from vmmprof.report.victims import victim_table, victim_title
from vmmprof.sizes import format_size

_WIDE_COLUMNS = 110
_WIDE_SCALING_COLUMNS = 150


def print_recording(
    recording: Recording, *, calls: bool = False, console: Console | None = None
) -> None:
    """Print a recording's result; ``calls`` adds the P50 of every call."""
    console = console or Console(highlight=False, soft_wrap=False)
    facts = context(recording)
    placements = overview(recording.columns, recording.operation, recording.headline)
    _print_heading(console, facts)
    if not placements:
        console.print(Text("\nno samples"))
    elif has_bursts(placements):
        _print_scalings(console, placements, facts)
    else:
        _print_placements(console, placements, facts, recording.operation, calls)
    _print_victim(console, recording)
    _print_notes(console, facts)


def _print_victim(console: Console, recording: Recording) -> None:
    victims = load_victims(recording)
    if victims is None:
        return
    console.print()
    console.print(Text(victim_title(recording.environment["victim"]), style="bold"))
    console.print(victim_table(summarise_victims(victims)))


def _print_scalings(console: Console, placements: list[PlacementOverview], facts: Context) -> None:
    for scaling in scalings(placements):
        console.print()
        name = f"{scaling.place}{' (MODEL)' if facts.is_model else ''}"
        console.print(Text(name, style="bold"))
        console.print(scaling_table(scaling, console.width >= _WIDE_SCALING_COLUMNS))
        for placement in scaling.placements:
            for line in _remarks(placement, in_bursts=True):
                console.print(Text(f"{placement.level}: {line}"))
        console.print(Text(left_out_line(scaling)))


def _print_placements(
    console: Console,
    placements: list[PlacementOverview],
    facts: Context,
    operation: Operation,
    calls: bool,
) -> None:
    for placement in placements:
        console.print()
        name = f"{placement.name}{' (MODEL)' if facts.is_model else ''}"
        console.print(Text(name, style="bold"))
        console.print(_size_table(placement, console.width >= _WIDE_COLUMNS))
        if calls:
            console.print(Text(f"P50 of each call: {name}", style="bold"))
            console.print(_calls_table(placement, operation))
        for line in _remarks(placement):
            console.print(Text(line))
        console.print(Text(threshold_line(placement.threshold)))


def threshold_line(search: ThresholdSearch) -> str:
    """``threshold: between 32 and 34 MiB (step ..., slope ... us/MiB of extra cost)``."""
    found = search.threshold
    if found is None:
        return f"threshold: none found{f' ({search.reason})' if search.reason else ''}"
    return f"threshold: between {threshold_text(found)}"


def threshold_text(threshold: Threshold) -> str:
    """The sizes, step and slope of a threshold, each estimate with its interval."""
    step = with_interval(threshold.step_us, plain)
    slope = with_interval(threshold.slope_us_per_mib, plain)
    return (
        f"{mib_text(threshold.lower_mib)} and {mib_text(threshold.upper_mib)} MiB "
        f"(step {step} us, slope {slope} us/MiB of extra cost)"
    )


def _print_heading(console: Console, facts: Context) -> None:
    console.print(Text(facts.title, style="bold"))
    console.print(Text(f"machine: {facts.machine}"))
    console.print(Text(f"command: {facts.command}"))
    console.print(
        Text(
            f"times in us ({facts.headline_words}); in [] 95 % intervals; extra and ratio "
            "against plain, pair by pair"
        )
    )


def _size_table(placement: PlacementOverview, wide: bool) -> Table:
    is_plain = placement.series.is_control
    # A column of its own once any size has enough samples for it.
    has_p99 = any(summary.p99 is not None for summary in placement.headlines)
    table = new_table()
    table.add_column("size", justify="right", no_wrap=True)
    names = ["n", *map(in_us, ("P50", "P90", *(["P99"] if has_p99 else []), "max"))]
    if not is_plain:
        names += [in_us("extra over plain"), "ratio to plain"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for summary in placement.headlines:
        table.add_row(*_size_cells(summary, is_plain, wide, has_p99))
    return table


def _size_cells(summary: ConditionSummary, is_plain: bool, wide: bool, has_p99: bool) -> list[str]:
    p50 = with_interval(summary.p50, _us) if wide or is_plain else _value_us(summary)
    tails = [summary.p90, summary.p99] if has_p99 else [summary.p90]
    tail_cells = [
        MISSING if tail is None else with_interval(tail, _us) if wide else us(tail.value)
        for tail in tails
    ]
    cells = [
        format_size(summary.condition.size_bytes),
        str(summary.n),
        p50,
        *tail_cells,
        us(summary.max_ns),
    ]
    if not is_plain:
        cells += [with_interval(summary.extra, _us), with_interval(summary.ratio, ratio)]
    return cells


def _us(value_ns: float) -> str:
    return us(value_ns)


def _value_us(summary: ConditionSummary) -> str:
    return MISSING if summary.p50 is None else us(summary.p50.value)


def _calls_table(placement: PlacementOverview, operation: Operation) -> Table:
    table = new_table()
    table.add_column("size", justify="right", no_wrap=True)
    for call in operation.calls:
        table.add_column(in_us(call), justify="right", no_wrap=True)
    for summary in placement.headlines:
        medians = (summary.calls_p50[call] for call in operation.calls)
        table.add_row(
            format_size(summary.condition.size_bytes),
            *(MISSING if estimate is None else us(estimate.value) for estimate in medians),
        )
    return table


def _remarks(placement: PlacementOverview, in_bursts: bool = False) -> Iterable[str]:
    """Lines on what was left out, flagged or measured twice; none when there is nothing to say.

    ``in_bursts``: long cycles and those at a burst's ends are a matter of course.
    """
    headlines = placement.headlines
    counted: tuple[tuple[str, Callable[[ConditionSummary], int]], ...] = (
        ("flagged as outliers (kept)", lambda s: 0 if in_bursts else s.flagged_outliers),
        ("discarded, wrong memory read back", lambda s: s.discarded),
        ("failed", lambda s: s.failed),
        ("left out, not all threads running", lambda s: 0 if in_bursts else s.outside_window),
        ("without this time", lambda s: s.untimed),
    )
    for what, count in counted:
        sizes = [(s, count(s)) for s in headlines if count(s)]
        if sizes:
            where = ", ".join(f"{format_size(s.condition.size_bytes)} {n}" for s, n in sizes)
            yield f"{what}: {where}"
    for summary in headlines:
        others = [
            other
            for other in placement.summaries
            if other.condition == summary.condition and not other.is_headline
        ]
        for other in others:
            yield (
                f"measured twice at {format_size(summary.condition.size_bytes)}: attempt "
                f"{other.attempt} P50 {with_interval(other.p50, _us)} (n {other.n}), attempt "
                f"{summary.attempt} (shown) {with_interval(summary.p50, _us)} (n {summary.n})"
            )


def _print_notes(console: Console, facts: Context) -> None:
    if facts.notes:
        console.print()
    for note in facts.notes:
        console.print(Text(f"note: {note}"))
