# SPDX-License-Identifier: MIT
"""``vmmprof trace`` as a user runs it, and the sampling method on a kernel that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from vmmprof.cli.main import main
from vmmprof.kernel import session
from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.sampling import Sampler, SampleSet
from vmmprof.kernel.update_path import Direction
from vmmprof.recording.events import event_facts

from .mock import DEBUGFS, HAS_REAL, Mock, Request, insert, loaded

# Rounds after which a check gives up; a few are enough.
MAX_ROUNDS = 1000
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
    run = Request(8, barrier_ns=20_000, tlb_ns=20_000, outside_calls=5).packed()
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


class Caller:
    """A process that makes an update call whenever it is told to, itself or by a child."""

    def __init__(self, mock: Mock) -> None:
        program = (
            "import os, sys\n"
            "for line in iter(sys.stdin.readline, ''):\n"
            "    who, request = line.split()\n"
            "    if who == 'child' and os.fork():\n"
            "        os.wait()\n"
            "    else:\n"
            f"        open('{DEBUGFS}/{mock.name}/run', 'wb').write(bytes.fromhex(request))\n"
            "        if who == 'child':\n"
            "            os._exit(0)\n"
            "    print(flush=True)\n"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pid = self._process.pid

    def call(self, iterations: int, who: str = "self") -> None:
        """The call has been made when this returns."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{who} {Request(iterations).packed().hex()}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"\n"

    def end(self) -> None:
        """It is gone when this returns; nothing when it was."""
        self._process.communicate()


@pytest.mark.parametrize("what", ["pid", "all"])
def test_whose_calls_are_counted(
    tmp_path: Path, trace: Program, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """--pid counts the process and the children it starts, --all counts everybody."""
    output = tmp_path / "events.parquet"
    with loaded("padless", "stock") as mock:
        target, bystander = Caller(mock), Caller(mock)
        follow = session._follow

        def drive_and_follow(*arguments: Any) -> None:
            target.call(8)
            bystander.call(3)
            target.call(5, "child")
            bystander.call(2, "child")
            target.end()
            follow(*arguments)

        # By then the probe is attached.
        monkeypatch.setattr(session, "_follow", drive_and_follow)
        chosen = ["--pid", str(target.pid)] if what == "pid" else ["--all", "--max-time", "1s"]
        try:
            status, _, err = trace("--module", mock.name, "--output", str(output), *chosen)
        finally:
            target.end()
            bystander.end()
    assert status == 0, err
    events = pq.read_table(output).to_pydict()
    assert events["iterations"] == ([8, 5] if what == "pid" else [8, 3, 5, 2])
    if what == "pid":
        assert events["pid"][0] == target.pid != events["pid"][1]
    else:
        assert events["pid"][:2] == [target.pid, bystander.pid]
        assert len(set(events["pid"])) == 4


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


def _sampled(mock: Mock, outside_calls: int, enough: Callable[[SampleSet], bool]) -> SampleSet:
    """Samples of commits and releases, taken until there are enough of them.

    How many a run gives depends on how often the machine lets the guest run.
    """
    with Sampler(os.getpid(), module=mock.name) as sampler:
        sampler.start()
        for _ in range(MAX_ROUNDS):
            for release in (0, 1):
                mock.run(Request(64, 1, 20_000, 40_000, 40_000, 0, outside_calls, release))
                sampler.poll()
            if enough(sampler.result()):
                break
        sampler.stop()
        sampler.poll()
        return sampler.result()


def _phases(result: SampleSet) -> Counter[Phase]:
    return Counter(result.attributions[index].phase for index in result.stack)


def _tlb_directions(result: SampleSet) -> set[Direction | None]:
    found = (result.attributions[index] for index in result.stack)
    return {item.direction for item in found if item.phase is Phase.TLB}


def test_sampling_attributes_phases_and_directions() -> None:
    """Each phase is seen, and nothing is charged to the wrong direction.

    What share each has is not asserted: under emulation the sampling clock ticks in step with
    the work, and one phase can catch three quarters of it.
    """
    phases = (Phase.PTE, Phase.BARRIER, Phase.TLB, Phase.OUTSIDE)
    directions = {Direction.COMMIT, Direction.RELEASE}

    def enough(result: SampleSet) -> bool:
        counts = _phases(result)
        return min(counts[phase] for phase in phases) >= 10 and (
            _tlb_directions(result) >= directions
        )

    with loaded("padded", "stock") as mock:
        result = _sampled(mock, 200, enough)
    assert enough(result), _phases(result)
    assert _tlb_directions(result) == directions


def _inside_driver(result: SampleSet) -> Counter[Phase]:
    """Phases of the samples in functions that only the update path calls here."""
    inner = {"kbusFlush_GM107", "gvaspaceInvalidateTlb_IMPL", "mmuWalkMap"}
    return Counter(
        result.attributions[index].phase
        for index in result.stack
        if inner & set(result.stacks[index])
    )


def test_sampling_says_what_it_cannot_tell() -> None:
    """Without unwind data for the core its chains are cut at once: never taken for outside."""
    with loaded("padless", "stock") as mock:
        result = _sampled(mock, 0, lambda result: _inside_driver(result).total() > 100)
    phases = _inside_driver(result)
    assert phases.total() > 100
    assert phases[Phase.OUTSIDE] == 0, phases


def test_sampling_sees_no_path_where_there_is_none() -> None:
    with (
        loaded("padless", "stock") as mock,
        Sampler(os.getpid(), module=mock.name) as sampler,
    ):
        sampler.start()
        for _ in range(MAX_ROUNDS):
            for _ in range(1000):
                os.stat("/")  # noqa: PTH116
            sampler.poll()
            if Phase.OUTSIDE in _phases(sampler.result()):
                break
        sampler.stop()
        sampler.poll()
        result = sampler.result()
    phases = set(_phases(result))
    assert phases <= {Phase.USER, Phase.OUTSIDE, Phase.UNATTRIBUTED}
    assert Phase.OUTSIDE in phases


def test_cleanup_unloads_the_module(trace: Program) -> None:
    status, out, _ = trace("--cleanup")
    assert status == 0
    assert "module vmmprof_probe unloaded" in out
    assert insert("vmmprof_probe").returncode == 0
