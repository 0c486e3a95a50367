# SPDX-License-Identifier: MIT
"""Published figures to compare with, each table carrying its source.

They are comparison data: a measurement is never replaced with them.
"""

from vmmprof.reference.tables import Table, parse, table, table_names

__all__ = ["Table", "parse", "table", "table_names"]
