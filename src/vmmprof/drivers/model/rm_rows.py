# SPDX-License-Identifier: MIT
"""The H200's rows of direct resource-manager allocations: read, and made from a recording."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from vmmprof.drivers.model.parameters import DATA
from vmmprof.errors import UsageError
from vmmprof.placement import Placement
from vmmprof.recording.reader import Recording
from vmmprof.reference import Table, parse
from vmmprof.sizes import MIB

ROWS = "h200_rm_rows.csv"

KINDS = tuple(
    f"{compression} {layout}"
    for compression in ("plain", "compressible")
    for layout in ("contiguous", "noncontiguous")
)

_COLUMNS = ("size_mib", "compressible", "contiguous", "alloc_us", "free_us", "samples")
_WORDS = frozenset({"device", "compressible", "noncontiguous"})


@dataclass(frozen=True)
class RmRow:
    """P50 of allocating and of freeing memory of one size and kind, in us."""

    size_mib: int
    compressible: bool
    contiguous: bool
    alloc_us: float
    free_us: float
    samples: int

    @property
    def placement(self) -> Placement:
        return Placement(compressible=self.compressible, noncontiguous=not self.contiguous)

    @property
    def kind(self) -> str:
        """Such as ``compressible contiguous``."""
        compression = "compressible" if self.compressible else "plain"
        return f"{compression} {'contiguous' if self.contiguous else 'noncontiguous'}"

    def us(self, call: str) -> float:
        """The time of ``alloc`` or ``free``."""
        return {"alloc": self.alloc_us, "free": self.free_us}[call]


def stored_text() -> str:
    """The rows' CSV file in the package."""
    return (DATA / ROWS).read_text(encoding="utf-8")


def read_rows(text: str) -> tuple[list[RmRow], Table]:
    """The rows of a CSV text, and the table that names their source."""
    reference = parse(ROWS, text)
    rows = [
        RmRow(
            int(size_mib),
            compressible == "yes",
            contiguous == "yes",
            float(alloc_us),
            float(free_us),
            int(samples),
        )
        for size_mib, compressible, contiguous, alloc_us, free_us, samples in reference.rows
    ]
    return rows, reference


def rows_text(recording: Recording) -> str:
    """A recording's rows as the package stores them.

    UsageError when the recording is not one of direct RM allocations, or is modelled.
    """
    if recording.operation.name != "rm_alloc" or recording.is_model:
        raise UsageError(
            f"{recording.path} is not a measurement of direct resource-manager allocations; "
            "make one on an H200 with vmmprof sweep --driver rm"
        )
    gpu = recording.environment.get("gpu", {})
    out = io.StringIO()
    out.write(
        "# title: Direct resource-manager allocations, P50\n"
        f"# source: {recording.command}\n"
        f"# platform: measured on one H200, driver {gpu.get('driver_version', 'unknown')}\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in _rows(recording.samples):
        writer.writerow(
            (
                row.size_mib,
                "yes" if row.compressible else "no",
                "yes" if row.contiguous else "no",
                row.alloc_us,
                row.free_us,
                row.samples,
            )
        )
    return out.getvalue()


def _rows(samples: pd.DataFrame) -> Sequence[RmRow]:
    good = samples[(samples["flags"] == 0) & ~samples["scattered"]]
    rows = []
    for _, group in good.groupby(["placement", "size_bytes"], observed=True):
        words = set(str(group["placement"].iloc[0]).split("+"))
        if words <= _WORDS:
            # Where a condition was measured twice, the second time counts.
            last = group[group["attempt"] == group["attempt"].max()]
            rows.append(
                RmRow(
                    size_mib=int(group["size_bytes"].iloc[0]) // MIB,
                    compressible="compressible" in words,
                    contiguous="noncontiguous" not in words,
                    alloc_us=_median_us(last["alloc_ns"]),
                    free_us=_median_us(last["free_ns"]),
                    samples=len(last),
                )
            )
    return sorted(rows, key=lambda row: (row.compressible, not row.contiguous, row.size_mib))


def _median_us(times_ns: pd.Series[float]) -> float:
    return round(float(times_ns.median()) / 1000, 2)
