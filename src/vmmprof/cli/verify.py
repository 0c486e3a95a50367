# SPDX-License-Identifier: MIT
"""`vmmprof verify`: prove on this machine that BAR1 shows what CUDA wrote."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

from vmmprof.errors import ExitCode, UsageError
from vmmprof.sizes import MIB, parse_sizes

if TYPE_CHECKING:
    from vmmprof.verify.outcome import Check, Report
    from vmmprof.verify.session import Session, Wish

CHECKS = ("bar1", "reuse", "sharing", "leak")
_DEFAULT_SIZES = "2M,64M,1G"
_PAGE_BYTES = 2 * MIB

_DESCRIPTION = """\
Prove on a live, unmodified driver that BAR1 shows what CUDA wrote. Needs static
BAR1, CUDA and the NVIDIA device files; no kernel module, and root only for page
kinds and the iterations of the update loop.
"""

_EPILOG = """\
checks:
  bar1     write through CUDA, read every 2 MiB page back through BAR1
  reuse    the same, on pages that change hands between placements
  sharing  time export, import, map, duplicate; does the update loop run again?
  leak     cycles of all that, and SIGKILL at every step, leave nothing behind
  all      the four of them (the default)

exit codes: 0 all passed; 1 a check failed; 2 bad input; 3 nothing could be
checked; 4 something that was asked for could not be checked
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `verify` to the command line."""
    parser = subparsers.add_parser(
        "verify",
        help="prove on a live driver that BAR1 shows what CUDA wrote",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("check", nargs="?", choices=(*CHECKS, "all"), default="all")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="CUDA device (0)")
    parser.add_argument(
        "--placement",
        action="append",
        metavar="P",
        help="device, compressible, noncontiguous, domain:N, domain:all, joined by +; repeatable "
        "(default: plain, compressible, both also non-contiguous, and every domain)",
    )
    parser.add_argument(
        "--sizes", metavar="S", help=f"multiples of 2M, as in sweep (default {_DEFAULT_SIZES})"
    )
    parser.add_argument(
        "--rounds", type=_positive, default=8, metavar="N", help="reuse: rounds a size (8)"
    )
    parser.add_argument(
        "--repeats", type=_positive, default=7, metavar="N", help="sharing: rounds a case (7)"
    )
    parser.add_argument(
        "--expect",
        choices=("rerun", "once"),
        help="sharing: fail unless a further use runs the update loop again (stock drivers), or "
        "does not (a driver that updates once)",
    )
    parser.add_argument(
        "--cycles", type=_positive, default=10, metavar="N", help="leak: cycles (10)"
    )
    parser.add_argument(
        "--words",
        type=_positive,
        default=512,
        metavar="N",
        help="words read of each 2 MiB page beside its three tags (512)",
    )
    parser.add_argument(
        "--no-lock", action="store_true", help="check although another vmmprof measures"
    )
    parser.add_argument("--json", action="store_true", help="JSON on stdout, text on stderr")
    parser.add_argument("--quiet", action="store_true", help="no text but errors")
    parser.set_defaults(handler=handler)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def handler(args: argparse.Namespace) -> ExitCode:
    """Run the checks and say how they went."""
    from vmmprof.experiment.interrupts import Interrupts
    from vmmprof.verify.outcome import Report
    from vmmprof.verify.text import as_json, closing_lines

    sizes = _sizes(args.sizes or _DEFAULT_SIZES)
    if args.words > _PAGE_BYTES // 8:
        raise UsageError(f"--words {args.words}: a 2 MiB page has {_PAGE_BYTES // 8} words")
    output = _Output(sys.stderr if args.json else sys.stdout, quiet=args.quiet)
    report = Report()
    report.on_check = lambda check: output.case_changed(report, check)
    machine: dict[str, object] = {}
    code = None
    try:
        with Interrupts(_interrupt):
            _run(args, sizes, report, output, machine)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    output.end_case(report)
    output.lines(closing_lines(report))
    if code is ExitCode.INTERRUPTED:
        output.lines(["interrupted: this is what was checked until then"])
    code = report.exit_code() if code is None else code
    if args.json:
        document = {"machine": machine, **as_json(report), "exit_code": int(code)}
        json.dump(document, sys.stdout, indent=1)
        print()
    return code


def _interrupt() -> None:
    # Unwinds every context on the way out, which gives everything back.
    raise KeyboardInterrupt


def _sizes(text: str) -> tuple[int, ...]:
    sizes = parse_sizes(text)
    for size in sizes:
        if size % _PAGE_BYTES:
            raise UsageError(f"--sizes {text}: {size} bytes is not a multiple of 2M")
    return sizes


def _run(
    args: argparse.Namespace,
    sizes: tuple[int, ...],
    report: Report,
    output: _Output,
    machine: dict[str, object],
) -> None:
    """Run the chosen checks; ``machine`` takes the facts of where."""
    from vmmprof.experiment.lock import measurement_lock
    from vmmprof.verify import session as sessions
    from vmmprof.verify.cuda import CudaGpu

    with (
        nullcontext() if args.no_lock else measurement_lock(),
        CudaGpu(args.device) as gpu,
        sessions.opened(gpu, report, words_per_page=args.words) as session,
    ):
        machine.update(session.machine_facts())
        output.lines([*(f"{name:<14} {value}" for name, value in machine.items()), ""])
        wishes = sessions.wishes(session, args.placement, sizes, sizes_asked=args.sizes is not None)
        sessions.waive_missing_domains(session, args.placement)
        chosen = CHECKS if args.check == "all" else (args.check,)
        for name in chosen:
            _RUNNERS[name](args, session, wishes, sizes)


def _bar1(
    args: argparse.Namespace, session: Session, wishes: list[Wish], sizes: tuple[int, ...]
) -> None:
    from vmmprof.verify import bar1

    bar1.check_all(session, wishes)


def _reuse(
    args: argparse.Namespace, session: Session, wishes: list[Wish], sizes: tuple[int, ...]
) -> None:
    from vmmprof.verify import reuse
    from vmmprof.verify.session import placements_of

    for size in sizes:
        reuse.check(
            session,
            placements_of(wishes),
            size,
            args.rounds,
            asked=args.check == "reuse" or args.sizes is not None,
        )


def _sharing(
    args: argparse.Namespace, session: Session, wishes: list[Wish], sizes: tuple[int, ...]
) -> None:
    from vmmprof.verify import sharing
    from vmmprof.verify.session import placements_of

    expect = sharing.Expect(args.expect) if args.expect else None
    for scattered in (False, True):
        for size in sizes:
            sharing.check(
                session,
                placements_of(wishes),
                size,
                args.repeats,
                scattered=scattered,
                asked=args.check == "sharing" or args.sizes is not None,
                # One page is one iteration: too little to tell a run of the loop from none.
                expect=expect if scattered and size > _PAGE_BYTES else None,
            )


def _leak(
    args: argparse.Namespace, session: Session, wishes: list[Wish], sizes: tuple[int, ...]
) -> None:
    from vmmprof.verify import leak

    asked = args.check == "leak"
    leak.check_cycles(session, leak.everything_once(wishes), args.cycles, asked=asked)
    leak.check_kills(session, lambda step: leak.kill_victim(args.device, step), asked=asked)


_RUNNERS = {"bar1": _bar1, "reuse": _reuse, "sharing": _sharing, "leak": _leak}


class _Output:
    """Prints a case as soon as it is over."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._case: str | None = None

    def lines(self, lines: list[str]) -> None:
        if not self._quiet:
            for line in lines:
                print(line, file=self._stream, flush=True)

    def case_changed(self, report: Report, check: Check) -> None:
        if check.case != self._case:
            self.end_case(report)
            self._case = check.case

    def end_case(self, report: Report) -> None:
        from vmmprof.verify.text import case_lines

        if self._case is not None:
            self.lines(case_lines(report, self._case))
            self._case = None
