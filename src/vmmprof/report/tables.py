# SPDX-License-Identifier: MIT
"""The look of all tables on the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table

# A rule under the head and nothing else; ASCII, so that it survives any pipe and locale.
_RULED = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def in_us(name: str) -> str:
    """The head of a column of times: the unit under the name, which takes no width."""
    return f"{name}\nus"


def new_table() -> Table:
    """An empty table in that look."""
    return Table(
        box=_RULED,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
