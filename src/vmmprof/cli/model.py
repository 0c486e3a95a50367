# SPDX-License-Identifier: MIT
"""``vmmprof model``: what the models are made of, and how far off they are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vmmprof.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vmmprof.drivers.model.check import Cell

# The fits on the paper's two tables are held to this; the test on the H200 is not held to anything.
MOST_MEAN_ERROR_PCT = 10.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "model",
        help="show the models' parameters, or check them against their references",
        description="The models of the driver's mapping path. Nothing is measured.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="every reference cell beside the model's, and the error",
        description=(
            "Print every cell of the paper's tables 6 and 7 and every measured H200 row beside "
            "the model. Fails (1) when the mean absolute error of a paper table exceeds "
            f"{MOST_MEAN_ERROR_PCT:g} %%."
        ),
        allow_abbrev=False,
    )
    check.add_argument("--json", action="store_true", help="print parameters and cells as JSON")
    check.set_defaults(handler=run_check)
    show = actions.add_parser(
        "show",
        help="every parameter with what it was fitted on, and what is not modelled",
        description="Print every model's parameters, their sources, and what is not modelled.",
        allow_abbrev=False,
    )
    show.set_defaults(handler=run_show)


def run_check(arguments: argparse.Namespace) -> ExitCode:
    """Compare, print, judge."""
    from vmmprof.drivers.model.check import RM_ROWS, all_cells, mean_absolute_error_pct

    cells = all_cells()
    if arguments.json:
        print(_document(cells))
    else:
        from vmmprof.report.model import check_lines

        print("\n".join(check_lines(cells)))
    judged = {cell.table for cell in cells} - {RM_ROWS}
    within = all(
        mean_absolute_error_pct([cell for cell in cells if cell.table == name])
        <= MOST_MEAN_ERROR_PCT
        for name in judged
    )
    return ExitCode.OK if within else ExitCode.FAILED


def _document(cells: Sequence[Cell]) -> str:
    import json
    from dataclasses import asdict

    from vmmprof.drivers.model import GPUS, make

    return json.dumps(
        {
            "parameters": [
                {"model": name, **asdict(parameter)}
                for name in (f"model:{gpu}" for gpu in GPUS)
                for parameter in make(name).gpu.parameters.parameters
            ],
            "cells": [
                {
                    "table": cell.table,
                    "row": cell.row,
                    "column": cell.column,
                    "reference": cell.reference,
                    "model": round(cell.model, 3),
                    "error_pct": round(cell.error_pct, 2),
                    "fitted": cell.fitted,
                }
                for cell in cells
            ],
        },
        indent=2,
    )


def run_show(arguments: argparse.Namespace) -> ExitCode:
    """Print every model."""
    from vmmprof.drivers.model import GPUS, make
    from vmmprof.report.model import show_lines

    print("\n\n".join("\n".join(show_lines(make(f"model:{gpu}"))) for gpu in GPUS))
    return ExitCode.OK
