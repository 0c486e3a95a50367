# SPDX-License-Identifier: MIT
"""Pictures of a recording: ratio over size, per-call breakdown, ECDF, scaling.

Drawn without a display. Colours are Okabe and Ito's, told apart with any
colour vision; markers, dashes and hatches carry the same distinction, so that
a grey print reads as well.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    LogLocator,
    NullFormatter,
    NullLocator,
    StrMethodFormatter,
)

from vmmprof.analysis.groups import group_samples, headline_attempts, times_ns
from vmmprof.analysis.intervals import Estimate, FloatArray
from vmmprof.analysis.overview import PlacementOverview, overview
from vmmprof.analysis.summary import ConditionSummary
from vmmprof.errors import UsageError
from vmmprof.operations import Operation
from vmmprof.placement import Series
from vmmprof.recording.reader import Recording
from vmmprof.report.context import MODEL, Context, context
from vmmprof.report.numbers import NS_PER_US, plain
from vmmprof.report.scaling import Scaling, scalings
from vmmprof.report.terminal import threshold_text
from vmmprof.sizes import format_size, mib

_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "//", "..", "\\\\", "xx", "--", "oo")
_DASHES = ("-", "--", ":", "-.")
_WIDTH_INCHES = 8.0
_DPI = 150
_CAPTION_COLUMNS = 110
# More panels than this are too small to read.
_ECDF_SIZES = 4
_LOG_FROM_FACTOR = 8.0

WHY_NOT_DRAWN = {
    "ratio.png": "there is no pair of a placement with plain",
    "breakdown.png": "no call has times of its own",
    "ecdf.png": "there are no usable samples",
}
"""Every picture, and why a recording may not be able to fill it."""


def draw_all(recording: Recording, directory: str) -> list[Path]:
    """Write every picture that the recording can fill to ``directory``; their paths.

    UsageError when the directory cannot be made or written.
    """
    target = Path(directory)
    placements = overview(recording.columns, recording.operation, recording.headline)
    facts = context(recording)
    figures = {
        "ratio.png": ratio_figure(placements, facts),
        "breakdown.png": breakdown_figure(placements, facts, recording.operation),
        "ecdf.png": ecdf_figure(recording, placements, facts),
        "scaling.png": scaling_figure(placements, facts),
    }
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, figure in drawn.items():
            figure.savefig(target / name, dpi=_DPI)
    except OSError as error:
        raise UsageError(
            f"pictures cannot be written to {target} ({error.strerror}); name a directory that can"
        ) from None
    return [target / name for name in drawn]


def _new_figure(height_inches: float) -> Figure:
    figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _caption(figure: Figure, facts: Context, what: str) -> None:
    """The conditions of the picture under it, MODEL first where nothing was measured."""
    words = f"{what} {facts.machine}. Command: {facts.command}"
    if facts.is_model:
        words = f"{MODEL}, not measured. {words}"
    figure.supxlabel(fill(words, _CAPTION_COLUMNS), fontsize="x-small", x=0.01, ha="left")


def _title(axes: Axes, text: str, facts: Context) -> None:
    axes.set_title(f"{MODEL}: {text}" if facts.is_model else text, loc="left", fontsize="medium")


def _n_words(placements: list[PlacementOverview]) -> str:
    counts = {summary.n for placement in placements for summary in placement.headlines}
    least, most = min(counts, default=0), max(counts, default=0)
    return f"n = {least}" if least == most else f"n = {least} to {most}"


def _size_axis(axes: Axes, sizes_mib: list[float]) -> None:
    """MiB, logarithmic where the sizes are far apart, ticks at measured sizes."""
    axes.set_xlabel("allocation size, MiB")
    if sizes_mib and max(sizes_mib) / min(sizes_mib) > _LOG_FROM_FACTOR:
        axes.set_xscale("log", base=2)
        every = max(1, len(sizes_mib) // 12)
        axes.xaxis.set_major_locator(FixedLocator(sizes_mib[::every]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{size:g}" for size in sizes_mib[::every]])


def _error_bars(estimates: list[Estimate]) -> list[list[float]]:
    return [
        [e.value - e.lo if e.has_interval else 0.0 for e in estimates],
        [e.hi - e.value if e.has_interval else 0.0 for e in estimates],
    ]


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def ratio_figure(placements: list[PlacementOverview], facts: Context) -> Figure | None:
    """Ratio to plain over size with intervals and the threshold; None without a pair."""
    curves = [p for p in placements if any(s.ratio is not None for s in p.headlines)]
    if not curves:
        return None
    figure = _new_figure(4.8)
    axes = figure.add_subplot()
    sizes_seen: set[float] = set()
    for index, placement in enumerate(curves, start=1):
        points = [
            (mib(s.condition.size_bytes), s.ratio)
            for s in placement.headlines
            if s.ratio is not None
        ]
        sizes = [size for size, _ in points]
        estimates = [estimate for _, estimate in points]
        sizes_seen.update(sizes)
        axes.errorbar(
            sizes,
            [estimate.value for estimate in estimates],
            yerr=_error_bars(estimates),
            color=_colour(index),
            marker=_MARKERS[index % len(_MARKERS)],
            linestyle=_DASHES[(index - 1) % len(_DASHES)],
            markersize=4,
            linewidth=1,
            capsize=2,
            label=placement.name,
        )
        found = placement.threshold.threshold
        if found is not None:
            axes.axvspan(
                found.lower_mib,
                found.upper_mib,
                color=_colour(index),
                alpha=0.15,
                label=f"threshold of {placement.name}:\nbetween {threshold_text(found)}",
            )
    axes.axhline(1.0, color="0.5", linewidth=0.8, linestyle=":")
    _size_axis(axes, sorted(sizes_seen))
    axes.set_ylabel("time over plain, ratio")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize="x-small")
    _title(axes, "cost relative to plain memory", facts)
    _caption(
        figure,
        facts,
        f"Median of the ratios of pairs of one round ({_n_words(curves)}), bars are 95 % "
        f"intervals; {facts.headline_words}.",
    )
    return figure


def breakdown_figure(
    placements: list[PlacementOverview], facts: Context, operation: Operation
) -> Figure | None:
    """Stacked P50 of every call over size, a panel a placement; None where no call has times."""
    panels = [p for p in placements if _call_medians_us(p, operation).any()]
    if not panels:
        return None
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = _new_figure(1.2 + 2.9 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    as_shares = any(_far_apart(_call_medians_us(p, operation).sum(axis=0)) for p in panels)
    for axes, placement in zip(grid.flat, panels, strict=False):
        _stack(axes, placement, operation, as_shares)
        _title(axes, placement.name, facts)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize="x-small")
    _caption(
        figure,
        facts,
        f"P50 of each call, stacked ({_n_words(panels)}); medians of calls need not add up "
        "to the median of their sum.",
    )
    return figure


def _call_medians_us(placement: PlacementOverview, operation: Operation) -> FloatArray:
    """(calls, sizes) in us, 0 for what has no time."""
    medians = [
        [
            0.0 if (estimate := s.calls_p50[call]) is None else estimate.value / NS_PER_US
            for s in placement.headlines
        ]
        for call in operation.calls
    ]
    return np.array(medians)


def _far_apart(values: FloatArray) -> bool:
    return bool(values.max() > _LOG_FROM_FACTOR * values.min())


def _stack(axes: Axes, placement: PlacementOverview, operation: Operation, as_shares: bool) -> None:
    """Absolute times, or shares under the written total (where totals are far apart)."""
    medians = _call_medians_us(placement, operation)
    totals = medians.sum(axis=0)
    heights = 100 * medians / np.where(totals > 0, totals, 1) if as_shares else medians
    positions = np.arange(medians.shape[1])
    bottom = np.zeros(medians.shape[1])
    for index, call in enumerate(operation.calls):
        axes.bar(
            positions,
            heights[index],
            bottom=bottom,
            width=0.8,
            color=_colour(index + 1),
            hatch=_HATCHES[index % len(_HATCHES)],
            edgecolor="white",
            linewidth=0.3,
            label=operation.api_name(call),
        )
        bottom += heights[index]
    if as_shares:
        for position, total in enumerate(totals.tolist()):
            axes.text(position, 101, plain(total), fontsize="xx-small", ha="left", rotation=45)
        axes.set_ylim(0, 118)
        axes.set_yticks(range(0, 101, 25))
    labels = [f"{mib(s.condition.size_bytes):g}" for s in placement.headlines]
    every = max(1, len(labels) // 10)
    axes.set_xticks(positions[::every], labels[::every], fontsize="x-small")
    axes.tick_params(axis="y", labelsize="x-small")
    axes.set_xlabel("allocation size, MiB", fontsize="small")
    axes.set_ylabel("% of the us above the bar" if as_shares else "us", fontsize="small")


def ecdf_figure(
    recording: Recording, placements: list[PlacementOverview], facts: Context
) -> Figure | None:
    """Share of samples below a time, a panel for each of a few sizes; None without samples."""
    groups = group_samples(recording.columns, recording.headline)
    chosen = headline_attempts(groups)
    times = times_ns(recording.columns, recording.headline)
    shown = [g for g in groups if g.attempt == chosen[g.condition] and len(g.rows)]
    sizes = _spread_out(sorted({group.condition.size_bytes for group in shown}))
    if not sizes:
        return None
    columns = min(2, len(sizes))
    rows = -(-len(sizes) // columns)
    figure = _new_figure(1.2 + 2.7 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(sizes) :]:
        axes.remove()
    names = {placement.series: placement.name for placement in placements}
    styles = _styles(placements)
    for axes, size_bytes in zip(grid.flat, sizes, strict=False):
        for group in shown:
            condition = group.condition
            if condition.size_bytes != size_bytes:
                continue
            axes.ecdf(
                times[group.rows] / NS_PER_US,
                **styles[condition.series],
                linewidth=1.2,
                label=names[condition.series],
            )
        _time_axis(axes)
        axes.grid(alpha=0.3)
        _title(axes, format_size(size_bytes), facts)
    for axes in grid[:, 0]:
        axes.set_ylabel("share of samples", fontsize="small")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize="x-small")
    left_out = len({group.condition.size_bytes for group in shown}) - len(sizes)
    others = f" {left_out} sizes between are not shown." if left_out else ""
    _caption(
        figure,
        facts,
        f"Every usable sample ({_n_words(placements)}), {facts.headline_words}.{others}",
    )
    return figure


def _styles(placements: list[PlacementOverview]) -> dict[Series, dict[str, str]]:
    """A colour a place and dashes a level; dashes a place, too, where there is one level."""
    places = list(dict.fromkeys(placement.place for placement in placements))
    levels = list(dict.fromkeys(placement.level for placement in placements))
    styles = {}
    for placement in placements:
        place, level = places.index(placement.place), levels.index(placement.level)
        dash = level if len(levels) > 1 else place
        styles[placement.series] = {
            "color": _colour(place),
            "linestyle": _DASHES[dash % len(_DASHES)],
        }
    return styles


def _time_axis(axes: Axes) -> None:
    low, high = axes.dataLim.intervalx
    if low > 0 and high / low > _LOG_FROM_FACTOR:
        axes.set_xscale("log")
        _label_decades(axes.xaxis, high / low)
    axes.set_xlabel("us", fontsize="small")
    axes.tick_params(labelsize="x-small")


def _label_decades(axis: Axis, factor: float) -> None:
    """Plain numbers on a logarithmic axis that spans ``factor``."""
    # Of four decades and more the labels would run into each other.
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if factor < 1e4 else (1.0,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def scaling_figure(placements: list[PlacementOverview], facts: Context) -> Figure | None:
    """P50, P99 and cycles/s over the number of workers; None where it never differs.

    A row for each of a few sizes. Levels of as many workers are told apart by
    their markers: threads, processes, devices or several of them.
    """
    groups = [scaling for scaling in scalings(placements) if len(_worker_counts(scaling)) > 1]
    sizes = _spread_out(
        sorted({summary.condition.size_bytes for scaling in groups for summary in scaling.rows})
    )
    if not sizes:
        return None
    figure = _new_figure(1.2 + 2.7 * len(sizes))
    grid = figure.subplots(len(sizes), 2, squeeze=False)
    for (latency, rate), size_bytes in zip(grid, sizes, strict=True):
        for index, scaling in enumerate(groups):
            _draw_scaling(latency, rate, index, scaling, size_bytes)
        _title(latency, format_size(size_bytes), facts)
        latency.set_ylabel("us", fontsize="small")
        latency.set_yscale("log")
        low, high = latency.dataLim.intervaly
        _label_decades(latency.yaxis, high / low)
        rate.set_ylabel("cycles/s of all workers", fontsize="small")
        rate.set_ylim(bottom=0, top=1.08 * rate.dataLim.intervaly[1])
        for axes in (latency, rate):
            _worker_axis(axes, sorted(set().union(*map(_worker_counts, groups))))
    # Not every panel has every curve, and a curve is drawn once a kind of level.
    named: dict[str, Artist] = {}
    for latency in grid[:, 0]:
        for handle, label in zip(*latency.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(
        list(named.values()), list(named), loc="outside upper center", ncols=3, fontsize="x-small"
    )
    _caption(
        figure,
        facts,
        f"P50 and, where n supports it, P99 ({_n_words(placements)}), {facts.headline_words}; "
        "circles: threads of one process, squares: processes, triangles: several devices.",
    )
    return figure


def _worker_counts(scaling: Scaling) -> set[int]:
    return {summary.condition.level.workers for summary in scaling.rows}


def _worker_axis(axes: Axes, counts: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(count) for count in counts])
    axes.set_xlabel("workers", fontsize="small")
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)


def _draw_scaling(latency: Axes, rate: Axes, index: int, scaling: Scaling, size_bytes: int) -> None:
    kinds: dict[str, list[ConditionSummary]] = {}
    for summary in scaling.rows:
        if summary.condition.size_bytes == size_bytes:
            level = summary.condition.level
            kind = "^" if level.devices > 1 else "s" if level.processes > 1 else "o"
            kinds.setdefault(kind, []).append(summary)
    for marker, summaries in kinds.items():
        summaries.sort(key=lambda summary: summary.condition.level.workers)
        style: dict[str, Any] = {
            "color": _colour(index),
            "marker": marker,
            "markersize": 4,
            "linewidth": 1.2,
        }
        for name, dashes, quantile in (("P50", "-", "p50"), ("P99", ":", "p99")):
            points = [
                (s.condition.level.workers, getattr(s, quantile).value / NS_PER_US)
                for s in summaries
                if getattr(s, quantile) is not None
            ]
            if points:
                label = f"{scaling.place} {name}"
                latency.plot(*zip(*points, strict=True), linestyle=dashes, label=label, **style)
        rates = [
            (s.condition.level.workers, s.cycles_per_s.value)
            for s in summaries
            if s.cycles_per_s is not None
        ]
        if rates:
            rate.plot(*zip(*rates, strict=True), **style)


def _spread_out(sizes: list[int]) -> list[int]:
    """A few of the sizes: first, last and evenly between."""
    if len(sizes) <= _ECDF_SIZES:
        return sizes
    at = np.linspace(0, len(sizes) - 1, _ECDF_SIZES).round().astype(int)
    return [sizes[i] for i in at]
