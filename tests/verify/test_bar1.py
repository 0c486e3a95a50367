# SPDX-License-Identifier: MIT
"""Each fault of a card is caught by the check meant for it, and by no accident."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulated.card import PAGE, Card, Fault
from tests.simulated.cuda import SimulatedGpu
from tests.simulated.rm import SimulatedRm
from tests.verify.conftest import OpenBench
from vmmprof.errors import ExitCode, NothingMeasuredError
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.verify import bar1
from vmmprof.verify.outcome import Outcome, Report
from vmmprof.verify.session import Wish, opened, waive_missing_domains, wishes

COMPRESSIBLE = Placement(compressible=True)
BOTH = Placement(compressible=True, noncontiguous=True)

SHOWS_COMPRESSIBLE = "compressible: static BAR1 shows what CUDA wrote"
SHOWS_DENSE = "dense: static BAR1 shows what CUDA wrote"


def wish(placement: Placement, pages: int = 4, *, asked: bool = True) -> Wish:
    return Wish(Condition(placement, pages * PAGE), asked)


@pytest.mark.parametrize("pages", [1, 4])
@pytest.mark.parametrize(
    "placement", [PLAIN, COMPRESSIBLE, Placement(noncontiguous=True), BOTH], ids=str
)
def test_a_sound_card_passes(bench: OpenBench, placement: Placement, pages: int) -> None:
    made = bench()
    bar1.check(made.session, wish(placement, pages))
    assert made.failed() == []
    assert made.report.exit_code() is ExitCode.OK
    assert made.report.count(Outcome.PASSED) == (19 if placement.compressible else 13)


@pytest.mark.parametrize(
    ("fault", "placement", "caught_by"),
    [
        (Fault.PAGE_SHIFTED, COMPRESSIBLE, SHOWS_DENSE),
        (Fault.PAGE_MISSING, COMPRESSIBLE, SHOWS_DENSE),
        (Fault.WRONG_KIND, COMPRESSIBLE, SHOWS_COMPRESSIBLE),
        (Fault.PAGE_SHIFTED, BOTH, SHOWS_DENSE),
        (Fault.WRONG_KIND, BOTH, SHOWS_COMPRESSIBLE),
        (Fault.STALE_DATA, PLAIN, SHOWS_DENSE),
        (Fault.REFUSED_IMPORT, PLAIN, "every step of the read-back succeeds"),
        (Fault.REFUSED_MAP, PLAIN, "every step of the read-back succeeds"),
        (Fault.FILE_REUSED, PLAIN, "every step of the read-back succeeds"),
        (Fault.SHORT_MAP, PLAIN, "every step of the read-back succeeds"),
        (Fault.ALWAYS_DYNAMIC, PLAIN, "the mapping lies in static BAR1"),
        (
            Fault.WRONG_ADDRESS,
            PLAIN,
            "bus address = BAR1 base + start offset + physical address on every page",
        ),
        (Fault.SHORT_IMPORT, PLAIN, "both objects have the same size"),
        (Fault.COMPRESSION_IGNORED, COMPRESSIBLE, "the granted compression is what was asked for"),
        (Fault.COMPRESSION_IGNORED, BOTH, "the granted compression is what was asked for"),
        (Fault.LOST_WRITE, PLAIN, "dense: CUDA reads back what it wrote"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_fault_is_caught_by_the_check_meant_for_it(
    bench: OpenBench, fault: Fault, placement: Placement, caught_by: str
) -> None:
    made = bench(fault)
    bar1.check(made.session, wish(placement))
    assert caught_by in made.failed_names()
    assert made.report.exit_code() is ExitCode.FAILED


@pytest.mark.parametrize(
    ("fault", "caught_by"),
    [
        (Fault.PAGE_SHIFTED, SHOWS_DENSE),
        (Fault.PAGE_MISSING, SHOWS_DENSE),
        (Fault.WRONG_DOMAIN, "the memory is on the locality domain that was asked for"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("noncontiguous", [False, True])
def test_faults_of_localized_memory_are_caught(
    bench: OpenBench, fault: Fault, caught_by: str, noncontiguous: bool
) -> None:
    placement = Placement(domain=1, noncontiguous=noncontiguous)
    made = bench(fault)
    made.gpu.domain_count = 2
    bar1.check(made.session, wish(placement))
    assert caught_by in made.failed_names()


def test_localized_memory_of_a_sound_card_passes(bench: OpenBench) -> None:
    made = bench()
    made.gpu.domain_count = 2
    bar1.check_all(made.session, wishes(made.session, None, [4 * PAGE], sizes_asked=True))
    assert made.failed() == []
    assert "ordinal 1" in {check.detail for check in made.report.checks}
    assert made.report.facts["domain:1 8 MiB"]["iterations_stock"] == 1


def test_a_device_with_one_domain_localizes_nothing(bench: OpenBench) -> None:
    """It takes domain 0, and the memory reads back as not localized."""
    made = bench()
    made.gpu.domain_count = 1
    create = made.gpu.create
    made.gpu.create = lambda placement, size: create(PLAIN, size)  # type: ignore[method-assign]
    bar1.check(made.session, wish(Placement(domain=0)))
    assert made.failed() == []


def test_a_shifted_page_is_named_with_the_page_it_shows(bench: OpenBench) -> None:
    made = bench(Fault.PAGE_SHIFTED)
    bar1.check(made.session, wish(COMPRESSIBLE))
    detail = made.details_of(SHOWS_DENSE)
    assert "on pages 2;" in detail
    assert "shows a tag of page 0: wrong translation" in detail


def test_a_missing_page_reads_all_ones(bench: OpenBench) -> None:
    made = bench(Fault.PAGE_MISSING)
    bar1.check(made.session, wish(COMPRESSIBLE))
    assert "on pages 2; page 2 at 0x0 shows all ones" in made.details_of(SHOWS_DENSE)


def test_a_wrong_kind_spoils_every_page(bench: OpenBench) -> None:
    made = bench(Fault.WRONG_KIND)
    bar1.check(made.session, wish(COMPRESSIBLE))
    assert "on pages 0, 1, 2, 3;" in made.details_of(SHOWS_COMPRESSIBLE)


def test_what_spoils_compressible_memory_leaves_the_control_alone(bench: OpenBench) -> None:
    made = bench(Fault.PAGE_SHIFTED)
    bar1.check_all(made.session, [wish(PLAIN), wish(COMPRESSIBLE)])
    assert {case for case, _ in made.failed()} == {"compressible 8 MiB"}


def test_stale_data_is_already_seen_by_the_poison(bench: OpenBench) -> None:
    made = bench(Fault.STALE_DATA)
    bar1.check(made.session, wish(PLAIN))
    assert "dense: the poison of this round is visible on every page" in made.failed_names()


def test_an_update_that_runs_once_is_no_fault(bench: OpenBench) -> None:
    made = bench(Fault.UPDATE_ONCE)
    bar1.check_all(made.session, [wish(COMPRESSIBLE), wish(BOTH)])
    assert made.failed() == []


def test_a_control_that_cannot_fail_is_caught(
    bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a comparison that finds nothing wrong, whatever it sees."""
    from vmmprof.verify.pattern import Comparison, Expectation

    monkeypatch.setattr(Expectation, "compare", lambda self, view: Comparison(100, 0, (), ()))
    made = bench(Fault.PAGE_SHIFTED)
    bar1.check(made.session, wish(COMPRESSIBLE))
    assert "dense: control: an expectation moved by a page fails" in made.failed_names()
    assert (
        "dense: control: one tag changed through CUDA is the only difference" in made.failed_names()
    )


def test_the_iterations_of_the_loop_are_told(bench: OpenBench) -> None:
    made = bench()
    made.card.free_pages = [0, 1, 2, 3, 8, 9, 10, 11]
    bar1.check_all(made.session, [wish(PLAIN), wish(BOTH, 8)])
    plain, both = made.report.facts["device 8 MiB"], made.report.facts[f"{BOTH} 16 MiB"]
    assert (plain["iterations_stock"], plain["iterations_coalescing"]) == (0, 0)
    assert (both["iterations_stock"], both["iterations_coalescing"]) == (8, 2)
    assert (both["physical_runs"], both["longest_run_pages"]) == (2, 4)
    made.card.free_pages = list(range(64))


def test_without_root_the_runs_come_from_bus_addresses(bench: OpenBench) -> None:
    made = bench(Fault.NOT_ROOT)
    bar1.check(made.session, wish(COMPRESSIBLE))
    facts = made.report.facts["compressible 8 MiB"]
    assert made.failed() == []
    assert facts["known_from"] == "bus addresses (not root)"
    assert facts["iterations_stock"] == "unknown: needs root"
    assert "the page kind is that of the placement" not in {c.name for c in made.report.checks}


def test_a_full_dynamic_bar1_waives_the_second_view(bench: OpenBench) -> None:
    made = bench(Fault.DYNAMIC_BAR1_FULL)
    bar1.check(made.session, wish(PLAIN))
    assert made.report.count(Outcome.WAIVED) == 1
    assert made.report.exit_code() is ExitCode.OK


@pytest.mark.parametrize(
    ("asked", "code"), [(True, ExitCode.PARTIAL), (False, ExitCode.NOTHING_MEASURED)]
)
def test_what_cannot_be_had_is_untested_when_asked_for(
    bench: OpenBench, asked: bool, code: ExitCode
) -> None:
    made = bench(pages=2)
    bar1.check(made.session, wish(PLAIN, 4, asked=asked))
    (check,) = made.report.checks
    assert check.outcome is (Outcome.UNTESTED if asked else Outcome.WAIVED)
    assert "4 MiB of the card are free" in check.detail
    assert made.report.exit_code() is code


def test_memory_that_is_refused_is_untested(bench: OpenBench) -> None:
    made = bench()
    made.gpu.free_bytes = lambda: 1 << 40  # type: ignore[method-assign]
    bar1.check_all(made.session, [wish(PLAIN, 100), wish(Placement(noncontiguous=True), 100)])
    first, second = made.report.checks
    assert first.outcome is second.outcome is Outcome.UNTESTED
    assert "CUDA_ERROR_OUT_OF_MEMORY" in first.detail
    assert "NV_ERR_NO_MEMORY" in second.detail


def test_no_support_for_compression_is_a_reason(bench: OpenBench) -> None:
    made = bench()
    made.gpu.compression_supported = False
    bar1.check(made.session, wish(COMPRESSIBLE))
    assert "no support for compressible memory" in made.report.checks[0].detail


def test_the_default_set_waives_domains_and_is_otherwise_complete(bench: OpenBench) -> None:
    made = bench()
    chosen = wishes(made.session, None, [PAGE], sizes_asked=False)
    waive_missing_domains(made.session, None)
    assert [str(w.condition) for w in chosen] == [
        "device 2 MiB",
        "compressible 2 MiB",
        "noncontiguous 2 MiB",
        "compressible+noncontiguous 2 MiB",
    ]
    assert not any(w.asked for w in chosen)
    assert made.report.checks[0].outcome is Outcome.WAIVED
    made.gpu.domain_count = 2
    assert len(wishes(made.session, None, [PAGE], sizes_asked=False)) == 6


def test_a_domain_asked_of_a_driver_that_knows_none_is_untested(bench: OpenBench) -> None:
    made = bench()
    chosen = wishes(made.session, ["domain:all"], [PAGE], sizes_asked=False)
    assert [str(w.condition) for w in chosen] == ["device 2 MiB"]
    assert made.report.checks[0].outcome is Outcome.UNTESTED
    assert "does not know locality domains" in made.report.checks[0].detail


def test_without_static_bar1_nothing_is_measured() -> None:
    card = Card(4, {Fault.STATIC_BAR1_OFF})
    rm = SimulatedRm(card)
    with (
        pytest.raises(NothingMeasuredError, match="static BAR1 is off on /dev/nvidia0"),
        opened(SimulatedGpu(card, rm), Report(), words_per_page=64, transport=rm),
    ):
        pass
    assert not rm.files


def test_an_interrupt_gives_everything_back(bench: OpenBench) -> None:
    made = bench()

    def interrupt(self: object, *_: object) -> None:
        raise KeyboardInterrupt

    allocations = type(made.gpu.create(PLAIN, PAGE))
    made.card.free_pages = list(range(64))
    patched, allocations.fill = allocations.fill, interrupt  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            bar1.check(made.session, wish(BOTH))
    finally:
        allocations.fill = patched  # type: ignore[method-assign]
    assert len(made.rm.files) == 2
    assert made.card.free_bytes == 64 * PAGE


def test_two_rounds_write_different_data(bench: OpenBench) -> None:
    """Data of the round before must not pass for this round's."""
    made = bench()
    written = []
    bar1.check(made.session, wish(PLAIN, 1))
    written.append(made.card.memory[0].copy())
    bar1.check(made.session, wish(PLAIN, 1))
    written.append(made.card.memory[0].copy())
    assert np.count_nonzero(written[0] == written[1]) < 10
