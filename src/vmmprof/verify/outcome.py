# SPDX-License-Identifier: MIT
"""What was checked and how it went, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from vmmprof.errors import ExitCode


class Outcome(str, Enum):
    """How a check went."""

    PASSED = "passed"
    FAILED = "failed"
    UNTESTED = "untested"
    """Explicitly asked for, and could not be tested here."""
    WAIVED = "waived"
    """Of the default set, and could not be tested here."""


@dataclass(frozen=True)
class Check:
    """One check of one case; ``detail`` has figures, or the reason why not."""

    case: str
    name: str
    outcome: Outcome
    detail: str = ""


def _ignore(check: Check) -> None:
    pass


@dataclass
class Report:
    """Collects checks; ``on_check`` hears of each as it is made.

    ``facts`` holds what was learnt beside the checks, JSON-ready, by case.
    """

    on_check: Callable[[Check], None] = _ignore
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, dict[str, object]] = field(default_factory=dict)

    def check(self, case: str, name: str, passed: bool, detail: str = "") -> bool:
        """Record a check that was made; returns ``passed``."""
        self._add(Check(case, name, Outcome.PASSED if passed else Outcome.FAILED, detail))
        return passed

    def cannot(self, case: str, name: str, reason: str, *, asked: bool) -> None:
        """Record a check that could not be made; ``asked`` if the user named it."""
        self._add(Check(case, name, Outcome.UNTESTED if asked else Outcome.WAIVED, reason))

    def facts_of(self, case: str) -> dict[str, object]:
        """The facts of a case, to be added to."""
        return self.facts.setdefault(case, {})

    def count(self, outcome: Outcome) -> int:
        return sum(check.outcome is outcome for check in self.checks)

    def failures_of(self, case: str) -> list[Check]:
        return [c for c in self.checks if c.case == case and c.outcome is Outcome.FAILED]

    def exit_code(self) -> ExitCode:
        """FAILED beats PARTIAL beats OK; NOTHING_MEASURED when no check was made at all."""
        if self.count(Outcome.FAILED):
            return ExitCode.FAILED
        if self.count(Outcome.UNTESTED):
            return ExitCode.PARTIAL
        return ExitCode.OK if self.count(Outcome.PASSED) else ExitCode.NOTHING_MEASURED

    def _add(self, check: Check) -> None:
        self.checks.append(check)
        self.on_check(check)
