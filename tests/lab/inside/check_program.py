# SPDX-License-Identifier: MIT
"""``vmmprof trace`` as a user runs it, and the sampling method on a kernel that runs."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from vmmprof.cli.main import main
from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.sampling import Sampler, SampleSet
from vmmprof.kernel.update_path import Direction
from vmmprof.recording.events import event_facts

from .mock import DEBUGFS, HAS_REAL, Mock, Request, insert, loaded

# As the driver's core, these have no ftrace pads.
PADLESS = ["padless", "real"] if HAS_REAL else ["padless"]


class Program:
    """``vmmprof trace`` in this process: a new one takes half a minute under emulation."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        self._capture.readouterr()
        status = main(["trace", *arguments])
        captured = self._capture.readouterr()
        return int(status), captured.out, captured.err


@pytest.fixture
def trace(capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(capfd)


def _updates(mock: str, count: int) -> list[str]:
    """A command that makes update calls of 8 iterations from a child of its own."""
    run = Request(8, barrier_ns=1000, tlb_ns=1000, outside_calls=5).packed()
    program = (
        "import os\n"
        "if os.fork():\n    os.wait()\n"
        f"else:\n    for _ in range({count}):\n"
        f"        open('{DEBUGFS}/{mock}/run', 'wb').write({run!r})\n"
    )
    return [sys.executable, "-c", program]


@pytest.mark.parametrize("core", PADLESS)
def test_counting_a_command(tmp_path: Path, trace: Program, core: str) -> None:
    output = tmp_path / "events.parquet"
    with loaded(core, "stock") as mock:
        command = _updates(mock.name, 7)
        status, out, err = trace("--module", mock.name, "--output", str(output), "--", *command)
    assert status == 0, err
    assert "method: module" in out
    events = pq.read_table(output)
    assert events["iterations"].to_pylist() == [8] * 7
    assert events["direction"].to_pylist() == ["commit"] * 7
    assert events["phase"].null_count == 7
    assert event_facts(events)["losses"]["probes_missed"] == 0
    assert "lost: nothing" in out


def test_sampling_a_command(tmp_path: Path, trace: Program) -> None:
    picture, output = tmp_path / "flame.svg", tmp_path / "events.parquet"
    with loaded("padded", "stock") as mock:
        status, out, err = trace(
            *("--module", mock.name, "--method", "sampling"),
            *("--flame-graph", str(picture), "--output", str(output)),
            "--",
            *_updates(mock.name, 200),
        )
    assert status in (0, 4), err
    assert "method: sampling" in out
    assert "unknown to this method" in " ".join(out.split())
    assert "dmaUpdateVASpace_GF100" in picture.read_text()
    events = pq.read_table(output)
    assert "tlb" in events["phase"].to_pylist()
    assert events["iterations"].null_count == len(events)


def test_a_command_s_failure_is_passed_on(trace: Program) -> None:
    with loaded("padded", "stock") as mock:
        arguments = ("--module", mock.name, "--method", "sampling", "--")
        failed, _, failed_err = trace(*arguments, "sh", "-c", "exit 5")
        absent, _, absent_err = trace(*arguments, "/no/such/program")
    assert (failed, absent) == (1, 1)
    assert "ended with status 5" in failed_err
    assert "/no/such/program: No such file or directory" in absent_err


@pytest.mark.parametrize("core", PADLESS)
def test_methods_are_explained(trace: Program, core: str) -> None:
    with loaded(core, "stock") as mock:
        status, padless, _ = trace("--module", mock.name, "--explain")
        forced, _, err = trace("--module", mock.name, "--method", "kprobe", "--", "true")
    assert status == 0
    assert "kprobe: no" in padless
    assert "has no ftrace pad" in " ".join(padless.split())
    assert "module: yes, the best" in padless
    assert forced == 3
    assert "has no ftrace pad" in err
    assert len(err.splitlines()) == 1
    with loaded("padded", "stock") as mock:
        _, padded, _ = trace("--module", mock.name, "--explain")
    assert "kprobe: yes, the best" in padded


def _sampled(mock: Mock) -> SampleSet:
    """Samples of commits and releases, with calls of flush and invalidate by others between."""
    with Sampler(os.getpid(), module=mock.name) as sampler:
        sampler.start()
        for release in (0, 1):
            for _ in range(10):
                mock.run(Request(64, 1, 20_000, 40_000, 40_000, 0, 200, release))
                sampler.poll()
        sampler.stop()
        sampler.poll()
        return sampler.result()


def test_sampling_attributes_phases_and_directions() -> None:
    with loaded("padded", "stock") as mock:
        result = _sampled(mock)
    found = [result.attributions[index] for index in result.stack]
    directions = {item.direction for item in found if item.phase is Phase.TLB}
    assert directions == {Direction.COMMIT, Direction.RELEASE}
    counts = Counter(item.phase for item in found)
    # Each phase is seen many times. What share each has is not asserted: under emulation the
    # sampling clock ticks in step with the work, and one phase can catch three quarters of it.
    for phase in (Phase.PTE, Phase.BARRIER, Phase.TLB, Phase.OUTSIDE):
        assert counts[phase] >= 10, counts


def test_sampling_says_what_it_cannot_tell() -> None:
    """Without unwind data for the core its chains are cut at once: never taken for outside."""
    with loaded("padless", "stock") as mock:
        result = _sampled(mock)
    inner = {"kbusFlush_GM107", "gvaspaceInvalidateTlb_IMPL", "mmuWalkMap"}
    phases = Counter(
        result.attributions[index].phase
        for index in result.stack
        if inner & set(result.stacks[index])
    )
    cut = phases[Phase.UNATTRIBUTED]
    whole = phases[Phase.PTE] + phases[Phase.BARRIER] + phases[Phase.TLB]
    assert cut + whole > 100
    # What is neither are whole chains of the calls from outside the update function.
    assert phases[Phase.OUTSIDE] < 0.2 * (cut + whole)


def test_sampling_sees_no_path_where_there_is_none() -> None:
    with (
        loaded("padless", "stock") as mock,
        Sampler(os.getpid(), module=mock.name) as sampler,
    ):
        sampler.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            os.stat("/")  # noqa: PTH116
            sampler.poll()
        sampler.stop()
        sampler.poll()
        result = sampler.result()
    phases = {result.attributions[index].phase for index in result.stack}
    assert phases <= {Phase.USER, Phase.OUTSIDE, Phase.UNATTRIBUTED}
    assert Phase.OUTSIDE in phases


def test_cleanup_unloads_the_module(trace: Program) -> None:
    status, out, _ = trace("--cleanup")
    assert status == 0
    assert "module vmmprof_probe unloaded" in out
    assert insert("vmmprof_probe").returncode == 0
