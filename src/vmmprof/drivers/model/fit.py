# SPDX-License-Identifier: MIT
"""Fit the models' parameters from their sources and store them as package data.

    python -m vmmprof.drivers.model.fit [RECORDING]

Without an argument all models are fitted again from the data in the package:
the paper's tables, and the H200's rows of direct resource-manager allocations.
RECORDING, made on an H200 by ``vmmprof sweep --driver rm`` with the placements
``noncontiguous``, ``compressible`` and ``compressible+noncontiguous``, replaces
those rows first. The rows at 2, 64 and 1024 MiB are fitted; the others are what
``vmmprof model check`` tests the model on.

All fits are least squares of the relative error, with no parameter negative.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vmmprof.drivers.model.costs import Work
from vmmprof.drivers.model.parameters import Curve, Parameter, ParameterSet
from vmmprof.drivers.model.pma import PAGE_BYTES, PhysicalMemory
from vmmprof.drivers.model.rm_rows import KINDS, ROWS, RmRow, read_rows, rows_text, stored_text
from vmmprof.drivers.model.update_loop import NO_UPDATE, count_update, parse_patch
from vmmprof.errors import UsageError, VmmprofError
from vmmprof.placement import Placement
from vmmprof.recording.reader import load
from vmmprof.reference import Table, table
from vmmprof.sizes import GIB, MIB

H200_FITTED_MIB = (2, 64, 1024)
B300_KNOTS_MIB = (2, 64, 1024)
B200_KNOTS_MIB = (2, 256, 512, 1024)
# Of the update function's samples, those in the barrier and the TLB invalidation.
H200_SYNC_SHARE = 0.813

ARMS = {"none": "ld_on_us", "b": "b_only_us", "a": "a_only_us", "ab": "a_plus_b_us"}
"""Columns of the paper's table 7 by patch."""


@dataclass(frozen=True)
class Equation:
    """Known factors, one for each unknown, that should sum up to ``us``."""

    factors: tuple[float, ...]
    us: float


def solve(equations: Sequence[Equation], scale_us: Sequence[float]) -> npt.NDArray[np.float64]:
    """Non-negative unknowns that minimise the squares of error / scale.

    An unknown that comes out negative is set to zero and the others are fitted
    again: with a handful of unknowns that is enough.
    """
    factors = np.array([equation.factors for equation in equations], np.float64)
    weights = 1 / np.asarray(scale_us, np.float64)
    targets = np.array([equation.us for equation in equations], np.float64) * weights
    factors *= weights[:, np.newaxis]
    active = list(range(factors.shape[1]))
    while True:
        values, *_ = np.linalg.lstsq(factors[:, active], targets, rcond=None)
        if not len(values) or values.min() >= 0:
            break
        del active[int(values.argmin())]
    unknowns = np.zeros(factors.shape[1])
    unknowns[active] = values
    return unknowns


def work_of(size_mib: int, placement: Placement, patch: str, *, contiguous: bool = True) -> Work:
    """The work for memory of an empty GPU; a domain means one of two."""
    memory = PhysicalMemory(4 * GIB, domain_count=2).allocate(
        size_mib * MIB // PAGE_BYTES, placement.domain, contiguous=contiguous
    )
    if memory is None:
        raise UsageError(f"size {size_mib} MiB: the fit goes up to 1024 MiB")
    enters = placement.domain is not None or placement.compressible
    return Work(
        size_mib=size_mib,
        page_count=len(memory.pages),
        contiguous=memory.contiguous,
        compressible=placement.compressible,
        update=count_update(memory, parse_patch(patch)) if enters else NO_UPDATE,
    )


def fit_update_loop(create: Table) -> list[Parameter]:
    """The update loop's costs from all arms of the paper's table 7."""
    base = Curve(tuple(_knots(create, "ld_off_us", B200_KNOTS_MIB)))
    equations, scale_us = [], []
    for patch, column in ARMS.items():
        for size_mib, us in zip(_sizes_mib(create), create.numbers(column), strict=True):
            work = work_of(size_mib, Placement(domain=0), patch)
            base_us = base.at(size_mib) or 0.0
            array_pages = 0 if work.contiguous else work.page_count
            factors = (1, work.update.calls, work.update.syncs, array_pages)
            equations.append(Equation(factors, us - base_us))
            scale_us.append(us)
    values = solve(equations, scale_us)
    names = ("update_us", "call_us", "sync_us", "page_array_us")
    source = f"{create.source} ({create.platform}): all sizes, LD-on, A, B and A+B"
    return [
        Parameter(name, round(float(value), 3), unit, source)
        for name, value, unit in zip(
            names, values, ("us/update", "us/call", "us/sync", "us/page"), strict=True
        )
    ]


def fit_b200(create: Table) -> ParameterSet:
    """Table 7: the base curve and the update loop."""
    return ParameterSet(
        (
            *_curve("create_base_us", create, "ld_off_us", B200_KNOTS_MIB),
            *fit_update_loop(create),
        )
    )


def fit_b300(cycle: Table, calls: Table, create: Table) -> ParameterSet:
    """Table 6 and the 1 GiB split give the bases; the update loop is the B200's, unchanged."""
    bases = [
        Parameter(f"{call}_base_us", calls.number(call, "baseline_us"), "us", calls.source, 1024)
        for call in ("create", "release")
    ]
    return ParameterSet(
        (
            *_curve("total_base_us", cycle, "baseline_us", B300_KNOTS_MIB),
            *bases,
            *fit_update_loop(create),
        )
    )


def fit_h200(rows: Sequence[RmRow], source: str) -> ParameterSet:
    """Allocation and free, each with its own parameters, from the rows at three sizes."""
    fitted = [row for row in rows if row.size_mib in H200_FITTED_MIB]
    has = {(row.size_mib, row.kind) for row in fitted}
    missing = [(mib, kind) for mib in H200_FITTED_MIB for kind in KINDS if (mib, kind) not in has]
    if missing:
        mib, kind = missing[0]
        raise UsageError(
            f"{source} has no row of {mib} MiB, {kind}; the fit needs all of {', '.join(KINDS)} "
            f"at {', '.join(map(str, H200_FITTED_MIB))} MiB"
        )
    share = Parameter(
        "sync_share",
        H200_SYNC_SHARE,
        "of an iteration",
        "kernel samples of cuMemCreate, 1 GiB compressible on a scattered card, one H200, "
        "driver 580.159.04",
    )
    where = f"{source}: {', '.join(map(str, H200_FITTED_MIB))} MiB"
    return ParameterSet(
        (*_h200_call("alloc", fitted, where), *_h200_call("free", fitted, where), share)
    )


def _h200_call(call: str, rows: Sequence[RmRow], source: str) -> list[Parameter]:
    equations = []
    for row in rows:
        work = work_of(row.size_mib, row.placement, "none", contiguous=row.contiguous)
        factors = (
            *(float(row.size_mib == mib) for mib in H200_FITTED_MIB),
            0 if work.contiguous else work.page_count,
            work.update.calls,
            work.update.page_writes,
            float(work.compressible),
        )
        equations.append(Equation(factors, row.us(call)))
    values = [round(float(value), 3) for value in solve(equations, [e.us for e in equations])]
    knots = [
        Parameter(f"{call}_base_us", value, "us", source, mib)
        for mib, value in zip(H200_FITTED_MIB, values, strict=False)
    ]
    terms = (
        ("page_array_us", "us/page"),
        ("iteration_us", "us/iteration"),
        ("page_write_us", "us/page"),
        ("compressible_us", "us"),
    )
    return knots + [
        Parameter(f"{call}_{name}", value, unit, source)
        for (name, unit), value in zip(terms, values[len(knots) :], strict=True)
    ]


def _sizes_mib(reference: Table) -> list[int]:
    return [int(name) for name in reference.row_names]


def _knots(reference: Table, column: str, sizes_mib: Iterable[int]) -> list[tuple[float, float]]:
    return [(mib, reference.number(str(mib), column)) for mib in sizes_mib]


def _curve(name: str, reference: Table, column: str, sizes_mib: Iterable[int]) -> list[Parameter]:
    source = f"{reference.source}, {column} (read off, not fitted)"
    return [
        Parameter(name, us, "us", source, int(mib))
        for mib, us in _knots(reference, column, sizes_mib)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and store; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m vmmprof.drivers.model.fit",
        description="Fit the models' parameters and store them as package data.",
    )
    parser.add_argument("recording", nargs="?", help="a recording made on an H200 with --driver rm")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data")
    options = parser.parse_args(arguments)
    try:
        _fit_all(options.recording, options.output)
    except VmmprofError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


def _fit_all(recording_name: str | None, folder: Path) -> None:
    text = stored_text() if recording_name is None else rows_text(load(recording_name))
    rows, rows_table = read_rows(text)
    cycle, create = table("ld_table06_vmm_cycle"), table("ld_table07_create_patched")
    fitted = {
        "b300": fit_b300(cycle, table("ld_text_calls_1gib"), create),
        "b200": fit_b200(create),
        "h200": fit_h200(rows, f"{rows_table.source}; {rows_table.platform}"),
    }
    (folder / ROWS).write_text(text, encoding="utf-8")
    for name, parameters in fitted.items():
        (folder / f"{name}.json").write_text(parameters.to_json(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
