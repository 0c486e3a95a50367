# SPDX-License-Identifier: MIT
"""``vmmprof trace``: watch the driver's update path while something allocates."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vmmprof.cli.arguments import TRACE_METHODS, duration_s, whole_number
from vmmprof.errors import ExitCode, UsageError
from vmmprof.kernel.update_path import DRIVER_MODULE

if TYPE_CHECKING:
    from types import FrameType

    from vmmprof.kernel.session import Target, Trace

_DESCRIPTION = """\
Watch the driver's static BAR1 update path while something allocates, and say
where its time goes: page-table writes, memory barrier, TLB invalidate. Needs
root; --explain says what works here, why other methods do not, and what would
change that. docs/probing.md says how to choose.
"""

_EPILOG = """\
examples:
  vmmprof trace --explain
  vmmprof trace -- ./my_program
  vmmprof trace --pid 1234 --max-time 10s --output events.parquet
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "trace",
        help="watch the driver's update path while something allocates",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to trace")
    what.add_argument(
        "--pid", type=whole_number("--pid", 1, 1 << 22), metavar="PID", help="a running process"
    )
    what.add_argument("--all", action="store_true", help="every process")
    what.add_argument("traced", nargs="*", metavar="-- COMMAND", help="a command to run")
    how = parser.add_argument_group("how to trace")
    how.add_argument(
        "--method",
        choices=TRACE_METHODS,
        default="auto",
        help="auto (default) takes the best that works, see --explain",
    )
    how.add_argument(
        "--period-us",
        type=whole_number("--period-us", 10, 1_000_000),
        default=100,
        metavar="US",
        help="CPU time between two samples (default 100); a sample itself takes up to 15 us",
    )
    how.add_argument(
        "--max-time",
        type=duration_s,
        metavar="TIME",
        help="stop after 90s, 10m or 1h; a command is ended then",
    )
    how.add_argument(
        "--module",
        default=DRIVER_MODULE,
        metavar="NAME",
        help=f"kernel module with the update path (default {DRIVER_MODULE})",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--output", type=Path, metavar="FILE", help="write the events as Parquet")
    output.add_argument(
        "--flame-graph", type=Path, metavar="FILE", help="draw the sampled stacks as SVG"
    )
    other = parser.add_argument_group("instead of tracing")
    other.add_argument(
        "--explain", action="store_true", help="say which methods work here, and why not"
    )
    other.add_argument(
        "--cleanup", action="store_true", help="take out what earlier traces left in the kernel"
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Trace and show, or explain, or clean up."""
    if arguments.cleanup:
        return _clean_up()
    if arguments.explain:
        return _explain(arguments.module)
    target = _target(arguments)
    _refuse_unwritable(arguments)

    from vmmprof.kernel.methods import choose
    from vmmprof.kernel.session import trace

    method = choose(arguments.method, arguments.module)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        traced = trace(
            method.name,
            target,
            module=arguments.module,
            period_ns=arguments.period_us * 1000,
            max_time_s=arguments.max_time,
        )
    finally:
        signal.signal(signal.SIGTERM, previous)
    _show(arguments, traced)
    return _exit_code(traced)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _target(arguments: argparse.Namespace) -> Target:
    from vmmprof.kernel.session import Target

    chosen = [bool(arguments.traced), arguments.pid is not None, arguments.all]
    if sum(chosen) != 1:
        raise UsageError("say what to trace: one of --pid PID, --all and -- COMMAND")
    return Target(tuple(arguments.traced), arguments.pid)


def _refuse_unwritable(arguments: argparse.Namespace) -> None:
    """Before anything is measured, so that no trace is lost to a typo."""
    for path in (arguments.output, arguments.flame_graph):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: {path.parent} is no folder")


def _explain(module: str) -> ExitCode:
    from vmmprof.kernel.methods import examine
    from vmmprof.report.trace import print_methods

    methods = examine(module)
    print_methods(methods)
    return ExitCode.OK if any(method.works for method in methods) else ExitCode.NOTHING_MEASURED


def _clean_up() -> ExitCode:
    from vmmprof.kernel.methods import cleanup

    for line in cleanup() or ["nothing was left behind"]:
        print(line)
    return ExitCode.OK


def _show(arguments: argparse.Namespace, traced: Trace) -> None:
    import pyarrow.parquet as pq

    from vmmprof.kernel.phases import folded_stacks
    from vmmprof.report.flamegraph import UPDATE_PATH_KINDS, flame_graph
    from vmmprof.report.trace import print_trace

    if arguments.output is not None:
        pq.write_table(traced.events, arguments.output, compression="zstd")
    if arguments.flame_graph is not None:
        folded = folded_stacks(traced.events.to_pandas())
        title = f"sampled: {traced.target}"
        drawn = flame_graph(folded, title, UPDATE_PATH_KINDS, _caption(arguments))
        arguments.flame_graph.write_text(drawn, encoding="utf-8")
    print_trace(traced.events, str(traced.target))
    if traced.exit_status:
        print(
            f"vmmprof: the command ended with status {traced.exit_status}",
            file=sys.stderr,
        )


def _caption(arguments: argparse.Namespace) -> str:
    """What a flame graph's reader must know: period, driver, kernel and command."""
    import os
    import shlex

    from vmmprof.recording.environment import read_text

    return (
        f"Kernel call chains, one sample each {arguments.period_us} us of CPU time. "
        f"Module {arguments.module} {read_text(f'/sys/module/{arguments.module}/version')}, "
        f"kernel {os.uname().release}. Command: {shlex.join(sys.argv)}"
    )


def _exit_code(traced: Trace) -> ExitCode:
    from vmmprof.recording.events import event_facts

    if traced.interrupted:
        return ExitCode.INTERRUPTED
    if traced.exit_status:
        return ExitCode.FAILED
    facts = event_facts(traced.events)
    losses = facts.get("losses") or {"lost_samples": facts.get("lost_samples", 0)}
    if facts["driver_reloaded"] or any(losses.values()):
        return ExitCode.PARTIAL
    return ExitCode.OK if traced.events.num_rows else ExitCode.NOTHING_MEASURED
