# SPDX-License-Identifier: MIT
"""Run a plan: warm-up, stages of rounds, stopping, re-measuring; every row is kept.

The runner owns no device and prints nothing. It ends early only for a reason
that :class:`Outcome` names: an interrupt, the time limit, an error that ends
the process, memory that could not be given back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from vmmprof.analysis.precision import FIRST_LOOK_N, next_look, relative_half_width
from vmmprof.analysis.remeasure import candidates
from vmmprof.drivers.protocol import (
    Batch,
    ConcurrentDriver,
    Driver,
    LeakError,
    PlacementUnavailableError,
    WorkerFailure,
)
from vmmprof.errors import NothingMeasuredError
from vmmprof.experiment.interrupts import Interrupts
from vmmprof.experiment.samples import Samples
from vmmprof.experiment.schedule import Visits, interleaved, sequential, state_blocks
from vmmprof.placement import NOBODY, Condition
from vmmprof.recording.schema import Flag

# --until-ci doubles n; 30 * 2**10 samples that are not enough will never be.
MAX_DOUBLINGS = 10


@dataclass(frozen=True)
class Options:
    """How to measure. ``until_ci`` is a relative half-width, 0.02 for 2 %.

    ``burst``: cycles of each worker in one visit, all workers at the same time
    (the driver is a ConcurrentDriver then); None: a visit is one cycle, alone.
    ``rate``: cycles a second that each worker of a burst starts; None: the next
    one as soon as one has ended.
    """

    repeats: int = 30
    warmup: int = 3
    order: str = "interleaved"
    max_time_s: float | None = None
    until_ci: float | None = None
    seed: int = 0
    burst: int | None = None
    rate: float | None = None


@dataclass
class Outcome:
    """What became of the plan.

    ``failed`` maps a condition to why it was given up; ``remeasured`` to why
    it was measured twice; ``not_converged`` to the relative half-width that
    --until-ci was left with. ``ended_early`` is None for a full run.
    """

    failed: dict[Condition, str] = field(default_factory=dict)
    remeasured: dict[Condition, str] = field(default_factory=dict)
    not_converged: dict[Condition, float] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    interrupted_by: str | None = None
    ended_early: str | None = None


@dataclass(frozen=True)
class Progress:
    """Visits done of those planned by now, and the estimate of the time left."""

    done: int
    planned: int
    seconds_left: float | None
    doing: str


ProgressCallback = Callable[[Progress], None]


class _Ended(Exception):
    """Nothing more can or may be run; the outcome says why."""


class Runner:
    """One run of ``conditions`` on an entered ``driver``; use :meth:`run` once."""

    def __init__(
        self,
        driver: Driver,
        conditions: Sequence[Condition],
        options: Options,
        *,
        samples: Samples,
        interrupts: Interrupts,
        progress: ProgressCallback,
    ) -> None:
        self._driver = driver
        self._conditions = list(conditions)
        self._options = options
        self._samples = samples
        self._interrupts = interrupts
        self._progress = progress
        self._active = set(range(len(conditions)))
        self._begin_s = time.monotonic()
        self._done = self._planned = 0
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Measure everything once, then what needs it a second time."""
        self._driver.prepare(self._conditions)
        try:
            self._first_attempt()
            self._second_attempt()
        except _Ended:
            pass
        finally:
            self._samples.flush()
        return self.outcome

    # -- attempts ---------------------------------------------------------

    def _first_attempt(self) -> None:
        options = self._options
        done = options.repeats if options.until_ci is None else max(options.repeats, FIRST_LOOK_N)
        self._run_rounds(sorted(self._active), range(done), attempt=1)
        self._give_up_unusable()
        if options.until_ci is None:
            return
        for _ in range(MAX_DOUBLINGS):
            wide = self._too_wide(options.until_ci)
            if not wide:
                return
            look = next_look(done)
            self._run_rounds(self._with_controls(wide), range(done, look), attempt=1)
            done = look
        self._note_not_converged()

    def _second_attempt(self) -> None:
        found = candidates(self._samples.frame(), self._driver.headline)
        index = {condition: i for i, condition in enumerate(self._conditions)}
        again = {index[candidate.condition] for candidate in found} & self._active
        if not again:
            return
        for candidate in found:
            self.outcome.remeasured[candidate.condition] = candidate.reason
        company = self._company_of(again)
        self._samples.company[company] = True
        self._run_rounds(sorted([*again, *company]), range(self._options.repeats), attempt=2)

    def _company_of(self, again: set[int]) -> list[int]:
        """The others of the same card states, as what a cycle takes depends on those around it."""
        if self._options.order == "sequential":
            return []  # each condition has its own visits around it
        states = {self._conditions[i].scattered for i in again}
        others = self._active - again
        return [i for i in sorted(others) if self._conditions[i].scattered in states]

    # -- stopping ---------------------------------------------------------

    def _half_width(self, i: int) -> float:
        return relative_half_width(self._samples.headline_ns(i, attempt=1))

    def _too_wide(self, until_ci: float) -> list[int]:
        # Where nobody allocates there is no cycle to know better.
        return [
            i
            for i in sorted(self._active)
            if self._conditions[i].level != NOBODY and self._half_width(i) > until_ci
        ]

    def _with_controls(self, indices: list[int]) -> list[int]:
        """The conditions and, while any other is measured, the control of its size and state."""
        wanted = {self._conditions[i] for i in indices}
        wanted |= {condition.control for condition in wanted}
        wanted |= {condition for condition in self._conditions if condition.level == NOBODY}
        return [i for i in sorted(self._active) if self._conditions[i] in wanted]

    def _note_not_converged(self) -> None:
        if self._options.until_ci is None:
            return
        for i in self._too_wide(self._options.until_ci):
            self.outcome.not_converged[self._conditions[i]] = self._half_width(i)

    def _time_is_up(self) -> bool:
        limit = self._options.max_time_s
        return limit is not None and time.monotonic() - self._begin_s >= limit

    def _end(self, reason: str) -> _Ended:
        self.outcome.ended_early = reason
        self._note_not_converged()
        return _Ended(reason)

    # -- rounds -----------------------------------------------------------

    def _run_rounds(self, indices: list[int], rounds: range, attempt: int) -> None:
        """Measure ``indices`` over ``rounds``, card state by card state, warm-up before each."""
        states = sorted({self._conditions[i].scattered for i in indices})
        blocks = state_blocks(len(rounds), states)
        warmup = self._options.warmup
        self._planned += sum(
            (size + warmup) * sum(self._conditions[i].scattered == state for i in indices)
            for state, size in blocks
        )
        next_round = dict.fromkeys(states, rounds.start)
        for state, size in blocks:
            block = range(next_round[state], next_round[state] + size)
            next_round[state] = block.stop
            of_state = [i for i in indices if self._conditions[i].scattered == state]
            self._run_block(of_state, block, attempt, state)

    def _run_block(self, indices: list[int], rounds: range, attempt: int, scattered: bool) -> None:
        try:
            with self._card_state(scattered):
                warmup = range(rounds.start, rounds.start + self._options.warmup)
                # The warm-up's order comes from an attempt number that no real attempt has.
                for visits in interleaved(indices, warmup, self._options.seed, attempt=0):
                    self._run_visits(visits, attempt, Flag.WARMUP)
                for visits in self._visits(indices, rounds, attempt):
                    self._run_visits(visits, attempt, Flag(0))
        except PlacementUnavailableError as error:
            self._active -= set(indices)
            self.outcome.unavailable["--scatter"] = str(error)
        except NothingMeasuredError as error:
            if not scattered:
                raise
            # The card could not be put into its state or back: nothing after this is comparable.
            self.outcome.unavailable["--scatter"] = str(error)
            raise self._end(
                f"the card's memory could not be scattered or restored: {error}"
            ) from None

    def _card_state(self, scattered: bool) -> AbstractContextManager[None]:
        if not scattered:
            return nullcontext()
        self._report("scattering the card's memory")
        return self._driver.scattered()

    def _visits(self, indices: list[int], rounds: range, attempt: int) -> Iterator[Visits]:
        if self._options.order == "sequential":
            return sequential(indices, rounds)
        return interleaved(indices, rounds, self._options.seed, attempt)

    def _run_visits(self, visits: Visits, attempt: int, flag: Flag) -> None:
        """Run visits to their end, going on behind a condition that fails."""
        if self._options.burst is None:
            self._run_cycles(visits, attempt, flag)
        else:
            self._run_bursts(visits, self._options.burst, attempt, flag)
        self._report("warming up" if flag & Flag.WARMUP else "measuring")

    def _run_bursts(self, visits: Visits, samples: int, attempt: int, flag: Flag) -> None:
        assert isinstance(self._driver, ConcurrentDriver)
        for position in range(len(visits.condition)):
            self._check_ends()
            condition = int(visits.condition[position])
            if condition not in self._active:
                continue
            burst = self._driver.run_burst(condition, samples)
            visit = _one(visits, position)
            self._samples.add(burst.batch, visit, attempt, flag)
            if burst.victim is not None:
                self._samples.add_victim(burst.victim, visit, attempt, flag)
            self._done += 1
            if burst.failures:
                self._give_up_burst(condition, burst.failures)

    def _give_up_burst(self, condition_index: int, failures: Sequence[WorkerFailure]) -> None:
        """Drop a condition in which workers failed; one that takes its context along ends the run.

        What the other workers measured until then is kept.
        """
        condition = self._conditions[condition_index]
        reason = "; ".join(str(failure) for failure in failures)
        self._active.discard(condition_index)
        self.outcome.failed[condition] = reason
        if any(failure.ends_run for failure in failures):
            raise self._end(f"{condition}: {reason}")

    def _run_cycles(self, visits: Visits, attempt: int, flag: Flag) -> None:
        rest = _of_active(visits, self._active)
        while len(rest.condition):
            self._check_ends()
            batch = self._run_batch(rest, attempt, flag)
            self._done += len(batch)
            if len(batch) and batch.status[-1] != 0:
                self._give_up(rest, batch)
            rest = _of_active(_from(rest, len(batch)), self._active)

    def _run_batch(self, visits: Visits, attempt: int, flag: Flag) -> Batch:
        try:
            batch = self._driver.run(visits.condition)
        except LeakError as error:
            self._samples.add(error.batch, visits, attempt, flag)
            self._give_up(visits, error.batch)
            raise self._end(str(error)) from None
        self._samples.add(batch, visits, attempt, flag)
        return batch

    def _check_ends(self) -> None:
        if self._interrupts.received is not None:
            self.outcome.interrupted_by = self._interrupts.received
            raise self._end(f"interrupted by {self._interrupts.received}")
        if self._time_is_up():
            raise self._end(f"--max-time of {self._options.max_time_s:g} s reached")

    def _give_up(self, visits: Visits, batch: Batch) -> None:
        """Drop the condition of the batch's failed last row; a sticky error ends the run."""
        last = len(batch) - 1
        condition_index = int(visits.condition[batch.visit[last]])
        condition = self._conditions[condition_index]
        status = int(batch.status[last])
        call = self._driver.operation.calls[int(batch.failed_call[last])]
        reason = (
            f"{self._driver.operation.api_name(call)} failed: {self._driver.status_name(status)}"
        )
        self._active.discard(condition_index)
        taken = len(self._samples.headline_ns(condition_index, attempt=1))
        self.outcome.failed[condition] = f"{reason} (after {taken} samples)"
        if self._driver.is_sticky(status):
            raise self._end(f"{condition}: {reason}; the context cannot be used any more")

    def _give_up_unusable(self) -> None:
        """Drop conditions that were run and never gave a sample, and say why."""
        for i in sorted(self._active):
            condition = self._conditions[i]
            if condition.level == NOBODY or len(self._samples.headline_ns(i, attempt=1)):
                continue
            discarded = self._samples.discarded(i)
            if discarded:
                reason = (
                    f"discarded: none of {discarded} allocations read back as the memory "
                    "that was asked for"
                )
            elif self._driver.is_model:
                reason = f"{self._driver.name} has no source for the times of this size"
            else:
                reason = f"none of its cycles gave a usable time ({self._driver.headline})"
            self._active.discard(i)
            self.outcome.failed[condition] = reason

    def _report(self, doing: str) -> None:
        elapsed_s = time.monotonic() - self._begin_s
        left_s = elapsed_s / self._done * (self._planned - self._done) if self._done else None
        limit = self._options.max_time_s
        if left_s is not None and limit is not None:
            left_s = max(0.0, min(left_s, limit - elapsed_s))
        self._progress(Progress(self._done, self._planned, left_s, doing))


def _from(visits: Visits, position: int) -> Visits:
    return Visits(visits.condition[position:], visits.round[position:], visits.order[position:])


def _one(visits: Visits, position: int) -> Visits:
    at = slice(position, position + 1)
    return Visits(visits.condition[at], visits.round[at], visits.order[at])


def _of_active(visits: Visits, active: set[int]) -> Visits:
    """The visits whose condition is still measured."""
    keep = np.isin(visits.condition, list(active))
    return Visits(visits.condition[keep], visits.round[keep], visits.order[keep])
