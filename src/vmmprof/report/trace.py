# SPDX-License-Identifier: MIT
"""A trace on the terminal: what the update path did, and how the trace was taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.calls import UNKNOWN, CallShare, ProbeEffect
from vmmprof.kernel.methods import Method
from vmmprof.kernel.phases import (
    CREATE_FUNCTION,
    RELEASE_FUNCTION,
    SampledGroup,
    UpdateGroup,
    iteration_histogram,
    sampled_groups,
    update_groups,
)
from vmmprof.kernel.recorded import TracedRecording, load_traced, losses_of
from vmmprof.kernel.shares import Share
from vmmprof.recording.events import SAMPLE, event_facts
from vmmprof.recording.reader import Recording
from vmmprof.sizes import format_size, mib

# A rule under the head and nothing else; ASCII, so that it survives any pipe and locale.
_RULED = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_BAR_WIDTH = 40
_MUCH_CUT = 0.1
NOTHING_TO_SHARE = "-"


def share_text(share: Share | None) -> str:
    """``81.3 (80.1-82.4)``: a share with its 95 % interval, in percent."""
    if share is None:
        return UNKNOWN
    if np.isnan(share.value):
        return NOTHING_TO_SHARE
    return f"{100 * share.value:.1f} ({100 * share.low:.1f}-{100 * share.high:.1f})"


def percent_text(share: Share | None) -> str:
    """``81.3``: a share in percent."""
    if share is None:
        return UNKNOWN
    return NOTHING_TO_SHARE if np.isnan(share.value) else f"{100 * share.value:.1f}"


def trace_lines(events: pa.Table) -> list[str]:
    """What is to be known about how the trace was taken, its losses first."""
    facts = event_facts(events)
    lines = []
    if missing := losses_of(facts):
        listed = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in missing.items())
        effect = (
            "counts are lower bounds"
            if "losses" in facts
            else "shares come from fewer samples; a larger --period-us helps"
        )
        lines.append(f"LOST: {listed}; {effect}")
    else:
        lines.append("lost: nothing")
    if facts.get("driver_reloaded"):
        lines.append("the driver was reloaded during the trace: what came after is not in it")
    if calibration := facts.get("calibration"):
        lines.append(
            f"probe cost, taken out: {calibration['self_ns']:.0f} ns in a probed call, "
            f"{calibration['leaf_ns']:.0f} to {calibration['map_ns']:.0f} ns around one"
        )
    elif facts.get("period_ns"):
        lines.append(
            f"one sample each {facts['period_ns'] / 1e3:g} us of CPU time; "
            "calls, iterations, runs, bytes and status: unknown to this method"
        )
    return lines


def print_trace(events: pa.Table, target: str, console: Console | None = None) -> None:
    """Print what a trace gave, of either kind."""
    console = console or Console(highlight=False, soft_wrap=False)
    facts = event_facts(events)
    frame = events.to_pandas()
    console.print(Text(f"update path under {target}", style="bold"))
    console.print(Text(method_line(facts)))
    if len(frame) == 0:
        console.print(Text("no update call was seen: the path was not taken"))
    elif frame["kind"].iloc[0] == SAMPLE:
        _print_sampled(console, sampled_groups(frame))
    else:
        _print_counted(console, update_groups(frame))
        _print_histogram(console, iteration_histogram(frame))
    for line in trace_lines(events):
        console.print(Text(line))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=_RULED, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _print_counted(console: Console, groups: Sequence[UpdateGroup]) -> None:
    rows = [
        (
            group.direction,
            f"{mib(group.bytes):g}",
            f"{group.calls}",
            f"{group.iterations:g}",
            f"{group.runs:g}",
            f"{group.invalidates:g}",
            f"{group.us_per_call:.1f}",
            f"{group.us_per_iteration:.2f}",
            f"{group.failed}",
        )
        for group in groups
    ]
    head = ("", "MiB", "calls", "iterations", "runs", "syncs", "us/call", "us/iter.", "failed")
    console.print(_table(head, rows))
    console.print(Text("share of the update call's time, %, with 95 % interval"))
    shares = [
        (
            group.direction,
            f"{mib(group.bytes):g}",
            percent_text(group.pte),
            percent_text(group.barrier),
            percent_text(group.tlb),
            share_text(group.sync),
        )
        for group in groups
    ]
    console.print(_table(("", "MiB", "page tables", "barrier", "TLB", "barrier + TLB"), shares))


def _print_histogram(console: Console, histogram: dict[int, int]) -> None:
    if not histogram:
        return
    console.print(Text("update calls by iterations"))
    most = max(histogram.values())
    for first, calls in histogram.items():
        last = 2 * first - 1
        name = f"{first}" if last <= first else f"{first}-{last}"
        bar = "#" * max(1, round(_BAR_WIDTH * calls / most))
        console.print(Text(f"{name:>13} {calls:>8} {bar}"))


def _print_sampled(console: Console, groups: Sequence[SampledGroup]) -> None:
    rows = [
        (
            group.name,
            f"{group.samples}",
            share_text(group.path),
            share_text(group.sync),
            f"{group.phases[Phase.UNATTRIBUTED]}",
        )
        for group in groups
    ]
    head = ("", "samples", "update path, %", "barrier + TLB of it, %", "cut")
    console.print(_table(head, rows))
    console.print(Text(f"create and release: under {CREATE_FUNCTION}, {RELEASE_FUNCTION}"))
    phases = groups[0].phases
    cut = phases[Phase.UNATTRIBUTED]
    kernel = sum(phases.values()) - phases[Phase.USER]
    if cut > _MUCH_CUT * max(1, kernel):
        console.print(
            Text(
                f"{cut} of {kernel} kernel call chains were cut before they could tell: this "
                "kernel has no unwind data for the driver's core. Take a counting method."
            )
        )
    listed = ", ".join(f"{p.value.replace('_', ' ')} {n}" for p, n in phases.items() if n)
    console.print(Text(f"all samples by phase: {listed}"))


def print_traced_recording(recording: Recording, console: Console | None = None) -> None:
    """Print the kernel phases of a recording that was traced; nothing for one that was not."""
    traced = load_traced(recording)
    if traced is None:
        return
    console = console or Console(highlight=False, soft_wrap=False)
    console.print()
    console.print(Text("inside the calls: the driver's update path", style="bold"))
    console.print(Text("of the traced rounds; the times above are of the others"))
    console.print(Text(method_line(traced.facts)))
    if traced.is_sampled:
        _print_sampled(console, sampled_groups(traced.events))
    print_call_shares(traced.shares, console)
    if not traced.is_sampled:
        console.print()
        _print_histogram(console, iteration_histogram(traced.events))
        console.print()
    for line in (*updates_lines(traced), *trace_lines(traced.table), *effect_lines(traced.effects)):
        console.print(Text(line))


def method_line(facts: Mapping[str, Any]) -> str:
    return f"method: {facts.get('method')}, kernel module {facts.get('module')}"


def updates_lines(traced: TracedRecording) -> list[str]:
    """How many update calls were counted, how many of them in the calls shown, and what failed."""
    if traced.is_sampled:
        return []
    updates = traced.events
    shown = sum(
        calls.counts["updates"].sum()
        for calls in traced.calls
        if calls.counts["updates"] is not None
    )
    failed = int((updates["status"].fillna(0) != 0).sum())
    line = (
        f"update calls: {len(updates)} in the traced rounds, {shown:.0f} of them in the calls above"
    )
    return [line, f"FAILED: {failed} update calls returned an error"] if failed else [line]


def effect_lines(effects: Sequence[ProbeEffect]) -> list[str]:
    """What the tracing did to the times of the cycles."""
    return [
        f"tracing made the cycles of {effect.placement} {effect.ratio:.3f} times as long "
        f"({effect.low:.3f}-{effect.high:.3f})"
        for effect in effects
    ]


def condition_text(share: CallShare) -> str:
    """``compressible 64 MiB scattered``: where a call was made."""
    place = f"{share.placement} {share.variant}".strip()
    return f"{place} {format_size(share.size_bytes)}{' scattered' if share.scattered else ''}"


def call_text(share: CallShare) -> str:
    """The call's name without what all of them begin with: ``create``."""
    return share.call.removeprefix("cuMem").removeprefix("NV_ESC_RM_").lower()


def count_text(value: float | None) -> str:
    """A mean count: ``512``, ``1.25``, ``unknown``."""
    return UNKNOWN if value is None else f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def per_iteration_us(share: CallShare) -> float | None:
    """Time in the path by iterations; None where it has none or that is unknown."""
    if share.path_us is None or not share.iterations:
        return None
    return share.path_us / share.iterations


def share_rows(shares: Sequence[CallShare]) -> list[tuple[str, ...]]:
    """Where, call, the path's share of it and the synchronisation's share of the path."""
    return [
        (condition_text(s), call_text(s), share_text(s.path), share_text(s.sync)) for s in shares
    ]


TextTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

SHARE_HEAD = ("", "call", "path, %", "barrier + TLB, %")
PHASE_HEAD = ("", "call", "direction", "page tables", "barrier", "TLB")
COUNT_HEAD = ("", "call", "iterations", "runs", "syncs", "us", "us/iter.")


def phase_rows(shares: Sequence[CallShare]) -> list[tuple[str, ...]]:
    """Where, call, direction and each phase's share of the path."""
    return [
        (
            condition_text(s),
            call_text(s),
            s.direction or NOTHING_TO_SHARE,
            *(percent_text(part) for part in (s.pte, s.barrier, s.tlb)),
        )
        for s in shares
    ]


def count_rows(shares: Sequence[CallShare]) -> list[tuple[str, ...]]:
    """Where, call, and the path's counts and time, mean a call."""
    return [
        (
            condition_text(s),
            call_text(s),
            *(count_text(count) for count in (s.iterations, s.runs, s.invalidates)),
            UNKNOWN if s.path_us is None else f"{s.path_us:.1f}",
            NOTHING_TO_SHARE if (each := per_iteration_us(s)) is None else f"{each:.2f}",
        )
        for s in shares
    ]


def seen_line(shares: Sequence[CallShare]) -> str | None:
    """How much of the calls' time was sampled; None for counted calls."""
    seen = [share.seen for share in shares if share.seen is not None]
    if not seen:
        return None
    return (
        "shares are of sampled CPU time; samples stand for "
        f"{100 * min(seen):.0f} to {100 * max(seen):.0f} % of the calls' time: a thread "
        "that sleeps is not sampled"
    )


SHARES_TITLE = "the update path's share of each call; barrier + TLB as a share of the path"
PHASES_TITLE = "share of the path's time, %"
COUNTS_TITLE = "mean a call: counts, us in the path, us by iteration"


def share_tables(shares: Sequence[CallShare]) -> list[TextTable]:
    """Title, head and rows of each table: the path in all calls, then what is in it."""
    in_path = [s for s in shares if s.path is None or s.path.value > 0]
    tables: list[TextTable] = [(SHARES_TITLE, SHARE_HEAD, share_rows(shares))]
    if in_path:
        tables.append((PHASES_TITLE, PHASE_HEAD, phase_rows(in_path)))
    if any(share.updates is not None for share in in_path):
        tables.append((COUNTS_TITLE, COUNT_HEAD, count_rows(in_path)))
    return tables


def print_call_shares(shares: Sequence[CallShare], console: Console | None = None) -> None:
    """Print how much of each timed call the update path is, and what happened in it."""
    console = console or Console(highlight=False, soft_wrap=False)
    for title, head, rows in share_tables(shares):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(_table(head, rows))
    if (line := seen_line(shares)) is not None:
        console.print(Text(line))


def print_methods(methods: Sequence[Method], console: Console | None = None) -> None:
    """Print which methods work here, why others do not and what would change it."""
    console = console or Console(highlight=False, soft_wrap=False)
    chosen = next((method.name for method in methods if method.works), None)
    for method in methods:
        state = "no" if not method.works else "yes, the best" if method.name == chosen else "yes"
        console.print(Text(f"{method.name}: {state}", style="bold"))
        facts = {"what": method.about, "gives": method.gives}
        if not method.works:
            facts |= {"reason": method.reason, "remedy": method.remedy}
        for name, text in facts.items():
            console.print(Padding(Text(f"{name}: {text}"), (0, 0, 0, 2)))
