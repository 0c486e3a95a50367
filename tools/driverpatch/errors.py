# SPDX-License-Identifier: MIT
"""Errors of the driver program and the exit codes that carry them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `tools/driver`; make flattens them to 2, direct calls do not."""

    OK = 0
    FAILED = 1
    USAGE = 2
    ALREADY_PATCHED = 3
    NOT_AFFECTED = 4
    UNKNOWN_BODY = 5
    REFUSED = 6
    INTERRUPTED = 130


class DriverError(Exception):
    """An expected error; the text is one line for the user."""

    exit_code = ExitCode.FAILED


class RefusedError(DriverError):
    """Something that must not be done now; the text says what would change it."""

    exit_code = ExitCode.REFUSED


class DriverUsageError(DriverError):
    """Bad arguments or a source that cannot be what was asked for."""

    exit_code = ExitCode.USAGE
