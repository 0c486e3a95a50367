# SPDX-License-Identifier: MIT
"""From sizes and placements asked for to the conditions that can be measured here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vmmprof.drivers.protocol import ConcurrentDriver, Driver, PlacementUnavailableError
from vmmprof.errors import PartialError, UsageError
from vmmprof.placement import ALONE, NOBODY, PLAIN, Condition, Level, Placement, parse_placement
from vmmprof.sizes import format_size, round_up
from vmmprof.variant import STANDARD, Variant


@dataclass
class Plan:
    """``conditions`` in display order, and what was said while they were found.

    ``unavailable`` maps what was asked for and cannot be measured here to the
    reason; it decides the exit code. ``notes`` are for the user to know.
    """

    conditions: list[Condition] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def placements_asked_for(
    texts: Sequence[str] | None, driver: Driver, plan: Plan
) -> dict[Placement, int]:
    """Placements and their granularity in bytes; plain first, as the control of all.

    Without ``texts``: plain and every locality domain of a device with several.
    """
    wanted = [PLAIN]
    if texts is None and (driver.domain_count or 0) > 1:
        texts = ["domain:all"]
    for text in texts or ():
        try:
            wanted += parse_placement(text, driver.domain_count)
        except PartialError as error:
            plan.unavailable[text] = str(error)
    granularities = {}
    for placement in dict.fromkeys(wanted):
        try:
            granularities[placement] = driver.granularity_bytes(placement)
        except PartialError as error:
            plan.unavailable[str(placement)] = str(error)
    return granularities


def _levels_available(levels: Sequence[Level], driver: Driver, plan: Plan) -> list[Level]:
    available = []
    for level in levels:
        if level == ALONE or isinstance(driver, ConcurrentDriver):
            available.append(level)
        else:
            plan.unavailable[str(level)] = f"{level}: --driver {driver.name} runs one thread alone"
    return available


def _available_variants(
    placements: Iterable[Placement], variants: Sequence[Variant], driver: Driver, plan: Plan
) -> list[tuple[Placement, Variant]]:
    available = []
    for placement in placements:
        for variant in variants:
            what = str(variant) if placement == PLAIN else f"{placement}, {variant}"
            try:
                if isinstance(driver, ConcurrentDriver):
                    driver.require_variant(placement, variant)
                elif variant != STANDARD:
                    raise PlacementUnavailableError(
                        f"variant {variant}: --driver {driver.name} has the usual cycle alone"
                    )
            except PartialError as error:
                plan.unavailable[what] = str(error)
            else:
                available.append((placement, variant))
    return available


def _divisible(conditions: Sequence[Condition], granularity: int, plan: Plan) -> list[Condition]:
    """Without those whose chunks do not make their size, which is said once a variant."""
    fits: list[Condition] = []
    odd: dict[Variant, set[int]] = {}
    for condition in conditions:
        chunk = condition.variant.chunk_bytes
        if chunk and (
            condition.size_bytes % chunk or condition.size_bytes == chunk or chunk % granularity
        ):
            odd.setdefault(condition.variant, set()).add(condition.size_bytes)
        else:
            fits.append(condition)
    for variant, sizes in odd.items():
        listed = ", ".join(format_size(size) for size in sorted(sizes))
        plan.notes.append(f"{variant} is left out at {listed}: that is no several whole chunks")
    return fits


def _fitting(conditions: Sequence[Condition], driver: Driver, plan: Plan) -> list[Condition]:
    """The conditions whose workers find room on a device together."""
    fitting = []
    for condition in conditions:
        need_bytes = condition.size_bytes * condition.level.workers_a_device
        if need_bytes <= driver.total_memory_bytes:
            fitting.append(condition)
        else:
            plan.unavailable[str(condition)] = (
                f"{condition}: all workers together need {need_bytes >> 20} MiB of a device with "
                f"{driver.total_memory_bytes >> 20} MiB"
            )
    return fitting


def make_plan(
    sizes: Sequence[int],
    placements: Sequence[str] | None,
    scatter: bool,
    driver: Driver,
    levels: Sequence[Level] = (ALONE,),
    *,
    variants: Sequence[Variant] = (STANDARD,),
    victim: bool = False,
) -> Plan:
    """The conditions to measure with ``driver``, each size and placement at each of ``levels``.

    A ``victim`` is measured alone, too: a condition of its own in every card state.

    Sizes are rounded up to the largest granularity of the placements, so that
    every placement is measured at the control's size; sizes that meet after
    rounding are measured once. UsageError for a size that the device does not
    have.
    """
    plan = Plan()
    granularities = placements_asked_for(placements, driver, plan)
    if PLAIN not in granularities:
        return plan
    granularity = max(granularities.values())
    rounded = {size: round_up(size, granularity) for size in sizes}
    too_large = [size for size, real in rounded.items() if real > driver.total_memory_bytes]
    if too_large:
        total = format_size(driver.total_memory_bytes >> 20 << 20)
        raise UsageError(
            f"size {format_size(max(too_large))} is larger than the device's memory of {total}"
        )
    changed = [size for size, real in rounded.items() if real != size]
    if changed:
        plan.notes.append(
            f"{len(changed)} of {len(rounded)} sizes rounded up to the granularity of "
            f"{format_size(granularity)}; each real size is measured once"
        )
    states = (False, True) if scatter else (False,)
    conditions = [
        Condition(placement, size, scattered, level, variant)
        for size in sorted(set(rounded.values()))
        for placement, variant in _available_variants(granularities, variants, driver, plan)
        for scattered in states
        for level in _levels_available(levels, driver, plan)
    ]
    plan.conditions = _fitting(_divisible(conditions, granularity, plan), driver, plan)
    if victim and plan.conditions:
        smallest = plan.conditions[0].size_bytes
        plan.conditions += [Condition(PLAIN, smallest, scattered, NOBODY) for scattered in states]
    return plan
