# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulated.card import PAGE, Fault
from tests.verify.conftest import OpenBench
from vmmprof.errors import ExitCode
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.verify import leak, victim
from vmmprof.verify.outcome import Outcome
from vmmprof.verify.session import Session, Wish

BACK = "memory, BAR1 and files are back where they were"
WISHES = [
    Wish(Condition(placement, pages * PAGE), False)
    for placement in (PLAIN, Placement(compressible=True))
    for pages in (1, 4)
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak, "_SETTLE_SECONDS", 0)


def test_a_sound_card_gets_everything_back(bench: OpenBench) -> None:
    made = bench()
    leak.check_cycles(made.session, leak.everything_once(WISHES), 2, asked=True)
    assert [c.outcome for c in made.report.checks] == [Outcome.PASSED] * 2
    assert made.report.checks[1].detail == "2 cycles"
    assert made.session.report is made.report


def test_a_cycle_checks_every_kind_of_thing(bench: OpenBench) -> None:
    made = bench()
    leak.everything_once(WISHES)(made.session)
    cases = {check.case for check in made.report.checks}
    assert cases == {
        "device 2 MiB",
        "compressible 2 MiB",
        "reuse 2 MiB",
        "sharing 2 MiB, as it comes",
        "sharing 2 MiB, scattered",
    }


@pytest.mark.parametrize(
    ("fault", "lost"), [(Fault.MEMORY_LEAK, "MiB of the card"), (Fault.BAR1_LEAK, "MiB of BAR1")]
)
def test_what_is_not_given_back_is_lost(bench: OpenBench, fault: Fault, lost: str) -> None:
    made = bench(fault)
    from vmmprof.verify import bar1

    def cycle(session: Session) -> None:
        bar1.check_all(session, WISHES[:1])

    leak.check_cycles(made.session, cycle, 2, asked=True)
    assert made.failed_names() == {BACK}
    assert lost in made.details_of(BACK)


def test_a_file_left_open_is_lost(bench: OpenBench) -> None:
    made = bench()
    left = []

    def cycle(session: Session) -> None:
        left.append(os.open("/dev/null", os.O_RDONLY))

    leak.check_cycles(made.session, cycle, 3, asked=True)
    for fd in left:
        os.close(fd)
    assert made.details_of(BACK) == "lost 3 open files"
    # One to warm up, and twice three because the first three lost something.
    assert len(left) == 7


def test_a_check_that_fails_within_a_cycle_fails(bench: OpenBench) -> None:
    made = bench(Fault.PAGE_SHIFTED)
    leak.check_cycles(made.session, leak.everything_once(WISHES), 1, asked=True)
    assert "every check of the cycles passes" in made.failed_names()


def test_what_is_kept_once_is_no_leak(bench: OpenBench) -> None:
    """A cache that the first cycle fills stays; only what grows is a leak."""
    made = bench()
    cache: list[int] = []

    def cycle(session: Session) -> None:
        if not cache:
            cache.append(made.card.free_pages.pop())

    leak.check_cycles(made.session, cycle, 3, asked=True)
    assert made.failed() == []
    made.card.free_pages += cache


def test_what_is_kept_later_but_once_is_no_leak(bench: OpenBench) -> None:
    made = bench()
    kept: list[int] = []
    calls = 0

    def cycle(session: Session) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            kept.append(made.card.free_pages.pop())

    leak.check_cycles(made.session, cycle, 3, asked=True)
    assert kept
    assert made.failed() == []
    made.card.free_pages += kept


def test_others_on_the_card_would_be_taken_for_a_leak(bench: OpenBench) -> None:
    made = bench()
    made.gpu.others_text = "others use the GPU: PID 7"
    leak.check_cycles(made.session, leak.everything_once(WISHES), 1, asked=True)
    leak.check_kills(made.session, lambda step: None, asked=True)
    assert made.report.count(Outcome.UNTESTED) == 2
    assert made.report.exit_code() is ExitCode.PARTIAL


def test_a_kill_at_every_step_is_checked(bench: OpenBench) -> None:
    made = bench()
    killed: list[str] = []
    leak.check_kills(made.session, killed.append, asked=True)
    assert tuple(killed) == victim.STEPS
    assert made.failed() == []


def test_a_kill_that_leaves_memory_behind_is_caught(bench: OpenBench) -> None:
    made = bench()
    held: list[int] = []

    def kill(step: str) -> None:
        if step == "imported":
            held.append(made.card.free_pages.pop())

    leak.check_kills(made.session, kill, asked=True)
    assert made.failed() == [("leak", "SIGKILL when imported leaves nothing behind")]
    made.card.free_pages += held


def test_a_victim_that_gets_nowhere_leaves_its_step_untested(bench: OpenBench) -> None:
    made = bench()

    def fail(step: str) -> None:
        raise leak.VictimError("the process to be killed never was created: no driver")

    leak.check_kills(made.session, fail, ["created"], asked=True)
    (check,) = made.report.checks
    assert check.outcome is Outcome.UNTESTED
    assert check.detail.endswith("no driver")


def test_a_python_that_cannot_be_run_leaves_its_step_untested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(leak.VictimError, match="no process to be killed could be started"):
        leak.kill_victim(0, "created")


STAND_IN = """
import sys
from vmmprof.verify import victim
victim.life = lambda device, size: iter(victim.STEPS)
victim.main(sys.argv[1:])
"""


def test_the_victim_says_where_it_is_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """kill_victim with a real process whose life is made up: it ends by SIGKILL."""
    ended: list[int] = []
    real = subprocess.Popen

    class Recorded(real):  # type: ignore[misc,valid-type]
        def __init__(self, command: list[str], **kwargs: object) -> None:
            super().__init__([sys.executable, "-c", STAND_IN, *command[3:]], **kwargs)

        def __exit__(self, *exc: object) -> None:
            super().__exit__(*exc)
            ended.append(self.returncode)

    monkeypatch.setattr(leak.subprocess, "Popen", Recorded)
    leak.kill_victim(0, "seen")
    assert ended == [-9]


def test_a_victim_without_a_driver_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The life as it is, where CUDA has no device for it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(leak.VictimError, match=r"never was created: .*(libcuda|no device)"):
        leak.kill_victim(0, "created")
