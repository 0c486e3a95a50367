# SPDX-License-Identifier: MIT
"""``vmmprof advise``: what an allocation pattern costs, and what to do about it."""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

from vmmprof.cli.arguments import rate_of
from vmmprof.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from vmmprof.analysis.advise import CostCurve, Load
    from vmmprof.placement import Placement
    from vmmprof.recording.reader import Recording

    Drivers = dict[str, dict[Placement, CostCurve]]

_PATCHES = ("a", "b", "ab")
_PAPER_GPU = "model:b300"
_DESCRIPTION = """\
What an allocation pattern costs a second: with today's driver, with each patch,
with a pool; and what to do. Costs come from recordings (stock=REC, a=REC,
b=REC, ab=REC); what they do not hold comes from the paper's table 6, and what
a patch changes from a model. Every rule names its evidence. Nothing is
measured.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "advise",
        help="what an allocation pattern costs, and what to do about it",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "recordings",
        nargs="*",
        metavar="[ARM=]RECORDING",
        help="recordings of this machine; ARM is stock (default), a, b or ab",
    )
    pattern = parser.add_mutually_exclusive_group(required=True)
    pattern.add_argument(
        "--allocate",
        action="append",
        metavar="SIZE@RATE[:PLACEMENT]",
        help="so many allocations (and frees) a second, such as 64M@100:domain:0; repeatable "
        "(default placement domain:0)",
    )
    pattern.add_argument(
        "--trace",
        metavar="FILE",
        help="a CSV of events: time_s, event (allocate or free), size, placement, optionally id",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Gather costs, weigh, print."""
    from vmmprof.analysis.advise import advise
    from vmmprof.report import advice as shown

    loads = (
        _read_trace(arguments.trace)
        if arguments.trace is not None
        else [parse_load(text) for text in arguments.allocate]
    )
    recordings = _recordings(arguments.recordings)
    _require_domains(loads, recordings)
    result = advise(loads, _drivers(recordings))
    if arguments.json:
        print(shown.dumps(result))
    else:
        shown.print_text(result)
    return ExitCode.OK


def parse_load(text: str) -> Load:
    """``64M@100:domain:0``: 100 allocations of 64 MiB a second on domain 0."""
    from vmmprof.analysis.advise import Load
    from vmmprof.analysis.groups import placement_of
    from vmmprof.sizes import parse_size

    match = re.fullmatch(r"([^@]+)@([^:/]+)(?:/s)?(?::(.+))?", text)
    if match is None:
        raise UsageError(f"--allocate {text!r} is not SIZE@RATE[:PLACEMENT], such as 64M@100")
    per_s = rate_of(f"--allocate {text!r}: rate", "allocations")(match[2])
    return Load(parse_size(match[1]), placement_of(match[3] or "domain:0"), per_s)


def _read_trace(name: str) -> list[Load]:
    from vmmprof.analysis.advise import read_trace

    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as lines:
            return read_trace(lines, name)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"trace {name} cannot be read ({' '.join(str(error).split())})") from None


def _recordings(texts: list[str]) -> dict[str, list[Recording]]:
    """Recordings by arm, in the order given."""
    from vmmprof.recording.reader import load

    by_arm: dict[str, list[Recording]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        arm, path = (name, path) if equals and name in ("stock", *_PATCHES) else ("stock", text)
        by_arm.setdefault(arm, []).append(load(path))
    return by_arm


def _require_domains(loads: list[Load], recordings: dict[str, list[Recording]]) -> None:
    """UsageError for a locality domain that the device does not have, where that is known.

    It is the device of today's costs: the recordings', else the paper's B300.
    """
    from vmmprof.drivers.model import make
    from vmmprof.placement import parse_placement

    gpus = [recording.environment.get("gpu") or {} for recording in recordings.get("stock", [])]
    counts = [gpu.get("locality_domains") for gpu in gpus] or [make(_PAPER_GPU).domain_count]
    known = [count for count in counts if type(count) is int]
    if len(known) < len(counts):
        return
    for load in loads:
        parse_placement(str(load.placement), max(known))


def _drivers(recordings: dict[str, list[Recording]]) -> Drivers:
    """Curves of today's driver and of each patch, measured where there is a recording of it."""
    from vmmprof.analysis.advise import TODAY, scaled_curve

    measured = _measured(recordings)
    today = measured.pop("stock", {}) or _paper()
    drivers: Drivers = {TODAY: today}
    for patch in _PATCHES:
        if patch in measured:
            drivers[patch] = measured[patch]
        else:
            stock, patched = _model("none"), _model(patch)
            # What no localized loop runs for costs the same under any patch.
            drivers[patch] = {
                placement: scaled_curve(curve, stock, patched)
                if placement.domain is not None
                else curve
                for placement, curve in today.items()
            }
    return drivers


def _measured(by_arm: dict[str, list[Recording]]) -> Drivers:
    from vmmprof.analysis.advise import MEASURED, MODEL, curves_of
    from vmmprof.analysis.arms import Arm, ArmRecording
    from vmmprof.analysis.groups import placements_in

    measured: Drivers = {}
    for arm, recordings in by_arm.items():
        present = set().union(*(placements_in(one.columns) for one in recordings))
        arms = []
        for placement in sorted(present, key=str):
            parts = tuple(ArmRecording(one, placement) for one in recordings)
            arms.append(Arm(arm, placement, parts))
        is_model = any(one.is_model for one in recordings)
        measured[arm] = curves_of(arms, MODEL if is_model else MEASURED)
        if not measured[arm]:
            raise UsageError(
                f"the recordings of arm {arm!r} have no times of whole cycles; name others"
            )
    return measured


def _paper() -> dict[Placement, CostCurve]:
    from vmmprof.analysis.advise import PAPER, CostCurve
    from vmmprof.placement import PLAIN, Placement
    from vmmprof.reference import table

    cycles = table("ld_table06_vmm_cycle")
    sizes = cycles.numbers("size_mib")
    return {
        placement: CostCurve(f"{PAPER}, table 6", sizes, cycles.numbers(column))
        for placement, column in ((PLAIN, "baseline_us"), (Placement(domain=0), "ld_us"))
    }


def _model(patch: str) -> CostCurve:
    """The B300 model's localized cycle under a patch."""
    from vmmprof.analysis.advise import MODEL, CostCurve
    from vmmprof.drivers.model import make
    from vmmprof.placement import Condition, Placement
    from vmmprof.sizes import MIB

    driver = make(_PAPER_GPU, patch)
    # What the model's plain cycle was fitted on ends at 1 GiB.
    sizes = (2.0, 32.0, 34.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
    costs = []
    for size in sizes:
        work = driver.work(Condition(Placement(domain=0), int(size * MIB)))
        assert work is not None, "the B300 holds more than any of these sizes"
        costs.append(driver.gpu.times_us(work)["total"])
    return CostCurve(f"{MODEL} (b300)", sizes, tuple(costs))
