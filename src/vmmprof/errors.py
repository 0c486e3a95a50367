# SPDX-License-Identifier: MIT
"""Exit codes and the errors that carry them.

Every error that a user can cause or meet is a :class:`VmmprofError` whose text
is one line: what is wrong, with what value, and what would be right. The
command line prints that line and exits with the error's code; nothing else in
the package calls ``sys.exit``.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The one table of exit codes, shared by all commands (docs/exit-codes.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING_MEASURED = 3
    PARTIAL = 4
    INTERRUPTED = 130


class VmmprofError(Exception):
    """Base of all expected errors; ``str()`` is one line for the user."""

    exit_code = ExitCode.FAILED


class UsageError(VmmprofError):
    """Bad input: an argument, a file or a device that cannot be what was asked for."""

    exit_code = ExitCode.USAGE


class NothingMeasuredError(VmmprofError):
    """The measurement could not start, or ended without one usable sample."""

    exit_code = ExitCode.NOTHING_MEASURED


class PartialError(VmmprofError):
    """Something that was explicitly asked for could not be measured; the rest is saved."""

    exit_code = ExitCode.PARTIAL
