# SPDX-License-Identifier: MIT
"""A trace follows its target to the end, and ends a command that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel.privileges import CAP_SYS_PTRACE
from vmmprof.kernel.session import Target, Trace, trace


def _sampled(target: Target, max_time_s: float | None = None) -> Trace:
    try:
        return trace("sampling", target, max_time_s=max_time_s)
    except NothingMeasuredError as error:
        pytest.skip(str(error))


def _gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_command_runs_to_its_end_and_is_sampled_from_its_start() -> None:
    busy = "for name in /proc/*; do [ -e $name/stat ]; done; exit 3"
    traced = _sampled(Target(("sh", "-c", busy)))
    assert traced.exit_status == 3
    assert not traced.interrupted
    stacks = traced.events["stack"].to_pylist()
    # exec itself is in the samples or just before them, this process never is
    assert os.getpid() not in traced.events["pid"].to_pylist()
    assert all(not stack or stack.startswith(("entry_", "asm_", "ret_from")) for stack in stacks)


def test_children_of_a_command_are_sampled() -> None:
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    traced = _sampled(Target(("sh", "-c", f"({burn}) & wait")))
    assert len(set(traced.events["pid"].to_pylist())) >= 1
    assert traced.events.num_rows > 10


def test_a_command_is_ended_when_the_time_is_up() -> None:
    started_s = time.monotonic()
    traced = _sampled(Target(("sleep", "100")), max_time_s=0.3)
    assert time.monotonic() - started_s < 20
    assert traced.exit_status == 128 + signal.SIGTERM


def test_an_interrupt_ends_the_command_and_keeps_the_trace() -> None:
    # The command itself interrupts: a timer would hit the opening of the probe on a busy machine.
    traced = _sampled(Target(("sh", "-c", "kill -INT $PPID; exec sleep 100")))
    assert traced.interrupted
    assert traced.exit_status == 128 + signal.SIGTERM


def _effective(status: str) -> int:
    (line,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    return int(line.split()[1], 16)


def test_capabilities_are_laid_aside_while_the_command_runs(tmp_path: Path) -> None:
    before = _effective(Path("/proc/self/status").read_text())
    if not before & ~(1 << CAP_SYS_PTRACE):
        pytest.skip("this process has no capabilities to lay aside")
    look = f"cat /proc/$PPID/status > {tmp_path}/tracer; cat /proc/self/status > {tmp_path}/command"
    _sampled(Target(("sh", "-c", look)))
    assert _effective((tmp_path / "tracer").read_text()) == before & 1 << CAP_SYS_PTRACE
    assert _effective((tmp_path / "command").read_text()) == before
    assert _effective(Path("/proc/self/status").read_text()) == before


def test_a_process_is_followed_until_it_is_gone() -> None:
    with subprocess.Popen(["sleep", "2"]) as process:
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        traced = _sampled(Target(pid=process.pid))
        reaper.join()
    assert traced.exit_status is None
    assert traced.seconds < 20


@pytest.mark.parametrize("break_it", [NothingMeasuredError("refused"), KeyboardInterrupt()])
def test_a_held_command_ends_when_the_probe_cannot_attach(
    break_it: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def refuse(method: str, pid: int | None, **_: object) -> None:
        assert pid is not None
        seen.append(pid)
        raise break_it

    monkeypatch.setattr("vmmprof.kernel.session.open_probe", refuse)

    with pytest.raises(type(break_it)):
        trace("sampling", Target(("sleep", "100")))
    assert _gone(seen[0])


def test_a_process_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(UsageError, match="process 4194000 does not exist"):
        trace("sampling", Target(pid=4_194_000))
