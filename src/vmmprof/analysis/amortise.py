# SPDX-License-Identifier: MIT
"""How many uses repay what a placement costs extra at allocation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmmprof.analysis.arms import TOTAL, Arm, all_cells
from vmmprof.analysis.intervals import Estimate
from vmmprof.analysis.student import two_sided_95
from vmmprof.errors import UsageError
from vmmprof.placement import ALONE
from vmmprof.reference import Table
from vmmprof.sizes import MIB
from vmmprof.variant import STANDARD

NS_PER_US = 1000.0
NS_OF_UNIT = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Saving:
    """What one use of the placement saves, in ns; not positive where it saves nothing."""

    name: str
    ns: float


@dataclass(frozen=True)
class ExtraCost:
    """What an allocation costs extra at a size, in ns, from an arm or a published table."""

    size_bytes: int
    arm: str
    extra: Estimate


@dataclass(frozen=True)
class Repayment:
    """Uses that repay one extra cost.

    ``uses`` is extra cost over saving, a quotient with the extra cost's
    interval carried through; 0 where there is no extra cost, None where
    the saving is not positive. ``repaid_after`` is the first whole number of
    uses at which the account is even: the quotient's ceiling.
    """

    cost: ExtraCost
    saving: Saving
    uses: Estimate | None

    @property
    def repaid_after(self) -> int | None:
        return None if self.uses is None else math.ceil(self.uses.value)

    @property
    def verdict(self) -> str:
        """``never``, ``at once`` or ``after N uses``."""
        if self.repaid_after is None:
            return "never"
        return f"after {self.repaid_after} uses" if self.repaid_after else "at once"


def repayment(cost: ExtraCost, saving: Saving) -> Repayment:
    """The uses that repay ``cost`` at ``saving`` a use."""
    if saving.ns <= 0:
        return Repayment(cost, saving, None)
    quotient = cost.extra.scaled(1 / saving.ns)
    ends = (max(0.0, end) for end in (quotient.value, quotient.lo, quotient.hi))
    value, lo, hi = ends
    # max() drops NaN in favour of the number: an interval that is not there stays not there.
    if not quotient.has_interval:
        lo = hi = math.nan
    return Repayment(cost, saving, Estimate(value, lo, hi, quotient.n))


def extra_costs(arms: Sequence[Arm]) -> list[ExtraCost]:
    """Extra cost of the whole cycle over plain, unscattered and one worker, by size and arm."""
    costs = []
    for cell in all_cells(list(arms), TOTAL):
        if cell.scattered or cell.level != ALONE or cell.variant != STANDARD:
            continue
        for arm in arms:
            extra = _over_recordings(arm.extras(cell))
            if extra is not None:
                costs.append(ExtraCost(cell.size_bytes, arm.name, extra))
    return costs


def _over_recordings(extras: list[Estimate]) -> Estimate | None:
    """One recording's own estimate, or the mean of several with the spread between them."""
    if len(extras) < 2:
        return extras[0] if extras else None
    values = [estimate.value for estimate in extras]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half_width = two_sided_95(len(values) - 1) * math.sqrt(variance / len(values))
    return Estimate(mean, mean - half_width, mean + half_width, sum(e.n for e in extras))


def published_costs(cycle: Table) -> list[ExtraCost]:
    """Extra cost of a published table of whole cycles (columns size_mib, extra_us)."""
    return [
        ExtraCost(
            int(size_mib * MIB),
            "paper",
            Estimate(extra_us * NS_PER_US, math.nan, math.nan, 0),
        )
        for size_mib, extra_us in zip(
            cycle.numbers("size_mib"), cycle.numbers("extra_us"), strict=True
        )
    ]


def savings_of_primitives(primitives: Table) -> list[Saving]:
    """What placing data on the accessor's die saves an access: cross-die less same-die latency.

    ``primitives``: columns metric, working_set, same_die, cross_die, unit
    (reference table ld_table04_primitives); rows in a unit of time count. ValueError
    where these are no finite numbers.
    """
    savings = []
    columns = ("metric", "working_set", "same_die", "cross_die", "unit")
    for metric, working_set, same, cross, unit in zip(
        *(primitives.texts(column) for column in columns), strict=True
    ):
        if unit in NS_OF_UNIT:
            name = f"{metric} {working_set}, cross-die less same-die"
            saved_ns = (float(cross) - float(same)) * NS_OF_UNIT[unit]
            if not math.isfinite(saved_ns):
                raise ValueError(f"{cross} less {same} {unit} is no time")
            savings.append(Saving(name, saved_ns))
    if not savings:
        raise UsageError(
            f"{primitives.name} has no row in {', '.join(NS_OF_UNIT)}; a saving is a difference "
            "of times"
        )
    return savings
