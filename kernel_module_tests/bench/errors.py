# SPDX-License-Identifier: MIT
"""The bench's expected error."""

from __future__ import annotations


class BenchError(Exception):
    """The bench could not judge; the text is one line for the user."""
