# SPDX-License-Identifier: MIT
"""The profiler's bursts against a C twin with pthreads, in one interleaved run.

Every round visits every level with the core, the twin and the twin once more,
in an order that is shuffled anew. The ratio of pooled quantiles (core to twin)
is given with the 95 % interval of resampling rounds, in which all three keep
together; the twin against itself shows what this machine's noise makes of a
ratio of one. The tails are compared by quantile plots.

    python benchmarks/threads_against_twin.py DIR --threads 1,2,4,8 --processes 1,2,4

writes DIR/cycles.parquet, DIR/result.json and DIR/quantiles.png. With
``--within 5%`` the exit code is 1 unless every interval of the P50 ratio lies
within that distance of 1. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.cli.arguments import counts, duration_s, percentage, whole_number
from vmmprof.drivers.cuda import api
from vmmprof.drivers.cuda.driver import CudaDriver
from vmmprof.drivers.cuda.team import burst_memory, primary_contexts
from vmmprof.drivers.window import WorkerTimes, in_window
from vmmprof.errors import NothingMeasuredError, VmmprofError
from vmmprof.experiment.lock import measurement_lock
from vmmprof.experiment.pinning import cpus_to_pin, pinned
from vmmprof.placement import PLAIN, Condition, Level
from vmmprof.recording import environment
from vmmprof.recording.schema import Flag
from vmmprof.report.context import machine_line
from vmmprof.sizes import format_size, parse_size

TWIN, TWIN_AGAIN, CORE = "twin", "twin again", "core"
CONTESTANTS = (TWIN, TWIN_AGAIN, CORE)
QUANTILES = {"P50": 0.5, "P90": 0.9, "P99": 0.99}
WARMUP_ROUNDS = 2
RESAMPLES = 1000
# As in the core: rows that a worker keeps, by its samples.
KEPT_MULTIPLE = 8
COLUMNS = 10
WORKER_ARGUMENT = "--twin-process"

FloatArray = npt.NDArray[np.float64]


class Twin:
    """The twin's threads in this process, in the device's primary context."""

    def __init__(self, library: str, context: Any, device: int, knows_domains: bool) -> None:
        # Its calls bind to the libcuda that is loaded already.
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self._burst = ctypes.CDLL(library).twin_burst
        self._burst.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int),
            *(ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint),
            np.ctypeslib.ndpointer(np.int64, ndim=3, flags="C_CONTIGUOUS"),
            np.ctypeslib.ndpointer(np.uint32, ndim=1, flags="C_CONTIGUOUS"),
        ]
        self._context, self._device, self._knows_domains = int(context), device, knows_domains

    def run(
        self, meeting: memoryview, size_bytes: int, threads: int, workers: int, samples: int
    ) -> list[npt.NDArray[np.int64]]:
        """Rows of each thread: start, end, seven calls, number of the cycle."""
        capacity = KEPT_MULTIPLE * samples + 1
        rows = np.zeros((threads, capacity, COLUMNS), np.int64)
        kept = np.zeros(threads, np.uint32)
        at = ctypes.addressof(ctypes.c_char.from_buffer(meeting))
        status = self._burst(
            *(at, self._context, self._device, size_bytes, self._knows_domains),
            *(threads, workers, samples, capacity, rows, kept),
        )
        if status != 0:
            raise NothingMeasuredError(f"the C twin failed: {api.status_name(status)}")
        return [rows[i, : kept[i]] for i in range(threads)]


class TwinProcess:
    """A process of its own that runs the twin's threads on order."""

    def __init__(self, library: str, memory_fd: int, device: int, knows_domains: bool) -> None:
        here, there = socket.socketpair()
        with there:
            fds = (there.fileno(), memory_fd)
            self._process = subprocess.Popen(
                [
                    *(sys.executable, __file__, WORKER_ARGUMENT, library),
                    *map(str, (*fds, device, int(knows_domains))),
                ],
                pass_fds=fds,
            )
        self._connection: Connection[Any, Any] = Connection(here.detach())

    def order(self, *arguments: int) -> None:
        self._connection.send(arguments)

    def rows(self) -> list[npt.NDArray[np.int64]]:
        try:
            answer = self._connection.recv()
        except EOFError:
            raise NothingMeasuredError("a process of the C twin died") from None
        if isinstance(answer, str):
            raise NothingMeasuredError(answer)
        return list(answer)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def serve(arguments: Sequence[str]) -> int:
    """A TwinProcess from the inside."""
    library, socket_fd, memory_fd, device, knows_domains = arguments[0], *map(int, arguments[1:])
    connection: Connection[Any, Any] = Connection(socket_fd)
    meeting = burst_memory(memory_fd)
    api.call("cuInit", 0)
    with primary_contexts([device]) as contexts:
        twin = Twin(library, contexts[device], device, bool(knows_domains))
        while True:
            try:
                order = connection.recv()
            except EOFError:
                return 0
            try:
                connection.send(twin.run(meeting, *order))
            except NothingMeasuredError as error:
                connection.send(str(error))
                return 3


@dataclass
class TwinRunner:
    """The twin at any level."""

    twin: Twin
    processes: list[TwinProcess]
    own_memory: memoryview
    shared_memory: memoryview

    def burst(self, size_bytes: int, level: Level, samples: int) -> list[npt.NDArray[np.int64]]:
        if level.processes == 1:
            self.own_memory[:64] = bytes(64)
            return self.twin.run(self.own_memory, size_bytes, level.threads, level.workers, samples)
        self.shared_memory[:64] = bytes(64)
        used = self.processes[: level.processes]
        for process in used:
            process.order(size_bytes, level.threads, level.workers, samples)
        return [rows for process in used for rows in process.rows()]


@contextmanager
def twin_runner(driver: CudaDriver, processes: int, include: Path | None) -> Iterator[TwinRunner]:
    from profiler_cost import cuda_include

    knows_domains = driver.domain_count is not None
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        library = str(Path(folder) / "threads_twin.so")
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]
        source = str(Path(__file__).with_name("threads_twin.c"))
        subprocess.run(
            ["cc", *flags, f"-isystem{include or cuda_include()}", "-o", library, source],
            check=True,
        )
        memory_fd = os.memfd_create("threads-twin")
        stack.callback(os.close, memory_fd)
        shared = burst_memory_of(memory_fd)
        contexts = stack.enter_context(primary_contexts([driver.device]))
        started: list[TwinProcess] = []
        for _ in range(processes if processes > 1 else 0):
            started.append(TwinProcess(library, memory_fd, driver.device, knows_domains))
            stack.callback(started[-1].close)
        twin = Twin(library, contexts[driver.device], driver.device, knows_domains)
        yield TwinRunner(twin, started, burst_memory(), shared)


def burst_memory_of(memory_fd: int) -> memoryview:
    """Shared memory of the size that the core's bursts take: more than the twin needs."""
    os.ftruncate(memory_fd, len(burst_memory()))
    return burst_memory(memory_fd)


# -- cycles -------------------------------------------------------------------


def twin_cycles(rows: list[npt.NDArray[np.int64]], samples: int) -> pd.DataFrame:
    """A burst's cycles: worker, repeat, total_ns and whether they count."""
    inside = in_window([WorkerTimes(r[:, 0], r[:, 1]) for r in rows], samples, complete=True)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "worker": worker,
                    "repeat": r[:, -1],
                    "start_ns": r[:, 0],
                    "total_ns": r[:, 2:9].sum(axis=1),
                    "counts": counted,
                }
            )
            for worker, (r, counted) in enumerate(zip(rows, inside, strict=True))
        ],
        ignore_index=True,
    )


def core_cycles(driver: CudaDriver, condition: int, level: Level, samples: int) -> pd.DataFrame:
    """The same of the core, as the profiler records it."""
    burst = driver.run_burst(condition, samples)
    if burst.failures:
        raise NothingMeasuredError("; ".join(str(failure) for failure in burst.failures))
    batch, workers = burst.batch, burst.batch.workers
    assert workers is not None
    return pd.DataFrame(
        {
            "worker": workers.process.astype(int) * level.threads + workers.thread,
            "repeat": workers.repeat,
            "start_ns": batch.start_ns,
            "total_ns": batch.total_ns,
            "counts": (batch.flags & int(Flag.OUTSIDE_WINDOW)) == 0,
        }
    )


def measure(arguments: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """All cycles, with contestant, level and round; and the machine in a line."""
    levels = [
        Level(processes, threads)
        for processes in arguments.processes
        for threads in arguments.threads
    ]
    shuffle = random.Random(arguments.seed)
    size_bytes, samples = arguments.size, arguments.burst
    cycles: list[pd.DataFrame] = []
    with (
        measurement_lock(),
        CudaDriver(arguments.device) as driver,
        pinned(cpus_to_pin("auto", driver.pci_bus_id)[0]),
        twin_runner(driver, max(arguments.processes), arguments.cuda_include) as twin,
    ):
        machine = machine_line({"gpu": driver.environment(), "machine": environment.machine()})
        driver.prepare([Condition(PLAIN, size_bytes, level=level) for level in levels])
        visits = [(name, i) for name in CONTESTANTS for i in range(len(levels))]
        end_s = time.monotonic() + arguments.max_time
        for number in range(-WARMUP_ROUNDS, arguments.rounds):
            if time.monotonic() > end_s:
                print(f"stopped after {number} rounds: --max-time", file=sys.stderr)
                break
            for name, i in shuffle.sample(visits, len(visits)):
                if name == CORE:
                    found = core_cycles(driver, i, levels[i], samples)
                else:
                    found = twin_cycles(twin.burst(size_bytes, levels[i], samples), samples)
                if number >= 0:
                    level = levels[i]
                    cycles.append(
                        found.assign(
                            contestant=name,
                            processes=level.processes,
                            threads=level.threads,
                            round=number,
                        )
                    )
    if not cycles:
        raise NothingMeasuredError("no round was finished; give a longer --max-time")
    return pd.concat(cycles, ignore_index=True), machine


# -- comparison ---------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One level: quantile grid, pooled times of the contestants, ratios by resampled rounds.

    ``ratios``: contestant to the twin at each of ``grid``, shape (grid,);
    ``lo`` and ``hi`` are the ends of their 95 % intervals.
    """

    level: Level
    grid: FloatArray
    pooled_ns: dict[str, FloatArray]
    ratios: dict[str, FloatArray]
    lo: dict[str, FloatArray]
    hi: dict[str, FloatArray]
    rounds: int

    def ratio(self, name: str, q: float) -> tuple[float, float, float]:
        """Value and interval at a quantile of the grid."""
        at = int(np.flatnonzero(np.isclose(self.grid, q))[0])
        return (float(self.ratios[name][at]), float(self.lo[name][at]), float(self.hi[name][at]))


def quantile_grid(n: int) -> FloatArray:
    """From P1 on, as far out as ten of n samples lie beyond."""
    tail = max(10 / n, 1e-4)
    beyond = np.geomspace(0.5, tail, 25)
    grid = np.concatenate([np.linspace(0.01, 0.5, 15), 1 - beyond, list(QUANTILES.values())])
    return np.unique(np.round(grid[grid <= 1 - tail + 1e-12], 6))


def compare(cycles: pd.DataFrame, level: Level, seed: int) -> Comparison:
    of_level = cycles[
        cycles["counts"]
        & (cycles["processes"] == level.processes)
        & (cycles["threads"] == level.threads)
    ]
    by_round: dict[str, list[FloatArray]] = {}
    for name in CONTESTANTS:
        groups = of_level[of_level["contestant"] == name].groupby("round")["total_ns"]
        by_round[name] = [times.to_numpy(np.float64) for _, times in groups]
    pooled = {name: np.concatenate(parts) for name, parts in by_round.items()}
    grid = quantile_grid(min(len(times) for times in pooled.values()))
    rounds = min(len(parts) for parts in by_round.values())
    rng = np.random.default_rng(seed)
    resampled: dict[str, list[FloatArray]] = {name: [] for name in CONTESTANTS}
    for _ in range(RESAMPLES):
        chosen = rng.integers(rounds, size=rounds)
        for name in CONTESTANTS:
            drawn = np.concatenate([by_round[name][i] for i in chosen])
            resampled[name].append(np.quantile(drawn, grid))
    quantiles = {name: np.quantile(times, grid) for name, times in pooled.items()}
    ratios, lo, hi = {}, {}, {}
    for name in CONTESTANTS[1:]:
        ratios[name] = quantiles[name] / quantiles[TWIN]
        draws = np.array(resampled[name]) / np.array(resampled[TWIN])
        lo[name], hi[name] = np.quantile(draws, (0.025, 0.975), axis=0)
    return Comparison(level, grid, pooled, ratios, lo, hi, rounds)


def print_comparisons(size_bytes: int, comparisons: Sequence[Comparison]) -> None:
    print(f"plain {format_size(size_bytes)}: us of the twin, ratio to it [95 % interval]")
    print(f"{'proc':>4} {'thr':>3} {'':<3} {'twin':>8} {'core':>21} {'twin again':>21}")
    for comparison in comparisons:
        for word, q in QUANTILES.items():
            if not np.isclose(comparison.grid, q).any():
                continue
            twin_us = float(np.quantile(comparison.pooled_ns[TWIN], q)) / 1000
            cells = " ".join(
                f"{value:.3f} [{lo:.3f}, {hi:.3f}]"
                for value, lo, hi in (comparison.ratio(n, q) for n in (CORE, TWIN_AGAIN))
            )
            level = comparison.level
            print(f"{level.processes:>4} {level.threads:>3} {word} {twin_us:>8.1f} {cells}")


def as_json(arguments: argparse.Namespace, comparisons: Sequence[Comparison]) -> dict[str, object]:
    return {
        "size_mib": arguments.size / (1 << 20),
        "samples_a_worker": arguments.burst,
        "levels": [
            {
                "processes": c.level.processes,
                "threads": c.level.threads,
                "rounds": c.rounds,
                "cycles": {name: len(times) for name, times in c.pooled_ns.items()},
                "quantiles": {
                    word: {
                        "us": {
                            name: float(np.quantile(times, q)) / 1000
                            for name, times in c.pooled_ns.items()
                        },
                        **{
                            f"{name.replace(' ', '_')}_to_twin": dict(
                                zip(("value", "lo", "hi"), c.ratio(name, q), strict=True)
                            )
                            for name in CONTESTANTS[1:]
                        },
                    }
                    for word, q in QUANTILES.items()
                    if np.isclose(c.grid, q).any()
                },
            }
            for c in comparisons
        ],
    }


def cycles_words(comparisons: Sequence[Comparison]) -> str:
    """What stands behind each panel, and what its band is."""
    rounds = {comparison.rounds for comparison in comparisons}
    counts = [min(len(t) for t in comparison.pooled_ns.values()) for comparison in comparisons]
    return (
        f"Every cycle in the window of its burst: n = {', '.join(map(str, counts))} or more of "
        f"each contestant, from left to right, of {min(rounds)} rounds; bands: 95 % intervals by "
        "resampled rounds"
    )


def draw(comparisons: Sequence[Comparison], size_bytes: int, caption: str, path: Path) -> None:
    """Quantiles of the core over those of the twin, and their ratio towards the tail."""
    from matplotlib.figure import Figure

    width_inches = max(6.8, 2.9 * len(comparisons) + 1)
    figure = Figure(figsize=(width_inches, 6.6), layout="constrained")
    axes = figure.subplots(2, len(comparisons), squeeze=False)
    for column, comparison in enumerate(comparisons):
        _draw_quantiles(axes[0, column], comparison)
        _draw_ratio(axes[1, column], comparison)
    for one in axes.flat:
        one.tick_params(labelsize="x-small")
    axes[0, 0].set_ylabel("quantiles of the core, us", fontsize="small")
    axes[1, 0].set_ylabel("ratio to the twin at this quantile", fontsize="small")
    figure.suptitle(
        f"Bursts of the core against a C twin, plain {format_size(size_bytes)}, one interleaved run"
    )
    words = textwrap.fill(caption, int(16 * width_inches))
    figure.supxlabel(words, fontsize="x-small", x=0.01, ha="left")
    figure.savefig(path, dpi=130)


def _draw_quantiles(axes: Any, comparison: Comparison) -> None:
    core = np.quantile(comparison.pooled_ns[CORE], comparison.grid) / 1000
    twin = np.quantile(comparison.pooled_ns[TWIN], comparison.grid) / 1000
    ends = (min(core.min(), twin.min()) * 0.9, max(core.max(), twin.max()) * 1.1)
    axes.plot(ends, ends, color="0.6", linewidth=0.8)
    axes.plot(twin, core, ".", color="tab:blue")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _plain_log_ticks(axis, ends[1] / ends[0])
    axes.set_xlabel("quantiles of the twin, us", fontsize="small")
    axes.set_title(str(comparison.level), fontsize="medium")


def _plain_log_ticks(axis: Any, factor: float) -> None:
    """Few round numbers without an exponent, however far apart an axis' ends are."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if factor < 8:
        axis.set_major_locator(MaxNLocator(4))
    else:
        # Beyond two decades the labels between the powers of ten would run into each other.
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if factor < 100 else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.12g}"))


def _draw_ratio(axes: Any, comparison: Comparison) -> None:
    beyond = 1 - comparison.grid
    for name, colour in ((TWIN_AGAIN, "0.5"), (CORE, "tab:blue")):
        axes.fill_between(
            beyond, comparison.lo[name], comparison.hi[name], color=colour, alpha=0.25, linewidth=0
        )
        axes.plot(beyond, comparison.ratios[name], color=colour, label=name)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_log_ticks(axes.xaxis, beyond.max() / beyond.min())
    low, high = axes.get_ylim()
    _plain_log_ticks(axes.yaxis, high / low)
    axes.invert_xaxis()
    axes.set_xlabel("share of cycles that take longer", fontsize="small")
    axes.legend(fontsize="x-small", loc="upper left")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--size", type=parse_size, default=parse_size("64M"), metavar="SIZE")
    parser.add_argument("--threads", type=counts("--threads"), default=(1, 2, 4, 8))
    parser.add_argument("--processes", type=counts("--processes"), default=(1,))
    parser.add_argument("--burst", type=whole_number("--burst", 1, 10_000), default=40)
    parser.add_argument("--rounds", type=whole_number("--rounds", 6), default=200, metavar="N")
    parser.add_argument("--max-time", type=duration_s, default=170.0, metavar="TIME")
    parser.add_argument("--device", type=whole_number("--device", 0), default=0, metavar="N")
    parser.add_argument("--seed", type=whole_number("--seed", 0), default=0, metavar="N")
    parser.add_argument("--within", type=percentage, metavar="P%", help="fail outside of 1 +- P%%")
    parser.add_argument("--cuda-include", type=Path, metavar="DIR", help="folder of cuda.h")
    return parser.parse_args(argv)


def outside(comparisons: Sequence[Comparison], within: float) -> list[str]:
    """Levels whose P50 ratio's interval is not within the bounds, as texts."""
    failures = []
    for comparison in comparisons:
        value, lo, hi = comparison.ratio(CORE, 0.5)
        if not (1 - within <= lo and hi <= 1 + within):
            failures.append(
                f"{comparison.level}: P50 of core to twin {value:.3f} [{lo:.3f}, {hi:.3f}] is "
                f"not within {1 - within:.2f}..{1 + within:.2f}"
            )
    return failures


def main(argv: Sequence[str]) -> int:
    if argv[:1] == [WORKER_ARGUMENT]:
        return serve(argv[1:])
    try:
        arguments = parse_arguments(argv)
        cycles, machine = measure(arguments)
    except VmmprofError as error:
        print(f"threads_against_twin: error: {error}", file=sys.stderr)
        return int(error.exit_code)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    cycles.to_parquet(arguments.folder / "cycles.parquet", compression="zstd")
    levels = sorted(
        {
            Level(p, t)
            for p, t in cycles[["processes", "threads"]].drop_duplicates().to_numpy().tolist()
        }
    )
    comparisons = [compare(cycles, level, arguments.seed) for level in levels]
    print_comparisons(arguments.size, comparisons)
    text = json.dumps(as_json(arguments, comparisons), indent=1) + "\n"
    (arguments.folder / "result.json").write_text(text, encoding="utf-8")
    command = shlex.join(["python", "benchmarks/threads_against_twin.py", *argv])
    caption = f"{cycles_words(comparisons)}. {machine}. Command: {command}"
    draw(comparisons, arguments.size, caption, arguments.folder / "quantiles.png")
    failures = [] if arguments.within is None else outside(comparisons, arguments.within)
    for failure in failures:
        print(f"threads_against_twin: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
