# SPDX-License-Identifier: MIT
"""The lab's exit codes and its one error."""

from __future__ import annotations

from enum import IntEnum


class Verdict(IntEnum):
    """Exit codes of ``kernel-lab run`` beside the command's own (0 .. 119)."""

    NEVER_BOOTED = 120
    PANIC = 121
    HANG = 122
    NO_STATUS = 123
    """The machine went away without a panic and without a status."""
    CANNOT_RUN = 125
    """Nothing was started: a program, a kernel or an argument is missing."""


class LabError(Exception):
    """Something the user can put right; one line."""
