# SPDX-License-Identifier: MIT
"""What an allocation pattern costs a second, with what, and what to do about it.

Every number names its evidence: measured here, the paper, or a model.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmmprof.analysis.arms import TOTAL, Arm, all_cells
from vmmprof.analysis.groups import placement_of
from vmmprof.errors import UsageError
from vmmprof.placement import ALONE, Placement
from vmmprof.sizes import MIB, format_size, parse_size
from vmmprof.variant import STANDARD

MEASURED, PAPER, MODEL = "measured here", "paper", "model"
TODAY = "today"

# A pattern that costs less of a second than this is not worth anybody's time.
WORTH_MS_PER_S = 1.0
# An option must save this share of today's cost to be advised.
WORTH_SHARE = 0.1
# Shorter traces have no rate, and later times are no times.
_LEAST_TRACE_S, _MOST_TIME_S = 1e-6, 1e12
_TRACE_COLUMNS = ("time_s", "event", "size", "placement")


@dataclass(frozen=True)
class Load:
    """Allocations of one size and placement: how many a second, how many alive at once at most.

    ``peak_alive`` is None where the pattern does not say.
    """

    size_bytes: int
    placement: Placement
    per_s: float
    peak_alive: int | None = None


@dataclass(frozen=True)
class CostCurve:
    """Cost of one allocate-to-free cycle over size, in us, of one placement under one driver."""

    evidence: str
    sizes_mib: tuple[float, ...]
    costs_us: tuple[float, ...]

    def at(self, size_bytes: int) -> float:
        """Cost at a size: straight lines between known sizes, the outermost line beyond them.

        Below the smallest known size the cost is that size's.
        """
        size = size_bytes / MIB
        sizes, costs = self.sizes_mib, self.costs_us
        if size > sizes[-1] and len(sizes) > 1:
            slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
            return costs[-1] + slope * (size - sizes[-1])
        return float(np.interp(size, sizes, costs))

    def knows(self, size_bytes: int) -> bool:
        """Whether the size is one of the known ones."""
        return size_bytes / MIB in self.sizes_mib


@dataclass(frozen=True)
class Option:
    """A way to serve the pattern: its steady cost (None: not known) and its cost once."""

    name: str
    ms_per_s: float | None
    once_ms: float
    evidence: str


@dataclass(frozen=True)
class Rule:
    """What to do, why, and on which evidence."""

    advice: str
    because: str
    evidence: str


@dataclass(frozen=True)
class Advice:
    """The pattern, what it costs with each option, and what to do, most useful first."""

    loads: tuple[Load, ...]
    options: tuple[Option, ...]
    rules: tuple[Rule, ...]
    interpolated: tuple[Load, ...]


Curves = Mapping[Placement, CostCurve]


def curves_of(arm_placements: Sequence[Arm], evidence: str) -> dict[Placement, CostCurve]:
    """Cost curves of arms of one driver, a placement each."""
    curves = {}
    for arm in arm_placements:
        points = []
        for cell in all_cells([arm], TOTAL):
            cost = arm.p50(cell)
            usual = (cell.scattered, cell.level, cell.variant) == (False, ALONE, STANDARD)
            if usual and cost is not None:
                points.append((cell.size_bytes / MIB, cost.value / 1000))
        if points:
            sizes, costs = zip(*points, strict=True)
            curves[arm.placement] = CostCurve(evidence, sizes, costs)
    return curves


def curve_for(curves: Curves, placement: Placement) -> CostCurve | None:
    """The placement's curve; locality domains are alike, so any domain speaks for another."""
    if placement in curves:
        return curves[placement]
    if placement.domain is None:
        return None
    alike = [
        curve
        for other, curve in curves.items()
        if other.domain is not None
        and (other.compressible, other.rdma) == (placement.compressible, placement.rdma)
    ]
    return alike[0] if alike else None


def scaled_curve(today: CostCurve, stock: CostCurve, patched: CostCurve) -> CostCurve:
    """Today's costs times what another source says that a patch changes; the evidence is its."""
    costs = tuple(
        cost * patched.at(int(size * MIB)) / stock.at(int(size * MIB))
        for size, cost in zip(today.sizes_mib, today.costs_us, strict=True)
    )
    return CostCurve(patched.evidence, today.sizes_mib, costs)


def advise(loads: Sequence[Load], drivers: Mapping[str, Curves]) -> Advice:
    """Options and rules. ``drivers`` maps :data:`TODAY` and patch arms to their curves.

    UsageError when today's cost of a placement in the pattern is not known.
    """
    today = drivers[TODAY]
    for load in loads:
        if curve_for(today, load.placement) is None:
            raise UsageError(
                f"nothing says what placement {str(load.placement)!r} costs; give a recording of it"
            )
    options = [
        _with_driver(name, loads, curves)
        for name, curves in drivers.items()
        if all(curve_for(curves, load.placement) is not None for load in loads)
    ]
    options.append(_with_pool(loads, today))
    interpolated = tuple(
        load
        for load in loads
        if (curve := curve_for(today, load.placement)) is not None
        and not curve.knows(load.size_bytes)
    )
    rules = _rules(loads, today, options)
    return Advice(tuple(loads), tuple(options), tuple(rules), interpolated)


def _cost_us(curves: Curves, load: Load) -> float:
    curve = curve_for(curves, load.placement)
    assert curve is not None, "callers ask only for placements that have a curve"
    return curve.at(load.size_bytes)


def _evidence(curves: Curves, loads: Iterable[Load]) -> str:
    found = {
        curve.evidence for load in loads if (curve := curve_for(curves, load.placement)) is not None
    }
    return ", ".join(sorted(found))


def _with_driver(name: str, loads: Sequence[Load], curves: Curves) -> Option:
    cost_us = sum(load.per_s * _cost_us(curves, load) for load in loads)
    return Option(name, cost_us / 1000, 0.0, _evidence(curves, loads))


def _with_pool(loads: Sequence[Load], today: Curves) -> Option:
    """A warm pool pays for as many allocations as are ever alive at once, and that once.

    What the pool itself takes for an allocation is in none of the sources.
    """
    once_us = sum((load.peak_alive or 1) * _cost_us(today, load) for load in loads)
    return Option(
        "warm pool", None, once_us / 1000, f"{_evidence(today, loads)}; {PAPER}, figure 5"
    )


def _rules(loads: Sequence[Load], today: Curves, options: Sequence[Option]) -> list[Rule]:
    now = next(option for option in options if option.name == TODAY)
    now_ms = now.ms_per_s or 0.0
    if now_ms < WORTH_MS_PER_S:
        return [
            Rule(
                "leave it as it is",
                f"the pattern costs {now_ms:.3g} ms of each second",
                now.evidence,
            )
        ]
    pool = next(option for option in options if option.name == "warm pool")
    rules = [
        Rule(
            "keep memory in a pool that never gives it back (release threshold without limit)",
            f"the pattern costs {now_ms:.3g} ms of each second; a warm pool costs "
            f"{pool.once_ms:.3g} ms once, then what the pool itself takes, localized or not",
            pool.evidence,
        )
    ]
    patched = [
        (option.ms_per_s, option)
        for option in options
        if option.ms_per_s is not None and option.name != TODAY
    ]
    best_ms, best = min(patched, key=lambda one: one[0], default=(now_ms, now))
    if best_ms <= (1 - WORTH_SHARE) * now_ms:
        rules.append(
            Rule(
                f"where a pool is not possible, use the driver with patch {best.name}",
                f"{now_ms:.3g} becomes {best_ms:.3g} ms of each second",
                best.evidence,
            )
        )
    rules += [rule for load in loads for rule in _split_rule(load, today)]
    rules += [rule for load in loads for rule in _plain_rule(load, today)]
    return rules


def _split_rule(load: Load, today: Curves) -> list[Rule]:
    """Pieces that cost less together than the whole: the side of the threshold that is cheap."""
    curve = curve_for(today, load.placement)
    if curve is None:
        return []
    whole_us = curve.at(load.size_bytes)
    pieces = [
        (math.ceil(load.size_bytes / MIB / size) * cost, size)
        for size, cost in zip(curve.sizes_mib, curve.costs_us, strict=True)
        if size < load.size_bytes / MIB
    ]
    if not pieces or min(pieces)[0] > (1 - WORTH_SHARE) * whole_us:
        return []
    split_us, size = min(pieces)
    return [
        Rule(
            f"build {format_size(load.size_bytes)} at {load.placement} from pieces of {size:g} MiB",
            f"{whole_us:.4g} us in one piece, {split_us:.4g} us in pieces that each are cheap",
            curve.evidence,
        )
    ]


def _plain_rule(load: Load, today: Curves) -> list[Rule]:
    """What placement costs extra here, for the decision whether it is used enough."""
    plain = curve_for(today, Placement())
    curve = curve_for(today, load.placement)
    if plain is None or curve is None or load.placement.is_plain:
        return []
    extra_us = curve.at(load.size_bytes) - plain.at(load.size_bytes)
    if extra_us <= 0 or load.per_s * extra_us / 1000 < WORTH_MS_PER_S:
        return []
    return [
        Rule(
            f"place {format_size(load.size_bytes)} at {load.placement} only if its uses save over "
            f"{extra_us:.4g} us an allocation",
            "that is what it costs over plain memory; vmmprof amortise says after how many uses",
            curve.evidence,
        )
    ]


# -- patterns -----------------------------------------------------------------


def read_trace(lines: Iterable[str], name: str) -> list[Load]:
    """Loads of a trace of allocate and free events in CSV.

    Columns: ``time_s``, ``event`` (allocate or free), ``size`` (bytes or 64M),
    ``placement``, and optionally ``id``, which tells which allocation a free
    means; without it the oldest of the same size and placement goes. The rate
    is the number of allocations over the time from first to last event.
    """
    reader = csv.DictReader(lines)
    missing = [column for column in _TRACE_COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(
            f"trace {name} lacks column {', '.join(missing)}; "
            f"it has {', '.join(reader.fieldnames or ('none',))}"
        )
    alive: dict[tuple[int, Placement], deque[str]] = defaultdict(deque)
    counts: dict[tuple[int, Placement], int] = defaultdict(int)
    peaks: dict[tuple[int, Placement], int] = defaultdict(int)
    times = []
    for number, row in enumerate(reader, start=2):
        where = f"trace {name} line {number}"
        if any(row[column] is None for column in _TRACE_COLUMNS):
            raise UsageError(f"{where} has fewer values than columns")
        times.append(_number(row["time_s"], where))
        if len(times) > 1 and times[-1] < times[-2]:
            raise UsageError(f"{where} is earlier than the line before; sort the trace by time_s")
        try:
            key = (parse_size(row["size"]), placement_of(row["placement"]))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        identity = row.get("id") or ""
        if row["event"] == "allocate":
            counts[key] += 1
            alive[key].append(identity)
            peaks[key] = max(peaks[key], len(alive[key]))
        elif row["event"] == "free":
            if identity not in alive[key]:
                raise UsageError(f"{where} frees what is not allocated")
            alive[key].remove(identity)
        else:
            raise UsageError(f"{where} has event {row['event']!r}; it is allocate or free")
    length_s = max(times, default=0.0) - min(times, default=0.0)
    if length_s < _LEAST_TRACE_S:
        raise UsageError(f"trace {name} spans less than 1 us, so that it has no rate")
    return [
        Load(size, placement, count / length_s, peaks[size, placement])
        for (size, placement), count in counts.items()
    ]


def _number(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not abs(value) <= _MOST_TIME_S:
        raise UsageError(f"{where} has time {text!r}; it is seconds such as 0.125")
    return value
