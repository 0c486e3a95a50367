# SPDX-License-Identifier: MIT
"""The ``vmmprof`` program: parser, dispatch, and errors to exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from vmmprof import __version__
from vmmprof.cli import (
    advise,
    amortise,
    compare,
    doctor,
    export,
    merge,
    model,
    report,
    reproduce,
    sweep,
    trace,
    verify,
)
from vmmprof.errors import ExitCode, UsageError, VmmprofError

COMMANDS = (
    sweep,
    report,
    compare,
    amortise,
    advise,
    reproduce,
    export,
    merge,
    trace,
    verify,
    doctor,
    model,
)

_EPILOG = """\
exit codes: 0 all done; 1 a check or comparison failed; 2 bad input;
3 nothing could be measured; 4 some of what was asked for could not;
130 interrupted, what was measured is saved
"""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Parser(argparse.ArgumentParser):
    """Errors are one line, like every other error of this program."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="vmmprof",
        description="Time the life of a CUDA VMM allocation, call by call.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vmmprof {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str]) -> ExitCode:
    """Run one command line; every expected error becomes one line and its exit code."""
    try:
        arguments = build_parser().parse_args(argv)
        code = ExitCode(arguments.handler(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where what goes wrong is still told in one line
        return code
    except VmmprofError as error:
        print(f"vmmprof: error: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        name = interrupt.args[0] if interrupt.args else "SIGINT"
        print(f"vmmprof: interrupted by {name}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (| head): nothing is wrong, and nobody is left to tell.
        _drop_output()
        return ExitCode.OK
    except SystemExit as end:
        # What rich makes of a reader that went away would be read as a check that failed.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _drop_output()
        return ExitCode.OK
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        print(f"vmmprof: error: output cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.USAGE


def _one_line(text: str) -> str:
    """``text`` with control characters spelled out: names and files of others may hold them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _drop_output() -> None:
    """Send what is still buffered nowhere, or the interpreter would try again at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


def run() -> NoReturn:
    """Entry point of the installed program."""
    # As Ctrl-C, so that everything is given back; what nohup ignores stays ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    sys.exit(main(sys.argv[1:]))
