# SPDX-License-Identifier: MIT
"""What must come out: the page-by-page reference that every arm is held against.

The reference knows nothing of runs or deferral. It follows the references held
and says, for each operation, whether an update is due, in which direction, and
what each page must map to afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.cases import (
    KIND_DEFAULT,
    STATUS_IN_USE,
    STATUS_INVALID_STATE,
    STATUS_NOT_SUPPORTED,
    STATUS_OK,
    Case,
)
from bench.extract import Features
from bench.subject import Outcome, Pte


@dataclass(frozen=True)
class Arm:
    """Which of the three changes a function shows."""

    coalesce: bool = False
    defer: bool = False
    once: bool = False

    @property
    def name(self) -> str:
        letters = [
            letter
            for letter, shown in (("A", self.coalesce), ("B", self.defer), ("C", self.once))
            if shown
        ]
        return "+".join(letters) or "stock"


@dataclass
class Expected:
    """What one operation must show; the table is as before plus this."""

    updates: bool
    release: bool
    status: int
    """When no mapping call fails."""


@dataclass
class Reference:
    """Follows a case operation by operation."""

    case: Case
    arm: Arm
    features: Features
    held: int = 0
    table: dict[int, Pte | None] = field(default_factory=dict)
    """BAR1 slots that differ from boot, as changed so far."""

    def expect(self, operation: str) -> Expected:
        nothing = Expected(updates=False, release=False, status=STATUS_OK)
        special = self.case.kind != KIND_DEFAULT or self._is_localized
        if operation == "c":
            return Expected(updates=True, release=False, status=STATUS_OK)
        if operation == "r":
            return Expected(updates=True, release=True, status=STATUS_OK)
        if operation == "f" or (operation == "k" and self.held):
            return Expected(updates=False, release=False, status=STATUS_IN_USE)
        if operation == "+":
            updates = special and not (self.arm.once and self.held)
            return Expected(updates=updates, release=False, status=STATUS_OK)
        if self.held == 1 and special:
            return Expected(updates=True, release=True, status=STATUS_OK)
        return nothing

    @property
    def _is_localized(self) -> bool:
        return self.case.localized and self.features.localized

    def new_pte(self, slot: int, *, release: bool) -> Pte | None:
        """What BAR1 slot `slot` maps after a successful call; None: as at boot."""
        physical = slot - self.case.start_slots
        if release:
            return None
        return (physical, self.case.kind, self._is_localized)

    def page_of_slot(self) -> dict[int, int]:
        """BAR1 slot to the index of the memory's page that it shows."""
        return {
            page + self.case.start_slots + i: index
            for index, page in enumerate(self.case.pages)
            for i in range(self.case.page_slots)
        }

    def commit_observed(self, operation: str, outcome: Outcome) -> None:
        """Take over the state that the operation left, for the next one."""
        self.table = dict(outcome.changed)
        # The driver drops its count before it updates and counts only success.
        if operation in "-d":
            self.held -= 1
        elif operation in "+k" and outcome.status == STATUS_OK:
            self.held += 1


def unaliased(status: int) -> int:
    return STATUS_INVALID_STATE if status == STATUS_NOT_SUPPORTED else status
