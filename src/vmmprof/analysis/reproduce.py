# SPDX-License-Identifier: MIT
"""What the paper reports that given recordings can answer: cells side by side, then findings.

A cell is a number of a published table beside this machine's and the model's.
A finding is a statement of the paper and whether it holds in the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vmmprof.analysis.amortise import ExtraCost, Saving, repayment
from vmmprof.analysis.arms import TOTAL, Arm, Cell, all_cells
from vmmprof.analysis.compare import compare_at
from vmmprof.analysis.intervals import Estimate
from vmmprof.analysis.threshold import Threshold, find_thresholds
from vmmprof.placement import ALONE, PLAIN, Level, Series
from vmmprof.reference import Table
from vmmprof.sizes import GIB, MIB
from vmmprof.variant import STANDARD, Variant

STOCK, A_ONLY, B_ONLY, BOTH = "stock", "a", "b", "ab"
ARMS = (STOCK, A_ONLY, B_ONLY, BOTH)
TABLE_6, TABLE_7, TABLE_8 = "table 6", "table 7", "table 8"

# The paper's savings behind its table 8: cross-die less same-die latency at 256 MiB (table 4), and
# a 1 MiB remote copy-engine read at 75.7 GB/s against 2.08 times that (table 5).
DEPENDENT_ACCESS = Saving("dependent access, paper's table 4", 193.5)
CE_READ = Saving("1 MiB copy-engine read, paper's table 5", 7192.0)

_NS_PER_US = 1000.0
# How far a slope or a ratio may be from the paper's and still be the same statement: the paper
# itself says "approximately" of both, and another GPU has another clock.
_ALIKE = 0.25
_PAPER_SLOPE_US_PER_MIB = 10.4
_PAPER_STEP_MIB = (32.0, 34.0)
# A tenth of the smallest extra cost without a pool, 21.7 us, would still be "the same" to a user;
# this is a tenth of that.
_POOLS_DIFFER_AT_MOST_US = 0.22
_WARM_POOL = Variant(pool="warm")
# Figure 4's caption: the two domains differ by less than 2 % at every point.
_DOMAINS_DIFFER_AT_MOST = 0.02


@dataclass(frozen=True)
class ReproducedCell:
    """One published number beside this machine's and the model's, in the unit of the column.

    ``here`` is None where the recordings do not hold it; ``model`` is None
    where the model says nothing of it.
    """

    table: str
    row: str
    column: str
    paper: float
    here: Estimate | None
    model: float | None

    @property
    def ratio(self) -> float | None:
        """This machine's number over the paper's."""
        return None if self.here is None else self.here.value / self.paper


@dataclass(frozen=True)
class ScalingRow:
    """A cycle while others allocate, beside one thread of the same rounds, here and in the model.

    ``slower``: its time over that of one thread. ``queue``: what the models predict of that, whose
    locks are one queue of one device; None for several. ``ratio``: its time over plain memory's
    at the same level, None of plain memory; ``paper_ratio`` where the paper has one.
    """

    place: str
    size_bytes: int
    level: Level
    p50_us: Estimate | None
    slower: Estimate | None
    queue: float | None
    ratio: Estimate | None
    paper_ratio: float | None


class Outcome(str, Enum):
    """What the recordings say of a statement."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    NOT_MEASURABLE = "not measurable here"


@dataclass(frozen=True)
class Finding:
    """A statement of the paper, the outcome here, and on what it rests."""

    where: str
    statement: str
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Reproduction:
    """All cells by table, all findings, and the machine that answers each table.

    ``scaling``: by machine, what several allocating at once cost there.
    """

    cells: tuple[ReproducedCell, ...]
    scaling: Mapping[str, tuple[ScalingRow, ...]]
    findings: tuple[Finding, ...]
    machines: Mapping[str, str]
    is_model: bool


@dataclass(frozen=True)
class Evidence:
    """One machine's recordings sorted: ``localized`` by arm, each at the first locality domain.

    ``other_domains``: stock arms of the other domains. ``plain``: the control
    of the stock recordings, None without any recording of the stock driver.
    ``pools``: memory pools on the first domain, None without a recording of them.
    ``placements``: stock arms of every placement recorded, plain first.
    """

    machine: str
    plain: Arm | None
    localized: Mapping[str, Arm]
    other_domains: tuple[Arm, ...]
    pools: Arm | None = None
    placements: tuple[Arm, ...] = ()

    @property
    def stock(self) -> Arm | None:
        return self.localized.get(STOCK)

    @property
    def arms(self) -> list[Arm]:
        return [arm for arm in (self.plain, *self.localized.values()) if arm is not None]

    @property
    def has_totals(self) -> bool:
        """Whether the stock recordings know the time of whole cycles."""
        return self.plain is not None and any(
            part.recording.samples[f"{TOTAL}_ns"].notna().any() for part in self.plain.parts
        )


ModelCells = Mapping[tuple[str, str, str], float]


def reproduce(
    machines: Sequence[Evidence], tables: Mapping[str, Table], model: ModelCells
) -> Reproduction:
    """Cells and findings. ``tables`` by :data:`TABLE_6`..; ``model`` by table, row, column.

    The paper's table 7 is of another machine than the rest, so each part is
    answered by the one of ``machines`` (at least one) that holds it: whole
    cycles by the first that has them, the patches by the one with most arms.
    """
    cycles = next((one for one in machines if one.has_totals), machines[0])
    patches = max(machines, key=lambda one: len(one.localized))
    cells = (
        *_table_6(cycles, tables[TABLE_6], model),
        *_table_7(patches, tables[TABLE_7], model),
        *_table_8(cycles, tables[TABLE_8], model),
    )
    findings = (
        _threshold_finding(cycles),
        _slope_finding(cycles),
        _domains_finding(cycles),
        _small_sizes_finding(patches, tables[TABLE_7]),
        _gain_finding(patches, tables[TABLE_7]),
        _each_patch_finding(patches, tables[TABLE_7]),
        _repayment_finding(cells),
        _concurrent_finding(cycles, tables[TABLE_6], model),
        _pool_finding(machines),
    )
    answered_by = {TABLE_6: cycles, TABLE_7: patches, TABLE_8: cycles}
    return Reproduction(
        cells,
        {one.machine: rows for one in machines if (rows := tuple(_scaling(one)))},
        findings,
        {name: one.machine for name, one in answered_by.items()},
        any(arm.is_model for one in (cycles, patches) for arm in one.arms),
    )


def _us(estimate: Estimate | None) -> Estimate | None:
    return None if estimate is None else estimate.scaled(1 / _NS_PER_US)


def _cell(size_mib: float, call: str) -> Cell:
    return Cell(int(size_mib * MIB), call)


def _rows(table: Table) -> Iterator[tuple[str, float]]:
    yield from zip(table.row_names, table.numbers("size_mib"), strict=True)


def _table_6(evidence: Evidence, paper: Table, model: ModelCells) -> Iterator[ReproducedCell]:
    for row, size_mib in _rows(paper):
        here = _cycle_here(evidence, _cell(size_mib, TOTAL))
        for column in paper.columns[1:]:
            yield ReproducedCell(
                TABLE_6,
                row,
                column,
                paper.number(row, column),
                here.get(column),
                model.get((TABLE_6, row, column)),
            )


def _cycle_here(evidence: Evidence, cell: Cell) -> dict[str, Estimate | None]:
    stock, plain = evidence.stock, evidence.plain
    here: dict[str, Estimate | None] = {}
    if plain is not None:
        here["baseline_us"] = _us(plain.p50(cell))
    if stock is not None:
        pairs = stock.pairs(cell)
        here["ld_us"] = _us(stock.p50(cell))
        here["ratio"] = None if pairs is None else pairs.ratio()
        here["extra_us"] = None if pairs is None else _us(pairs.extra())
    return here


_TABLE_7_ARMS = {
    "ld_on_us": STOCK, "b_only_us": B_ONLY, "a_only_us": A_ONLY, "a_plus_b_us": BOTH,
}  # fmt: skip


def _table_7(evidence: Evidence, paper: Table, model: ModelCells) -> Iterator[ReproducedCell]:
    for row, size_mib in _rows(paper):
        cell = _cell(size_mib, "create")
        here: dict[str, Estimate | None] = {
            column: _us(evidence.localized[arm].p50(cell))
            for column, arm in _TABLE_7_ARMS.items()
            if arm in evidence.localized
        }
        if evidence.plain is not None:
            here["ld_off_us"] = _us(evidence.plain.p50(cell))
        here["gain_x"] = _gain(evidence, cell)
        for column in paper.columns[1:]:
            yield ReproducedCell(
                TABLE_7,
                row,
                column,
                paper.number(row, column),
                here.get(column),
                model.get((TABLE_7, row, column)),
            )


def _gain(evidence: Evidence, cell: Cell, arm: str = BOTH) -> Estimate | None:
    stock, patched = evidence.stock, evidence.localized.get(arm)
    if stock is None or patched is None:
        return None
    return compare_at(patched, stock, cell).gain


def _table_8(evidence: Evidence, paper: Table, model: ModelCells) -> Iterator[ReproducedCell]:
    columns = {"dependent_accesses": DEPENDENT_ACCESS, "ce_reads_1mib": CE_READ}
    for row, size_mib in _rows(paper):
        pairs = None if evidence.stock is None else evidence.stock.pairs(_cell(size_mib, TOTAL))
        extra = None if pairs is None else pairs.extra()
        for column, saving in columns.items():
            uses = None
            if extra is not None:
                cost = ExtraCost(int(size_mib * MIB), STOCK, extra)
                uses = repayment(cost, saving).uses
            modelled_us = model.get((TABLE_6, row, "extra_us"))
            modelled = None if modelled_us is None else modelled_us * _NS_PER_US / saving.ns
            yield ReproducedCell(TABLE_8, row, column, paper.number(row, column), uses, modelled)


# -- findings -----------------------------------------------------------------


def _why_no_domain(evidence: Evidence) -> str | None:
    if evidence.plain is None:
        return "no recording of the stock driver is given"
    if evidence.stock is None:
        return "the recordings have no locality domain (the device has none, or none was asked for)"
    return None


def _threshold(evidence: Evidence) -> tuple[Threshold | None, str]:
    """The stock driver's threshold, or why there is none."""
    why = _why_no_domain(evidence)
    if why is not None or evidence.stock is None:
        return None, why or ""
    reasons = []
    for part in evidence.stock.parts:
        if part.recording.samples[f"{TOTAL}_ns"].isna().all():
            reasons.append("the recordings have no times of the whole cycle")
            continue
        found = find_thresholds(part.visits, TOTAL).get(Series(evidence.stock.placement))
        if found is not None and found.threshold is not None:
            return found.threshold, ""
        reasons.append((found and found.reason) or "")
    return None, reasons[0]


def _threshold_finding(evidence: Evidence) -> Finding:
    where, statement = "figure 4", "the extra cost steps up between 32 and 34 MiB"
    found, why = _threshold(evidence)
    if found is None:
        outcome = Outcome.NOT_MEASURABLE if why else Outcome.FAILS
        return Finding(where, statement, outcome, why or "no step stands out in the extra cost")
    low, high = _PAPER_STEP_MIB
    holds = found.lower_mib <= low and found.upper_mib >= high
    return Finding(
        where,
        statement,
        Outcome.HOLDS if holds else Outcome.FAILS,
        f"the step lies between {found.lower_mib:g} and {found.upper_mib:g} MiB, "
        f"{found.step_us.value:.0f} us high",
    )


def _slope_finding(evidence: Evidence) -> Finding:
    where, statement = "figure 4", "above it the extra cost grows by about 10 us a MiB"
    found, why = _threshold(evidence)
    if found is None:
        return Finding(where, statement, Outcome.NOT_MEASURABLE, why or "there is no threshold")
    slope = found.slope_us_per_mib
    holds = abs(slope.value / _PAPER_SLOPE_US_PER_MIB - 1) <= _ALIKE
    return Finding(
        where,
        statement,
        Outcome.HOLDS if holds else Outcome.FAILS,
        f"{slope.value:.2f} [{slope.lo:.2f}, {slope.hi:.2f}] us a MiB (alike: within "
        f"{_ALIKE:.0%} of {_PAPER_SLOPE_US_PER_MIB})",
    )


def _domains_finding(evidence: Evidence) -> Finding:
    where, statement = "figure 4", "the two domains differ by less than 2 % at every size"
    why = _why_no_domain(evidence)
    if why is None and not evidence.other_domains:
        why = "the recordings have one locality domain only"
    if why is not None or evidence.stock is None:
        return Finding(where, statement, Outcome.NOT_MEASURABLE, why or "")
    worst, at = 0.0, 0
    for other in evidence.other_domains:
        for cell in all_cells([evidence.stock], TOTAL):
            gain = compare_at(other, evidence.stock, cell).gain
            if gain is not None and abs(gain.value - 1) >= worst:
                worst, at = abs(gain.value - 1), cell.size_bytes
    if not at:
        return Finding(where, statement, Outcome.NOT_MEASURABLE, "the domains share no pairs")
    outcome = Outcome.HOLDS if worst < _DOMAINS_DIFFER_AT_MOST else Outcome.FAILS
    return Finding(where, statement, outcome, f"at most {worst:.1%}, at {at // MIB} MiB")


def _gains(evidence: Evidence, paper: Table, arm: str) -> dict[float, Estimate]:
    gains = {size: _gain(evidence, _cell(size, "create"), arm) for _, size in _rows(paper)}
    return {size: gain for size, gain in gains.items() if gain is not None}


def _why_no_gain(evidence: Evidence, arm: str) -> str | None:
    why = _why_no_domain(evidence)
    if why is None and arm not in evidence.localized:
        why = f"no recording of a driver with patch {arm} is given"
    return why


def _gain_statement(
    evidence: Evidence,
    paper: Table,
    statement: str,
    sizes: Callable[[float], bool],
    holds: Callable[[Estimate], bool],
) -> Finding:
    """A statement on the gain of A+B in cuMemCreate at some of table 7's sizes."""
    why = _why_no_gain(evidence, BOTH)
    gains = {} if why else _gains(evidence, paper, BOTH)
    gains = {size: gain for size, gain in gains.items() if sizes(size)}
    if why is None and not gains:
        why = "the recordings have none of these sizes"
    if why is None and not all(gain.has_interval for gain in gains.values()):
        why = "it takes two recordings of each driver (A B B A) to compare across reloads"
    if why is not None:
        return Finding(TABLE_7, statement, Outcome.NOT_MEASURABLE, why)
    outcome = Outcome.HOLDS if all(holds(gain) for gain in gains.values()) else Outcome.FAILS
    shown = ", ".join(f"{size:g} MiB {gain.value:.2f}" for size, gain in gains.items())
    return Finding(TABLE_7, statement, outcome, f"gains: {shown}")


def _small_sizes_finding(evidence: Evidence, paper: Table) -> Finding:
    return _gain_statement(
        evidence,
        paper,
        "up to 32 MiB the patches change nothing in cuMemCreate",
        lambda size: size <= _PAPER_STEP_MIB[0],
        lambda gain: gain.lo <= 1.05 and gain.hi >= 0.95,
    )


def _gain_finding(evidence: Evidence, paper: Table) -> Finding:
    return _gain_statement(
        evidence,
        paper,
        "above 32 MiB A+B makes cuMemCreate seven to ten times as fast",
        lambda size: size > _PAPER_STEP_MIB[0],
        lambda gain: gain.hi >= 7 * (1 - _ALIKE) and gain.lo <= 10.23 * (1 + _ALIKE),
    )


def _each_patch_finding(evidence: Evidence, paper: Table) -> Finding:
    statement = "each patch alone helps above 32 MiB, A more than B"
    for arm in (A_ONLY, B_ONLY):
        why = _why_no_gain(evidence, arm)
        if why is not None:
            return Finding(TABLE_7, statement, Outcome.NOT_MEASURABLE, why)
    gains = {arm: _gains(evidence, paper, arm) for arm in (A_ONLY, B_ONLY)}
    sizes = [size for size in gains[A_ONLY] if size in gains[B_ONLY] and size > _PAPER_STEP_MIB[0]]
    if not sizes or not all(gains[arm][size].has_interval for arm in gains for size in sizes):
        why = "it takes two recordings of each driver (A B B A) to compare across reloads"
        return Finding(TABLE_7, statement, Outcome.NOT_MEASURABLE, why)
    holds = all(
        gains[A_ONLY][size].value > gains[B_ONLY][size].value and gains[B_ONLY][size].lo > 1
        for size in sizes
    )
    shown = ", ".join(
        f"{size:g} MiB A {gains[A_ONLY][size].value:.2f} B {gains[B_ONLY][size].value:.2f}"
        for size in sizes
    )
    return Finding(TABLE_7, statement, Outcome.HOLDS if holds else Outcome.FAILS, shown)


# The paper's eight GPUs with eight threads on each, 1 GiB.
_PAPER_LEVEL = Level(threads=8, devices=8)
_PAPER_CONCURRENT_RATIO = 12.10


def _scaling(evidence: Evidence) -> Iterator[ScalingRow]:
    """Every level of several workers that one thread was measured beside."""
    for arm in evidence.placements:
        for cell in all_cells([arm], TOTAL):
            if cell.level.workers < 2 or cell.variant != STANDARD:
                continue
            beside_one = arm.pairs_with_level(ALONE, cell)
            if beside_one is None:
                continue
            beside_plain = None if arm.placement == PLAIN else arm.pairs(cell)
            is_paper_s = (cell.level, cell.size_bytes) == (_PAPER_LEVEL, GIB)
            is_localized = arm.placement.domain is not None
            yield ScalingRow(
                Series(arm.placement, cell.scattered).place,
                cell.size_bytes,
                cell.level,
                _us(arm.p50(cell)),
                beside_one.ratio(),
                float(cell.level.workers) if cell.level.devices == 1 else None,
                None if beside_plain is None else beside_plain.ratio(),
                _PAPER_CONCURRENT_RATIO if is_paper_s and is_localized else None,
            )


def _concurrent_finding(evidence: Evidence, paper: Table, model: ModelCells) -> Finding:
    """The ratio with many allocating at once; the model's locks are a queue, which keeps it."""
    row = next(row for row, size_mib in _rows(paper) if size_mib == 1024)
    alone = model.get((TABLE_6, row, "ratio"))
    queue = (
        f"; the model's queue for the locks keeps the {alone:.2f} of one thread" if alone else ""
    )
    cell = replace(_cell(1024, TOTAL), level=_PAPER_LEVEL)
    pairs = None if evidence.stock is None else evidence.stock.pairs(cell)
    ratio = None if pairs is None else pairs.ratio()
    if ratio is None:
        outcome = Outcome.NOT_MEASURABLE
        why = f"no recording has a domain at 1 GiB with {_PAPER_LEVEL}"
    else:
        is_alike = abs(math.log(ratio.value / _PAPER_CONCURRENT_RATIO)) <= math.log(1 + _ALIKE)
        outcome = Outcome.HOLDS if is_alike else Outcome.FAILS
        why = f"{ratio.value:.2f} [{ratio.lo:.2f}, {ratio.hi:.2f}] here"
    return Finding(
        "8 GPUs x 8 threads",
        f"a 1 GiB cycle costs {_PAPER_CONCURRENT_RATIO:.2f}x plain memory's",
        outcome,
        f"{why}{queue}",
    )


def _repayment_finding(cells: tuple[ReproducedCell, ...]) -> Finding:
    statement = "1 GiB is repaid after about 55 000 dependent accesses, 2 MiB after 112"
    accesses = {
        cell.row: cell
        for cell in cells
        if (cell.table, cell.column) == (TABLE_8, "dependent_accesses")
    }
    ends = [accesses[row] for row in ("2", "1024")]
    known = [cell.here for cell in ends if cell.here is not None]
    if len(known) < len(ends):
        why = "the recordings have no extra cost at 2 MiB and 1 GiB"
        return Finding(TABLE_8, statement, Outcome.NOT_MEASURABLE, why)
    holds = all(
        abs(math.log(here.value / cell.paper)) <= math.log(1 + _ALIKE)
        for here, cell in zip(known, ends, strict=True)
        if here.value > 0
    )
    holds = holds and all(here.value > 0 for here in known)
    shown = " and ".join(f"{here.value:.0f}" for here in known)
    return Finding(
        TABLE_8,
        statement,
        Outcome.HOLDS if holds else Outcome.FAILS,
        f"2 MiB and 1 GiB after {shown}, with the paper's saving an access",
    )


def _pool_finding(machines: Sequence[Evidence]) -> Finding:
    where = "figure 5"
    statement = "a warm pool costs the same localized or not (-0.06 to -0.01 us)"
    pools = [one.pools for one in machines if one.pools is not None]
    if not pools:
        why = "none of the recordings is of memory pools on a locality domain"
        return Finding(where, statement, Outcome.NOT_MEASURABLE, why)
    extras = {}
    for cell in all_cells(pools[:1], TOTAL):
        pairs = pools[0].pairs(cell) if cell.variant == _WARM_POOL and not cell.scattered else None
        extra = None if pairs is None else _us(pairs.extra())
        if extra is not None:
            extras[cell.size_bytes // MIB] = extra.value
    if not extras:
        why = "the pools' recordings have no pairs of a warm pool with an ordinary one"
        return Finding(where, statement, Outcome.NOT_MEASURABLE, why)
    holds = all(abs(extra) <= _POOLS_DIFFER_AT_MOST_US for extra in extras.values())
    shown = (
        f"{min(extras.values()):+.2f} to {max(extras.values()):+.2f} us over {len(extras)} sizes"
    )
    return Finding(where, statement, Outcome.HOLDS if holds else Outcome.FAILS, shown)
