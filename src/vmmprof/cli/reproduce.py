# SPDX-License-Identifier: MIT
"""``vmmprof reproduce``: what of the paper the given recordings confirm."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmmprof.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from vmmprof.analysis.reproduce import Evidence
    from vmmprof.recording.reader import Recording

# Recordings of memory pools stand apart from those of any driver's cycle.
_POOLS = "pools"

_DESCRIPTION = """\
Put the paper (arXiv 2611.07535), this machine and the model side by side:
tables 6, 7 and 8, figure 4's threshold and slope, figure 5's statement. Each
statement holds here, does not, or is not measurable here, and why. Nothing is
measured.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "reproduce",
        help="what of the paper the given recordings confirm",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "recordings",
        nargs="+",
        metavar="[ARM=]RECORDING",
        help="recordings of sweeps; ARM is the driver's patch, one of stock, a, b, ab (default: "
        "what the recording says, else stock)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Sort the recordings, compare, print."""
    from vmmprof.analysis.reproduce import TABLE_6, TABLE_7, TABLE_8, reproduce
    from vmmprof.reference import table
    from vmmprof.report import reproduction as shown

    tables = {
        TABLE_6: table("ld_table06_vmm_cycle"),
        TABLE_7: table("ld_table07_create_patched"),
        TABLE_8: table("ld_table08_amortisation"),
    }
    result = reproduce(_machines(arguments.recordings), tables, _model_cells())
    if arguments.json:
        print(shown.dumps(result))
    else:
        shown.print_text(result)
    return ExitCode.OK


def _model_cells() -> dict[tuple[str, str, str], float]:
    """The models' numbers for the paper's cells."""
    from vmmprof.analysis import reproduce
    from vmmprof.drivers.model import check

    names = {check.TABLE_6: reproduce.TABLE_6, check.TABLE_7: reproduce.TABLE_7}
    return {
        (names[cell.table], cell.row, cell.column): cell.model
        for cell in check.all_cells()
        if cell.table in names
    }


def _machines(texts: Sequence[str]) -> list[Evidence]:
    """Evidence by machine, in the order given."""
    from vmmprof.operations import POOL_CYCLE, VMM_CYCLE

    machines: dict[str, dict[str, list[Recording]]] = {}
    for text in texts:
        arm, recording = _arm_and_recording(text)
        if recording.operation == POOL_CYCLE:
            arm = _POOLS
        elif recording.operation != VMM_CYCLE:
            raise UsageError(
                f"{recording.path} times {recording.operation.name}; the paper's figures are of "
                f"{VMM_CYCLE.name} and {POOL_CYCLE.name}"
            )
        by_arm = machines.setdefault(_machine(recording), {})
        by_arm.setdefault(arm, []).append(recording)
    return [_evidence(machine, by_arm) for machine, by_arm in machines.items()]


def _machine(recording: Recording) -> str:
    """What recordings must share to be of one machine: the GPU's kind, or the model."""
    gpu = recording.environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if recording.is_model:
        return f"MODEL {recording.environment.get('driver')}"
    return str(name or "unknown GPU")


def _evidence(machine: str, by_arm: dict[str, list[Recording]]) -> Evidence:
    from vmmprof.analysis.arms import Arm, ArmRecording
    from vmmprof.analysis.groups import placement_of
    from vmmprof.analysis.reproduce import STOCK, Evidence
    from vmmprof.placement import PLAIN, Placement

    def arm_of(name: str, placement: Placement) -> Arm:
        parts = tuple(ArmRecording(one, placement) for one in by_arm[name])
        return Arm(name, placement, parts)

    def placements_of(name: str) -> list[Placement]:
        recordings = by_arm.get(name, [])
        words = {str(w) for one in recordings for w in one.samples["placement"].unique()}
        return sorted(map(placement_of, words), key=lambda p: (p.domain or 0, p != PLAIN, str(p)))

    def domains_of(name: str) -> list[Placement]:
        found = placements_of(name)
        return [p for p in found if p.domain is not None and p == Placement(p.domain)]

    domains = {name: domains_of(name) for name in by_arm}
    first = {name: arm_of(name, found[0]) for name, found in domains.items() if found}
    return Evidence(
        machine=machine,
        plain=arm_of(STOCK, PLAIN) if STOCK in by_arm else None,
        localized={name: arm for name, arm in first.items() if name != _POOLS},
        other_domains=tuple(arm_of(STOCK, domain) for domain in domains.get(STOCK, [])[1:]),
        pools=first.get(_POOLS),
        placements=tuple(arm_of(STOCK, one) for one in placements_of(STOCK)),
    )


def _arm_and_recording(text: str) -> tuple[str, Recording]:
    from vmmprof.analysis.reproduce import ARMS, STOCK
    from vmmprof.recording.reader import load

    name, equals, path = text.partition("=")
    if equals and name in ARMS:
        return name, load(path)
    if equals and "/" not in name:
        raise UsageError(f"arm {name!r} in {text!r} is unknown; the arms are {', '.join(ARMS)}")
    recording = load(text)
    gpu = recording.environment.get("gpu")
    patch = gpu.get("patch", "none") if isinstance(gpu, dict) else "none"
    return (patch if patch in ARMS else STOCK), recording
