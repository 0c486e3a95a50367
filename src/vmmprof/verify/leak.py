# SPDX-License-Identifier: MIT
"""verify leak: after many cycles, and after a SIGKILL at any point, all is given back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from vmmprof.errors import VmmprofError
from vmmprof.kernel.rm import framebuffer
from vmmprof.sizes import MIB
from vmmprof.verify import bar1, reuse, sharing, victim
from vmmprof.verify.outcome import Outcome, Report
from vmmprof.verify.session import Session, Wish, placements_of

CASE = "leak"
VICTIM_BYTES = 64 * MIB

_VICTIM_START_SECONDS = 60
# A killed process' memory is freed by the kernel as it goes, not before wait returns.
_SETTLE_SECONDS = 5
_SETTLE_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Holdings:
    """What could be left behind: free framebuffer and BAR1 of the card, this process' files."""

    free_bytes: int
    bar1_free_bytes: int
    files: int

    def lost_since(self, before: Holdings) -> list[str]:
        """What is missing, in words; empty when nothing is."""
        lost = []
        if self.free_bytes < before.free_bytes:
            lost.append(f"{(before.free_bytes - self.free_bytes) / MIB:g} MiB of the card")
        if self.bar1_free_bytes < before.bar1_free_bytes:
            lost.append(f"{(before.bar1_free_bytes - self.bar1_free_bytes) / MIB:g} MiB of BAR1")
        if self.files > before.files:
            lost.append(f"{self.files - before.files} open files")
        return lost


def holdings(session: Session) -> Holdings:
    sizes = framebuffer(session.client)
    return Holdings(
        sizes.free_bytes, sizes.bar1_free_bytes, sum(1 for _ in Path("/proc/self/fd").iterdir())
    )


def everything_once(wishes: Sequence[Wish]) -> Callable[[Session], None]:
    """A cycle of every other check, at its smallest size."""
    placements = placements_of(wishes)
    smallest = min(wish.condition.size_bytes for wish in wishes)

    def cycle(session: Session) -> None:
        bar1.check_all(session, [w for w in wishes if w.condition.size_bytes == smallest])
        reuse.check(session, placements, smallest, len(placements) + 1, asked=False)
        for scattered in (False, True):
            sharing.check(session, placements, smallest, 1, scattered=scattered, asked=False)

    return cycle


def check_cycles(
    session: Session, cycle: Callable[[Session], None], cycles: int, *, asked: bool
) -> None:
    """``cycle`` run over and over must leave no trace; what fails in it fails here."""
    reason = session.gpu.others()
    if reason is not None:
        session.report.cannot(CASE, "nothing is left behind", reason, asked=asked)
        return

    def all_cycles() -> None:
        for _ in range(cycles):
            cycle(session)

    outer, session.report = session.report, Report()
    try:
        # What is allocated once and kept is allocated now.
        cycle(session)
        lost = _lost_again(session, all_cycles)
        inner = session.report
    finally:
        session.report = outer
    failed = [check for check in inner.checks if check.outcome is Outcome.FAILED]
    outer.check(
        CASE,
        "every check of the cycles passes",
        not failed,
        f"{inner.count(Outcome.PASSED)} passed"
        if not failed
        else f"{len(failed)} failed, first {failed[0].case}: {failed[0].name}",
    )
    outer.check(
        CASE,
        "memory, BAR1 and files are back where they were",
        not lost,
        "lost " + ", ".join(lost) if lost else f"{cycles} cycles",
    )


def check_kills(
    session: Session,
    kill_at: Callable[[str], None],
    steps: Sequence[str] = victim.STEPS,
    *,
    asked: bool,
) -> None:
    """``kill_at`` a step must leave no trace on the card, for every step."""
    reason = session.gpu.others()
    if reason is not None:
        session.report.cannot(CASE, "SIGKILL leaves nothing behind", reason, asked=asked)
        return
    for step in steps:
        name = f"SIGKILL when {step} leaves nothing behind"
        try:
            lost = _lost_again(session, partial(kill_at, step))
        except VictimError as error:
            session.report.cannot(CASE, name, str(error), asked=asked)
            continue
        session.report.check(CASE, name, not lost, "lost " + ", ".join(lost) if lost else "")


class VictimError(VmmprofError):
    """The process to be killed did not get as far as it should."""


def kill_victim(device: int, step: str, size_bytes: int = VICTIM_BYTES) -> None:
    """Start a victim, wait until it has reached ``step``, and SIGKILL it."""
    command = [sys.executable, "-m", victim.__name__, str(device), str(size_bytes), step]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise VictimError(f"no process to be killed could be started: {error}") from error
    with process:
        too_late = Timer(_VICTIM_START_SECONDS, process.kill)
        too_late.start()
        try:
            assert process.stdout is not None
            reached = process.stdout.readline().split()
        finally:
            too_late.cancel()
            process.kill()
        _, errors = process.communicate()
    if reached != [victim.READY, step]:
        reason = (errors.strip().splitlines() or ["no reason given"])[-1]
        raise VictimError(f"the process to be killed never was {step}: {reason}")


def _lost_again(session: Session, act: Callable[[], object]) -> list[str]:
    """What ``act`` loses, and loses again when it is repeated.

    The driver and CUDA keep some of what they once needed (page tables, pools);
    only what goes missing each time is a leak.
    """
    lost: list[str] = []
    for _ in range(2):
        before = holdings(session)
        act()
        lost = _lost_when_settled(session, before)
        if not lost:
            break
    return lost


def _lost_when_settled(session: Session, before: Holdings) -> list[str]:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        lost = holdings(session).lost_since(before)
        if not lost or time.monotonic() >= deadline:
            return lost
        time.sleep(_SETTLE_STEP_SECONDS)
