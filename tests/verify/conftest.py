# SPDX-License-Identifier: MIT
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest

from tests.simulated.card import Card, Fault
from tests.simulated.cuda import SimulatedGpu
from tests.simulated.rm import SimulatedRm
from vmmprof.verify import session as sessions
from vmmprof.verify.outcome import Outcome, Report
from vmmprof.verify.session import Session


@dataclass
class Bench:
    """A session on a simulated card, and what to look at afterwards."""

    card: Card
    rm: SimulatedRm
    gpu: SimulatedGpu
    report: Report
    session: Session

    def failed(self) -> list[tuple[str, str]]:
        """Case and name of what failed."""
        return [(c.case, c.name) for c in self.report.checks if c.outcome is Outcome.FAILED]

    def failed_names(self) -> set[str]:
        return {name for _, name in self.failed()}

    def details_of(self, name: str) -> str:
        """The first detail of a failed check of that name."""
        return next(
            c.detail for c in self.report.checks if c.outcome is Outcome.FAILED and c.name == name
        )


OpenBench = Callable[..., Bench]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenBench]:
    """``bench(Fault.X, ..., pages=64)``; afterwards the card must be as it was found."""
    # The simulated card is smaller than what is left alone on a real one.
    monkeypatch.setattr(sessions, "RESERVE_BYTES", 0)
    with ExitStack() as undo:
        opened: list[Bench] = []

        def make(*faults: Fault, pages: int = 64) -> Bench:
            card = Card(pages, set(faults))
            rm = SimulatedRm(card)
            gpu = SimulatedGpu(card, rm)
            report = Report()
            session = undo.enter_context(
                sessions.opened(gpu, report, words_per_page=64, transport=rm)
            )
            session.random = np.random.default_rng(7)
            session.clock_ns = lambda: card.now_ns
            opened.append(Bench(card, rm, gpu, report, session))
            return opened[-1]

        yield make
    for made in opened:
        assert not made.rm.files
        assert not made.rm.objects
        assert made.gpu.mapped == 0
        if not made.card.has(Fault.MEMORY_LEAK):
            assert len(made.card.free_pages) == made.card.total_pages
