# SPDX-License-Identifier: MIT
"""The models on the terminal: their cells beside the references', and their parameters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from vmmprof.drivers.model.check import RM_ROWS, Cell, mean_absolute_error_pct
from vmmprof.drivers.model.driver import ModelDriver
from vmmprof.report.numbers import plain

_WIDTH = 80
_ROW_WIDTH = 18
_CELL_WIDTH = 10


def check_lines(cells: Sequence[Cell]) -> list[str]:
    """Every table, its mean absolute error below it; times in us."""
    lines = ["MODEL beside its references; times in us, error = MODEL / reference - 1", ""]
    for name in dict.fromkeys(cell.table for cell in cells):
        of_table = [cell for cell in cells if cell.table == name]
        if name == RM_ROWS:
            lines += _rm_lines(of_table)
        else:
            lines += [f"{name} and the MODEL (fitted: goodness of fit, not a test)"]
            lines += _grid_lines(of_table)
            lines += [_error_line("mean absolute error", of_table), ""]
    return lines[:-1]


def _error_line(what: str, cells: Sequence[Cell]) -> str:
    return f"{what}: {mean_absolute_error_pct(cells):.1f} % over {len(cells)} cells"


def _grid_lines(cells: Sequence[Cell]) -> list[str]:
    """Three lines a row of the table: the reference, the model, the error."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    lines = [_grid_line("", [_short(column) for column in columns])]
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = [cell for cell in cells if cell.row == row]
        label = f"{row} MiB" if row.isdecimal() else row
        lines += [
            _grid_line(f"{label:>9} paper", [plain(cell.reference) for cell in of_row]),
            _grid_line("MODEL", [plain(cell.model) for cell in of_row]),
            _grid_line("error", [_error(cell) for cell in of_row]),
        ]
    return lines


def _grid_line(label: str, texts: Iterable[str]) -> str:
    return f"{label:>{_ROW_WIDTH}}" + "".join(f"{text:>{_CELL_WIDTH}}" for text in texts)


def _short(column: str) -> str:
    return column.removesuffix("_us").removesuffix("_x").replace("_plus_", "+").replace("_", " ")


def _error(cell: Cell) -> str:
    return f"{cell.error_pct:+.1f} %"


def _rm_lines(cells: Sequence[Cell]) -> list[str]:
    """The rows that were fitted, then those that test the model; ``card`` is the measured P50."""
    lines = []
    for fitted, title, error in (
        (True, "fitted: goodness of fit, not a test", "mean absolute error of the fit"),
        (False, "not fitted: the test of the model", "mean absolute error of the test"),
    ):
        chosen = [cell for cell in cells if cell.fitted == fitted]
        lines.append(f"{RM_ROWS} and the MODEL ({title})")
        if not chosen:
            lines += ["no such rows were measured yet", ""]
            continue
        lines += _pair_lines(chosen)
        lines += [_error_line(error, chosen), ""]
    return lines


def _pair_lines(cells: Sequence[Cell]) -> list[str]:
    """A line a size and kind of memory: allocation and free beside each other."""
    heads = ("card", "MODEL", "error") * 2
    lines = [
        f"{'':31}{'alloc':>24}{'free':>24}",
        f"{'MiB':>4} {'memory':26}" + "".join(f"{head:>8}" for head in heads),
    ]
    pairs: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        kind = cell.column.rsplit(" ", 1)[0]
        pairs.setdefault((cell.row, kind), []).append(cell)
    for (row, kind), pair in pairs.items():
        texts = [
            text
            for cell in pair
            for text in (plain(cell.reference), plain(cell.model), f"{cell.error_pct:+.1f}%")
        ]
        lines.append(f"{row:>4} {kind:26}" + "".join(f"{text:>8}" for text in texts))
    return lines


def show_lines(driver: ModelDriver) -> list[str]:
    """What one model is made of: memory, parameters and their sources, and what it lacks."""
    gpu = driver.gpu
    lines = [
        f"{driver.name} (MODEL): locality domains {gpu.domain_count}, memory "
        f"{gpu.total_memory_bytes >> 20} MiB",
        *_wrapped(f"memory from: {gpu.total_memory_source}", ""),
        f"modelled columns: {', '.join(gpu.columns)}; headline: {gpu.headline}",
        "",
        f"{'parameter':24}{'at MiB':>8}{'value':>12}  {'unit':18}source",
    ]
    sources = list(dict.fromkeys(p.fitted_on for p in gpu.parameters.parameters))
    for parameter in gpu.parameters.parameters:
        at = "" if parameter.size_mib is None else str(parameter.size_mib)
        lines.append(
            f"{parameter.name:24}{at:>8}{parameter.value:>12.3f}  {parameter.unit:18}"
            f"[{sources.index(parameter.fitted_on) + 1}]"
        )
    for number, source in enumerate(sources, 1):
        lines += _wrapped(source, f"[{number}] ")
    lines.append("not modelled:")
    for gap in gpu.not_modelled:
        lines += _wrapped(gap, "- ")
    return lines


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
    )
