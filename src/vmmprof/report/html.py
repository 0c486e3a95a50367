# SPDX-License-Identifier: MIT
"""A recording as one self-contained page: tables that need no script, charts that need no network.

The page carries the result (report.json) and draws from it; style and script
are package files put into it whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from vmmprof.analysis.groups import group_samples, headline_attempts, times_ns
from vmmprof.analysis.overview import PlacementOverview, overview
from vmmprof.analysis.summary import ConditionSummary
from vmmprof.errors import UsageError
from vmmprof.kernel.recorded import load_traced
from vmmprof.placement import Condition
from vmmprof.recording.reader import Recording
from vmmprof.report.context import Context, context
from vmmprof.report.json import JsonObject, placement_object
from vmmprof.report.numbers import MISSING, NS_PER_US, ratio, us, whole, with_interval
from vmmprof.report.terminal import threshold_line
from vmmprof.report.trace import (
    effect_lines,
    method_line,
    seen_line,
    share_tables,
    trace_lines,
    updates_lines,
)
from vmmprof.sizes import format_size, mib

# A curve of this many points is as smooth as the screen; fewer samples are all kept.
_ECDF_POINTS = 200

_METHOD = """\
Every round visits every condition in a freshly shuffled order. Values are medians (P50); in
brackets stand 95 % intervals between order statistics, widened by blocks of rounds where rounds
are correlated. Extra cost and ratio are medians over pairs: a placement's sample and plain's of
the same round. Outliers are flagged and stay in. P90 takes 29 samples, P99 takes 1000. The
threshold is a step in extra cost over size that resampled rounds do not give by chance.
docs/method.md has the rest."""

_CHARTS = (
    ("ratio", "Cost relative to plain memory"),
    ("extra", "Extra cost over plain memory"),
    ("p50", "Time of a cycle"),
    ("breakdown", "Where a cycle's time goes, call by call"),
    ("ecdf", "Distribution of the samples"),
)


def write_html(recording: Recording, out: str) -> Path:
    """Write the page to ``out``; UsageError when that cannot be written."""
    path = Path(out)
    try:
        path.write_text(page(recording), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"page cannot be written to {out} ({error.strerror}); name a file that can"
        ) from None
    return path


def page(recording: Recording) -> str:
    """The whole document."""
    facts = context(recording)
    placements = overview(recording.columns, recording.operation, recording.headline)
    parts = files("vmmprof.report") / "page"
    style = (parts / "report.css").read_text(encoding="utf-8")
    script = (parts / "report.js").read_text(encoding="utf-8")
    charts = "\n".join(_chart(name, title) for name, title in _CHARTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{escape(facts.title)}</title>
<style>
{style}</style>
</head>
<body>
{_heading(facts)}
{_summary(placements)}
<h2>Charts</h2>
<p class="quiet">Point at a mark, or reach it with the Tab key, for its value, interval and n.</p>
{charts}
<h2>All sizes</h2>
{"".join(_table(placement) for placement in placements)}
{_inside(recording)}
<h2>Method</h2>
<p>{escape(_METHOD)}</p>
<h2>Environment</h2>
<details><summary>everything that was recorded about machine and run</summary>
<pre>{escape(json.dumps(recording.environment, indent=2, default=str))}</pre></details>
<h2>Data</h2>
<p><button type="button" id="save-json">JSON</button>
<button type="button" id="save-csv">CSV</button></p>
<div id="hover" role="status" hidden></div>
<script type="application/json" id="data">{_data_text(recording, placements, facts)}</script>
<script>
{script}</script>
</body>
</html>
"""


def _heading(facts: Context) -> str:
    mark = (
        '<p class="model">MODEL: computed, nothing here was measured</p>' if facts.is_model else ""
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in facts.notes)
    return f"""<h1>{escape(facts.title)}</h1>
{mark}
<p>{escape(facts.machine)}</p>
<p><code>{escape(facts.command)}</code></p>
{f"<ul>{notes}</ul>" if notes else ""}"""


def _summary(placements: list[PlacementOverview]) -> str:
    """What a reader wants first: each placement's threshold and its cost at both ends."""
    lines = []
    for placement in placements:
        if placement.placement.is_plain:
            continue
        compared = [s for s in placement.headlines if s.ratio is not None]
        costs = "; ".join(_cost_words(s) for s in (compared[:1] + compared[1:][-1:]))
        line = escape(f"{placement.name}: {costs or 'no pairs with plain'}")
        lines.append(f"<li>{line}<br>{escape(threshold_line(placement.threshold))}</li>")
    if not lines:
        lines.append("<li>plain memory alone: there is nothing to compare</li>")
    return f'<h2>Summary</h2>\n<ul id="summary">{"".join(lines)}</ul>'


def _cost_words(summary: ConditionSummary) -> str:
    size = format_size(summary.condition.size_bytes)
    extra = with_interval(summary.extra, us)
    return f"{size} costs {with_interval(summary.ratio, ratio)} times plain ({extra} us extra)"


def _chart(name: str, title: str) -> str:
    return f"""<section class="chart" id="{name}"><h3>{escape(title)}</h3>
<div class="controls"></div><div class="drawing"></div></section>"""


def _table(placement: PlacementOverview) -> str:
    head = ("size", "n", "P50, us", "P90, us", "P99, us", "max, us", "extra, us", "ratio",
            "discarded", "flagged")  # fmt: skip
    rows = [_row(summary) for summary in placement.headlines]
    return f"""<h3>{escape(placement.name)}</h3>
{_text_table(head, rows)}
<p class="quiet">{escape(threshold_line(placement.threshold))}</p>"""


def _inside(recording: Recording) -> str:
    """What the calls of a traced recording spent in the driver's update path."""
    traced = load_traced(recording)
    if traced is None:
        return ""
    shares = traced.shares
    tables = "".join(
        f"<h3>{escape(title)}</h3>{_text_table(head, rows)}"
        for title, head, rows in share_tables(shares)
    )
    remarks = [
        "Of the traced rounds; all times above are of the others.",
        method_line(traced.facts),
        seen_line(shares) or "",
        *updates_lines(traced),
        *trace_lines(traced.table),
        *effect_lines(traced.effects),
    ]
    lines = "".join(f"<li>{escape(remark)}</li>" for remark in remarks if remark)
    return f"""<h2 id="inside">Inside the calls: the driver's update path</h2>
{tables}<ul class="quiet">{lines}</ul>"""


def _text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"""<div class="scroll"><table><thead><tr>{cells}</tr></thead>
<tbody>{body}</tbody></table></div>"""


def _row(summary: ConditionSummary) -> tuple[str, ...]:
    return (
        format_size(summary.condition.size_bytes),
        str(summary.n),
        with_interval(summary.p50, us),
        with_interval(summary.p90, us),
        with_interval(summary.p99, us),
        us(summary.max_ns),
        with_interval(summary.extra, us),
        MISSING if summary.ratio is None else with_interval(summary.ratio, ratio),
        str(summary.discarded),
        str(summary.flagged_outliers),
    )


def _data_text(recording: Recording, placements: list[PlacementOverview], facts: Context) -> str:
    curves = _ecdf_curves(recording)
    data: JsonObject = {
        "name": facts.name,
        "model": facts.is_model,
        "headline": facts.headline,
        "calls": list(recording.operation.calls),
        "placements": [
            {
                "name": placement.name,
                **placement_object(placement, recording.operation),
                "ecdf_us": {
                    f"{whole(mib(s.condition.size_bytes))}": curves.get(s.condition, [])
                    for s in placement.headlines
                },
            }
            for placement in placements
        ],
    }
    # "</script>" inside a string would end the element.
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _ecdf_curves(recording: Recording) -> dict[Condition, list[float]]:
    """Sorted times in us by condition: all samples, or evenly spaced order statistics."""
    groups = group_samples(recording.columns, recording.headline)
    chosen = headline_attempts(groups)
    times = times_ns(recording.columns, recording.headline)
    curves = {}
    for group in groups:
        if group.attempt != chosen[group.condition] or not len(group.rows):
            continue
        ordered = np.sort(times[group.rows]) / NS_PER_US
        at = np.linspace(0, len(ordered) - 1, min(len(ordered), _ECDF_POINTS)).round().astype(int)
        curves[group.condition] = [round(value, 3) for value in ordered[at].tolist()]
    return curves
