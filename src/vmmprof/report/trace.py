# SPDX-License-Identifier: MIT
"""A trace on the terminal: what the update path did, and how the trace was taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.calls import CallShare, ProbeEffect, call_shares, probe_effect
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
from vmmprof.kernel.shares import Share
from vmmprof.recording.events import SAMPLE, event_facts, read_events
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import EVENTS_FILE
from vmmprof.sizes import format_size, mib

# A rule under the head and nothing else; ASCII, so that it survives any pipe and locale.
_RULED = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_BAR_WIDTH = 40
_MUCH_CUT = 0.1
NOTHING_TO_SHARE = "-"
# The calls that take and give back memory: those that the update path is part of.
TRACED_CALLS = {"vmm_cycle": ("create", "release"), "rm_alloc": ("alloc", "free")}
# Colours of a flame graph: the update function, its synchronisation, and what else may be large.
FLAME_COLOURS = {
    "_kbusUpdateStaticBar1VAMapping": "#9ecae1",
    "kbusUpdateStaticBar1VAMapping": "#9ecae1",
    "kbusFlush": "#fdae6b",
    "gvaspaceInvalidateTlb": "#e6550d",
    "kgmmuInvalidateTlb": "#e6550d",
    "rpcRmApiControl_GSP": "#bcbddc",
    "memdescFillPages": "#a1d99b",
    "pmaAllocatePages": "#c7e9c0",
    "pmaFreePages": "#c7e9c0",
}


def share_text(share: Share) -> str:
    """``81.3 (80.1-82.4)``: a share with its 95 % interval, in percent."""
    if np.isnan(share.value):
        return NOTHING_TO_SHARE
    return f"{100 * share.value:.1f} ({100 * share.low:.1f}-{100 * share.high:.1f})"


def _percent(share: Share) -> str:
    return NOTHING_TO_SHARE if np.isnan(share.value) else f"{100 * share.value:.1f}"


def trace_lines(events: pa.Table) -> list[str]:
    """What is to be known about how the trace was taken, its losses first."""
    facts = event_facts(events)
    lines = []
    losses = facts.get("losses") or {
        name: facts.get(name, 0) for name in ("lost_samples", "throttled")
    }
    missing = {name: number for name, number in losses.items() if number}
    if missing:
        listed = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in missing.items())
        effect = (
            "counts are lower bounds"
            if "losses" in facts
            else "shares come from fewer samples; a larger --period-us helps"
        )
        lines.append(f"LOST: {listed}; {effect}")
    else:
        lines.append("lost: nothing")
    if facts["driver_reloaded"]:
        lines.append("the driver was reloaded during the trace: what came after is not in it")
    if calibration := facts.get("calibration"):
        lines.append(
            f"probe cost, taken out: {calibration['self_ns']:.0f} ns in a probed call, "
            f"{calibration['leaf_ns']:.0f} to {calibration['map_ns']:.0f} ns around one"
        )
    else:
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
    console.print(Text(f"method: {facts['method']}, kernel module {facts['module']}"))
    if len(frame) == 0:
        console.print(Text("no update call was seen: the path was not taken"))
    elif frame["kind"].iloc[0] == SAMPLE:
        _print_sampled(console, sampled_groups(frame))
    else:
        _print_counted(console, update_groups(frame), iteration_histogram(frame))
    for line in trace_lines(events):
        console.print(Text(line))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=_RULED, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _print_counted(
    console: Console, groups: Sequence[UpdateGroup], histogram: dict[int, int]
) -> None:
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
            _percent(group.pte),
            _percent(group.barrier),
            _percent(group.tlb),
            share_text(group.sync),
        )
        for group in groups
    ]
    console.print(_table(("", "MiB", "page tables", "barrier", "TLB", "barrier + TLB"), shares))
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
    if not (recording.path / EVENTS_FILE).is_file():
        return
    console = console or Console(highlight=False, soft_wrap=False)
    events = read_events(recording.path)
    facts = event_facts(events)
    windows = np.array(facts["traced_windows_ns"], np.int64).reshape(-1, 2)
    console.print()
    print_trace(events, "the traced rounds", console)
    console.print()
    print_call_shares(
        call_shares(
            recording.samples,
            events.to_pandas(),
            windows,
            recording.operation,
            TRACED_CALLS.get(recording.operation.name, recording.operation.calls),
            period_ns=facts.get("period_ns"),
        ),
        probe_effect(recording.samples, windows, f"{recording.headline}_ns"),
        console,
    )


def print_call_shares(
    shares: Sequence[CallShare], effects: Sequence[ProbeEffect], console: Console | None = None
) -> None:
    """Print how much of each timed call the update path is, and what the tracing cost."""
    console = console or Console(highlight=False, soft_wrap=False)
    console.print(
        Text(
            "the update path's share of each call; barrier + TLB as a share of the path",
            style="bold",
        )
    )
    rows = [
        (
            f"{share.placement} {format_size(share.size_bytes)}"
            f"{' scattered' if share.scattered else ''}",
            share.call.removeprefix("cuMem").removeprefix("NV_ESC_RM_").lower(),
            share_text(share.path),
            share_text(share.sync),
        )
        for share in shares
    ]
    console.print(_table(("", "call", "path, %", "barrier + TLB, %"), rows))
    seen = [share.seen for share in shares if share.seen is not None]
    if seen:
        console.print(
            Text(
                "shares are of sampled CPU time; samples stand for "
                f"{100 * min(seen):.0f} to {100 * max(seen):.0f} % of the calls' time: a thread "
                "that sleeps is not sampled"
            )
        )
    for effect in effects:
        console.print(
            Text(
                f"tracing made the cycles of {effect.placement} {effect.ratio:.3f} times as long "
                f"({effect.low:.3f}-{effect.high:.3f})"
            )
        )


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
