# SPDX-License-Identifier: MIT
"""``vmmprof sweep``: measure the VMM cycle over sizes and placements."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vmmprof.cli import show
from vmmprof.cli.arguments import (
    MAX_WORKERS,
    TRACE_METHODS,
    counts,
    device_set,
    duration_s,
    percentage,
    rate_of,
    whole_number,
)
from vmmprof.drivers.select import CHOICES, PATCHES
from vmmprof.errors import ExitCode, UsageError
from vmmprof.sizes import parse_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vmmprof.drivers.protocol import Driver, VictimRequest
    from vmmprof.drivers.select import Selection
    from vmmprof.experiment.plan import Plan
    from vmmprof.experiment.runner import Progress
    from vmmprof.experiment.session import Request, Result
    from vmmprof.experiment.traced import TracedDriver
    from vmmprof.placement import Level
    from vmmprof.variant import Variant

VICTIMS = ("query", "alloc", "launch")
DEFAULT_SIZES = "2M:1G:x2"

_DESCRIPTION = """\
Time cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap,
cuMemRelease and cuMemAddressFree, call by call, for every size and placement.
Plain device memory is always measured along: it is the control that every
other placement is compared with, pair by pair within a round.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "sweep",
        help="measure the VMM cycle over sizes and placements",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "--sizes",
        type=parse_sizes,
        default=parse_sizes(DEFAULT_SIZES),
        metavar="SIZES",
        help="such as 2M, 1K,4K,2M, 30M:66M:2M or 2M:1G:x2, binary units "
        f"(default {DEFAULT_SIZES})",
    )
    what.add_argument(
        "--placement",
        action="append",
        metavar="PLACEMENT",
        help="device, domain:N, domain:all, compressible, rdma, and noncontiguous with "
        "--driver rm or a model, joined by +; repeatable (default: device and every locality "
        "domain)",
    )
    what.add_argument(
        "--api",
        choices=("vmm", "pool"),
        default="vmm",
        help="vmm (default), or pool: cuMemAllocFromPoolAsync and cuMemFreeAsync, cold and warm",
    )
    what.add_argument(
        "--variant",
        action="append",
        metavar="VARIANT",
        help="also measure the cycle otherwise: chunks:SIZE (memory in chunks), peers:N (access "
        "for N devices in one call), peers:N:calls (in N calls), busy (a long kernel in flight), "
        "joined by +; repeatable",
    )
    what.add_argument(
        "--green-context",
        action="append",
        metavar="SMS",
        help="also measure in a green context: of that many SMs, of those of domain:N, or domains: "
        "a thread in each; repeatable",
    )
    what.add_argument(
        "--scatter",
        action="store_true",
        help="measure each condition also while every other 2 MiB of free memory is held, in "
        "alternating blocks; needs a GPU that nobody else uses",
    )
    what.add_argument(
        "--driver",
        default="auto",
        metavar="DRIVER",
        help=f"one of {', '.join(CHOICES)} (default auto: cuda where a device can be used, "
        "else a model that says MODEL)",
    )
    what.add_argument(
        "--device",
        type=whole_number("--device", 0, 4095),
        metavar="N",
        help="CUDA device ordinal (default 0)",
    )
    what.add_argument(
        "--patch",
        choices=PATCHES,
        default="none",
        help="driver patch to model, with --driver model:* (default none)",
    )
    several = parser.add_argument_group("several at once (docs/concurrency.md)")
    several.add_argument(
        "--threads",
        type=counts("--threads"),
        metavar="LIST",
        help="such as 1,2,4,8: threads on each device of each process, started together; "
        "each number is a level of its own (default 1)",
    )
    several.add_argument(
        "--processes",
        type=counts("--processes"),
        metavar="LIST",
        help="such as 1,2,4: processes with contexts of their own (default 1)",
    )
    several.add_argument(
        "--devices",
        type=device_set,
        action="append",
        metavar="SET",
        help="such as 0,1, or all: devices that allocate at the same time, in place of "
        "--device; repeatable with sets of different length",
    )
    several.add_argument(
        "--burst",
        type=whole_number("--burst", 1, 10_000),
        default=40,
        metavar="N",
        help="cycles of each worker in one visit of a level (default 40)",
    )
    several.add_argument(
        "--rate",
        type=rate_of("--rate", "cycles"),
        metavar="R",
        help="let each worker start R cycles a second, however long they take, and show the "
        "latency from the intended start",
    )
    several.add_argument(
        "--victim",
        choices=VICTIMS,
        help="let one more thread do a small thing again and again beside every burst, and "
        "alone: query (cuMemGetInfo), alloc (cuMemCreate and cuMemRelease of 2 MiB), launch "
        "(an empty kernel, waited for)",
    )
    several.add_argument(
        "--victim-device",
        type=whole_number("--victim-device", 0, 4095),
        metavar="N",
        help="device of the victim (default: the first that is measured)",
    )
    how = parser.add_argument_group("how to measure")
    how.add_argument(
        "--repeats",
        type=whole_number("--repeats", 1),
        default=30,
        metavar="N",
        help="cycles a condition (default 30)",
    )
    how.add_argument(
        "--warmup",
        type=whole_number("--warmup", 0),
        default=3,
        metavar="N",
        help="rounds before, recorded but left out (default 3)",
    )
    how.add_argument(
        "--order",
        choices=("interleaved", "sequential"),
        default="interleaved",
        help="interleaved (default): every round visits every condition, shuffled afresh",
    )
    how.add_argument(
        "--max-time",
        type=duration_s,
        metavar="TIME",
        help="stop measuring after 90s, 10m or 1h; what was measured is kept",
    )
    how.add_argument(
        "--until-ci",
        type=percentage,
        metavar="P%",
        help="go on until the 95 %% interval of each median is within P%% of it to either "
        "side; looked at when n doubles, from 30 on",
    )
    how.add_argument(
        "--pin",
        default="auto",
        metavar="CPUS",
        help="auto (default: the CPUs of the GPU's NUMA node), none, or a list such as 0,2-3",
    )
    how.add_argument(
        "--seed",
        type=whole_number("--seed", 0, 2**31),
        default=0,
        metavar="N",
        help="seed of the visiting order (default 0)",
    )
    how.add_argument(
        "--nvtx",
        action="store_true",
        help="put an NVTX range around every call, for a profiler that is attached to this "
        "process; what the profiler takes for it is then in the times",
    )
    how.add_argument(
        "--trace",
        nargs="?",
        const="auto",
        choices=TRACE_METHODS,
        metavar="METHOD",
        help="trace the driver's update path in every other round, by the best method that "
        "works here or by METHOD (vmmprof trace --explain)",
    )
    how.add_argument("--no-lock", action="store_true", help="measure although another vmmprof does")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        metavar="NAME",
        help="name of the recording, a folder NAME.vmmprof (default: driver and time)",
    )
    show.add_arguments(output)
    output.add_argument(
        "--quiet", action="store_true", help="print no progress and no result, only problems"
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure, save, show."""
    from vmmprof.drivers.select import select
    from vmmprof.experiment.session import measure
    from vmmprof.report.progress import ProgressLine

    arguments.device = _first_device(arguments)
    selection = select(arguments.driver, arguments.device, arguments.patch)
    if selection.fallback_reason is not None:
        _say(
            f"no CUDA device can be used: {selection.fallback_reason}\n"
            f"MODEL: {selection.driver.name} runs instead; nothing below is measured"
        )
    if arguments.nvtx:
        _mark_calls(arguments, selection.driver)
    request = _request(arguments, selection)
    show.require_plot_directory(arguments, request.output)
    line = ProgressLine()

    def show_progress(progress: Progress) -> None:
        if not arguments.quiet:
            line.show(progress.done, progress.planned, progress.seconds_left, progress.doing)

    def show_plan(plan: Plan) -> None:
        if arguments.json or arguments.quiet:  # else the report has them
            for note in plan.notes:
                _say(f"note: {note}")
        for reason in plan.unavailable.values():
            _say(f"not measured: {reason}")

    traced: TracedDriver | None = None
    with ExitStack() as stack:
        stack.callback(line.close)
        driver = selection.driver
        if arguments.trace is not None:
            driver, traced = _traced(arguments, driver, stack)
        result = measure(driver, request, show_plan, show_progress)
        if traced is not None:
            from vmmprof.recording.events import write_events

            write_events(result.path, traced.events())
    _show_result(arguments, result)
    return result.exit_code


def _traced(
    arguments: argparse.Namespace, driver: Driver, stack: ExitStack
) -> tuple[Driver, TracedDriver]:
    """The driver with a probe on this process, which ``stack`` takes away again."""
    from vmmprof.experiment.traced import TracedDriver
    from vmmprof.kernel.methods import choose
    from vmmprof.kernel.session import open_probe

    if driver.is_model:
        raise UsageError(f"--trace: {driver.name} runs no kernel driver; leave it out")
    needs_more = (arguments.threads, arguments.processes, arguments.devices, arguments.victim)
    differs = (arguments.rate, arguments.variant, arguments.green_context, arguments.api != "vmm")
    if any(needs_more) or any(differs):
        raise UsageError(
            "--trace goes with single usual cycles; leave --threads, --variant and the like out"
        )
    if arguments.order == "sequential" or arguments.repeats < 2:
        raise UsageError(
            "--trace takes every other round: --repeats 2 or more, in the order interleaved"
        )
    method = choose(arguments.trace)
    probe = stack.enter_context(open_probe(method.name, os.getpid()))
    return TracedDriver.wrapping(driver, probe)


def _mark_calls(arguments: argparse.Namespace, driver: Driver) -> None:
    """NVTX ranges around the calls that this process makes."""
    if driver.name != "cuda":
        raise UsageError(f"--nvtx marks calls of the CUDA driver; {driver.name} makes none")
    if arguments.processes:
        raise UsageError("--nvtx marks the calls of one process; leave --processes out")
    from vmmprof.drivers.cuda.driver import CudaDriver

    assert isinstance(driver, CudaDriver)
    driver.mark_calls()


def _first_device(arguments: argparse.Namespace) -> int:
    """The device that single cycles and the recording's facts are about."""
    if not arguments.devices:
        return int(arguments.device or 0)
    if arguments.device is not None:
        raise UsageError("--device and --devices exclude each other; --devices names them all")
    return int(arguments.devices[0][0]) if arguments.devices[0] else 0


def _device_sets(arguments: argparse.Namespace, driver: Driver) -> list[tuple[int, ...]]:
    from vmmprof.drivers.protocol import ConcurrentDriver

    if not arguments.devices:
        return []
    if not isinstance(driver, ConcurrentDriver):
        raise UsageError(f"--devices: --driver {driver.name} has one device; leave it out")
    sets = [group or tuple(range(driver.device_count)) for group in arguments.devices]
    if len({len(group) for group in sets}) < len(sets):
        raise UsageError("--devices: two sets have the same number of devices; measure them apart")
    return sets


def _variants(arguments: argparse.Namespace) -> list[Variant]:
    """The usual cycle first, as the control of all; pools are measured cold and warm."""
    from vmmprof.variant import POOLS, STANDARD, Variant, parse_variant

    texts = list(arguments.variant or ())
    texts += [f"green:{text.replace(':', '')}" for text in arguments.green_context or ()]
    asked = [parse_variant(text) for text in texts]
    if arguments.api == "pool":
        if asked:
            raise UsageError(
                "--variant and --green-context change a VMM cycle; leave them out with --api pool"
            )
        return [Variant(pool=kind) for kind in POOLS]
    if any(variant.pool for variant in asked):
        raise UsageError("--variant pool: ask for --api pool, which measures cold and warm")
    return list(dict.fromkeys([STANDARD, *asked]))


def _victim(arguments: argparse.Namespace) -> VictimRequest | None:
    from vmmprof.drivers.protocol import VictimRequest

    if arguments.victim is None:
        if arguments.victim_device is not None:
            raise UsageError("--victim-device needs --victim query, alloc or launch")
        return None
    device = arguments.victim_device
    return VictimRequest(arguments.victim, arguments.device if device is None else device)


def _levels(arguments: argparse.Namespace, device_sets: Sequence[tuple[int, ...]]) -> list[Level]:
    from vmmprof.placement import Level

    levels = [
        Level(processes, threads, devices)
        for devices in sorted(len(group) for group in device_sets) or [1]
        for processes in arguments.processes or (1,)
        for threads in arguments.threads or (1,)
    ]
    most = max(level.workers for level in levels)
    if most > MAX_WORKERS:
        raise UsageError(f"{most} workers at once are too many; the most is {MAX_WORKERS}")
    return levels


def _request(arguments: argparse.Namespace, selection: Selection) -> Request:
    from vmmprof.doctor import session_facts
    from vmmprof.experiment.runner import Options
    from vmmprof.experiment.session import Request
    from vmmprof.recording.writer import recording_path

    driver = selection.driver
    device_sets = _device_sets(arguments, driver)
    name = arguments.output or time.strftime(
        f"vmmprof-{driver.name.replace(':', '-')}-%Y%m%d-%H%M%S"
    )
    return Request(
        sizes=arguments.sizes,
        placements=arguments.placement,
        scatter=arguments.scatter,
        options=Options(
            repeats=arguments.repeats,
            warmup=arguments.warmup,
            order=arguments.order,
            max_time_s=arguments.max_time,
            until_ci=arguments.until_ci,
            seed=arguments.seed,
            burst=arguments.burst,
            rate=arguments.rate,
        ),
        pin=arguments.pin,
        lock=not arguments.no_lock,
        device=arguments.device,
        output=recording_path(name),
        command=["vmmprof", *(shlex.quote(word) for word in sys.argv[1:])],
        facts={} if driver.is_model else session_facts(arguments.device),
        levels=_levels(arguments, device_sets),
        device_sets=device_sets,
        victim=_victim(arguments),
        variants=_variants(arguments),
        api=arguments.api,
    )


def _show_result(arguments: argparse.Namespace, result: Result) -> None:
    from vmmprof.report.context import half_width_words
    from vmmprof.report.numbers import percent

    for what, reason in result.outcome.unavailable.items():
        _say(f"not measured: {what}: {reason}")
    for condition, reason in result.outcome.failed.items():
        _say(f"given up: {condition}: {reason}")
    if result.outcome.ended_early is not None:
        _say(f"ended early: {result.outcome.ended_early}; what was measured is saved")
    for condition, width in result.outcome.not_converged.items():
        _say(
            f"not converged: {condition}: {half_width_words(width)}, "
            f"not within {percent(arguments.until_ci)}"
        )
    if result.not_given_back is not None:
        _say(f"not given back: {result.not_given_back}; it goes with this process")
    if result.usable == 0:
        _say(f"nothing was measured; the attempts are in {result.path}")
        return
    show.show(str(result.path), arguments, table=not arguments.quiet)
    if not arguments.json and not arguments.quiet:
        print(f"recording: {result.path}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
