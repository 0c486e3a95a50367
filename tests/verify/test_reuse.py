# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from tests.simulated.card import PAGE, Fault
from tests.verify.conftest import OpenBench
from vmmprof.errors import ExitCode
from vmmprof.placement import PLAIN, Placement
from vmmprof.verify import reuse
from vmmprof.verify.outcome import Outcome

COMPRESSIBLE = Placement(compressible=True)
PLACEMENTS = [PLAIN, COMPRESSIBLE]


def test_every_placement_follows_itself_and_the_other() -> None:
    order = reuse.sequence(PLACEMENTS, 6)
    assert order == [PLAIN, COMPRESSIBLE, COMPRESSIBLE, PLAIN, PLAIN, COMPRESSIBLE]
    assert reuse.sequence([PLAIN], 3) == [PLAIN] * 3


def test_pages_change_hands_and_are_counted(bench: OpenBench) -> None:
    made = bench()
    reuse.check(made.session, PLACEMENTS, 4 * PAGE, 8, asked=True)
    assert made.failed() == []
    facts = made.report.facts["reuse 8 MiB"]
    assert (facts["rounds"], facts["tested_rounds"], facts["reused_pages"]) == (8, 7, 28)
    assert facts["changes"] == {
        "device -> compressible": 2,
        "compressible -> compressible": 2,
        "compressible -> device": 2,
        "device -> device": 1,
    }
    assert made.report.exit_code() is ExitCode.OK


def test_reuse_is_forced_where_the_card_would_rather_hand_out_other_pages(
    bench: OpenBench,
) -> None:
    """Fresh pages are preferred, but only the spare ones are left to prefer."""
    made = bench(Fault.NO_REUSE)
    reuse.check(made.session, PLACEMENTS, 16 * PAGE, 4, asked=True)
    spare_pages = reuse.SPARE_BYTES // PAGE
    facts = made.report.facts["reuse 32 MiB"]
    assert facts["tested_rounds"] == 3
    assert facts["reused_pages"] >= 3 * (16 - spare_pages)


def test_without_holding_the_card_nothing_would_be_reused(
    bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: reuse that is hoped for; its rounds do not count as tested."""
    monkeypatch.setattr(reuse, "SPARE_BYTES", 1 << 40)
    made = bench(Fault.NO_REUSE)
    reuse.check(made.session, PLACEMENTS, 4 * PAGE, 4, asked=True)
    (check,) = made.report.checks
    assert check.outcome is Outcome.UNTESTED
    assert check.detail == "no page came back in 4 rounds"
    assert made.report.exit_code() is ExitCode.PARTIAL


def test_a_stale_kind_is_caught_though_bar1_alone_passes(bench: OpenBench) -> None:
    made = bench(Fault.STALE_KIND)
    reuse.check(made.session, PLACEMENTS, 4 * PAGE, 4, asked=True)
    assert "dense: static BAR1 shows what CUDA wrote" in made.failed_names()
    alone = bench(Fault.STALE_KIND)
    reuse.check(alone.session, [PLAIN], 4 * PAGE, 4, asked=True)
    assert alone.failed() == []


def test_nobody_else_may_use_the_card(bench: OpenBench) -> None:
    made = bench()
    made.gpu.others_text = "others use the GPU: PID 7"
    reuse.check(made.session, PLACEMENTS, PAGE, 4, asked=False)
    (check,) = made.report.checks
    assert (check.outcome, check.detail) == (Outcome.WAIVED, "others use the GPU: PID 7")


def test_a_placement_that_cannot_be_had_leaves_the_others(bench: OpenBench) -> None:
    made = bench()
    made.gpu.compression_supported = False
    reuse.check(made.session, PLACEMENTS, PAGE, 4, asked=False)
    assert made.report.count(Outcome.WAIVED) == 1
    assert made.report.facts["reuse 2 MiB"]["changes"] == {"device -> device": 3}


def test_a_refused_step_fails(bench: OpenBench) -> None:
    made = bench(Fault.REFUSED_IMPORT)
    reuse.check(made.session, PLACEMENTS, PAGE, 4, asked=True)
    assert made.failed_names() == {"every step of the read-back succeeds"}
