# SPDX-License-Identifier: MIT
"""Every reference cell beside what the models say of it.

The paper's tables have been seen: parameters are fitted on them, so that their
errors are goodness of fit. The test of the model is the H200's rows at sizes
that nothing was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmmprof.drivers.model import make
from vmmprof.drivers.model.driver import ModelDriver
from vmmprof.drivers.model.fit import ARMS, H200_FITTED_MIB
from vmmprof.drivers.model.rm_rows import read_rows, stored_text
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.reference import Table, table
from vmmprof.sizes import MIB

TABLE_6 = "b300: paper table 6"
TABLE_7 = "b200: paper table 7"
CALLS = "b300: paper section 5.6"
RM_ROWS = "h200: direct RM allocation"

_LOCALIZED = Placement(domain=0)


@dataclass(frozen=True)
class Cell:
    """One number of a reference and the model's number for it, in the same unit.

    fitted: whether the reference was seen when the parameters were fitted.
    """

    table: str
    row: str
    column: str
    reference: float
    model: float
    fitted: bool

    @property
    def error_pct(self) -> float:
        """How far the model is off, in percent of the reference."""
        return 100 * (self.model / self.reference - 1)


def mean_absolute_error_pct(cells: Sequence[Cell]) -> float:
    """Mean of the cells' absolute errors."""
    return sum(abs(cell.error_pct) for cell in cells) / len(cells)


def all_cells() -> list[Cell]:
    """Every cell of all references, table by table and row by row."""
    return [*_table_6(), *_calls(), *_table_7(), *_rm_rows()]


def _us(driver: ModelDriver, size_mib: int, placement: Placement, column: str) -> float:
    """The model's time; KeyError when it does not model that column at that size."""
    work = driver.work(Condition(placement, size_mib * MIB))
    if work is None:
        raise KeyError(f"{size_mib} MiB is more than {driver.name} has")
    return driver.gpu.times_us(work)[column]


def _compared(
    name: str, reference: Table, row: str, model: Mapping[str, float], columns: Sequence[str]
) -> Iterator[Cell]:
    for column in columns:
        yield Cell(name, row, column, reference.number(row, column), model[column], fitted=True)


def _table_6() -> Iterator[Cell]:
    reference = table("ld_table06_vmm_cycle")
    driver = make("model:b300")
    for row in reference.row_names:
        baseline_us = _us(driver, int(row), PLAIN, "total")
        ld_us = _us(driver, int(row), _LOCALIZED, "total")
        model = {
            "baseline_us": baseline_us,
            "ld_us": ld_us,
            "ratio": ld_us / baseline_us,
            "extra_us": ld_us - baseline_us,
        }
        yield from _compared(TABLE_6, reference, row, model, reference.columns[1:])


def _calls() -> Iterator[Cell]:
    reference = table("ld_text_calls_1gib")
    driver = make("model:b300")
    for call in reference.row_names:
        model = {
            "baseline_us": _us(driver, 1024, PLAIN, call),
            "ld_us": _us(driver, 1024, _LOCALIZED, call),
        }
        yield from _compared(CALLS, reference, call, model, reference.columns[1:])


def _table_7() -> Iterator[Cell]:
    reference = table("ld_table07_create_patched")
    drivers = {column: make("model:b200", patch) for patch, column in ARMS.items()}
    for row in reference.row_names:
        model = {
            column: _us(driver, int(row), _LOCALIZED, "create")
            for column, driver in drivers.items()
        }
        model["ld_off_us"] = _us(drivers["ld_on_us"], int(row), PLAIN, "create")
        model["gain_x"] = model["ld_on_us"] / model["a_plus_b_us"]
        yield from _compared(TABLE_7, reference, row, model, reference.columns[1:])


def _rm_rows() -> Iterator[Cell]:
    driver = make("model:h200")
    rows, _ = read_rows(stored_text())
    for row in sorted(rows, key=lambda row: row.size_mib):
        for call, column in (("alloc", "create"), ("free", "release")):
            yield Cell(
                RM_ROWS,
                str(row.size_mib),
                f"{row.kind} {call}_us",
                row.us(call),
                _us(driver, row.size_mib, row.placement, column),
                fitted=row.size_mib in H200_FITTED_MIB,
            )
