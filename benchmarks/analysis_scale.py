# SPDX-License-Identifier: MIT
"""Summarise a recording of ten million cycles: seconds and peak memory of the whole report.

    python benchmarks/analysis_scale.py [CYCLES] [--keep DIR]

Makes the recording first (a minute, half a gigabyte of disk), then runs
``vmmprof report --json`` on it in a process of its own. Exit 1 when that takes
more than 10 s or 1 GB; both limits are for 2 cores and ten million cycles.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.schema import (
    ENVIRONMENT_FILE,
    FORMAT_VERSION,
    SAMPLES_FILE,
    SUFFIX,
    samples_schema,
)
from vmmprof.sizes import MIB

MOST_SECONDS = 10.0
MOST_BYTES = 1_000_000_000
SIZES_MIB = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PLACEMENTS = ("device", "domain:0", "domain:1")
_CHUNK_ROUNDS = 20_000


def make_recording(folder: Path, cycles: int) -> None:
    """Rounds of every size at every placement, the paper's shape with long-tailed noise."""
    folder.mkdir(parents=True)
    conditions = [(size, place) for size in SIZES_MIB for place in range(len(PLACEMENTS))]
    rounds = -(-cycles // len(conditions))
    schema = samples_schema(VMM_CYCLE)
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(folder / SAMPLES_FILE, schema, compression="zstd") as writer:
        for first in range(0, rounds, _CHUNK_ROUNDS):
            count = min(_CHUNK_ROUNDS, rounds - first)
            writer.write_table(_chunk(rng, schema, conditions, first, count))
    facts = {
        "format_version": FORMAT_VERSION,
        "operation": VMM_CYCLE.name,
        "headline": "total",
        "is_model": True,
        "driver": "made up for a benchmark",
        "command": "benchmarks/analysis_scale.py",
        "outcome": "complete",
    }
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(facts), encoding="utf-8")


def _chunk(
    rng: np.random.Generator,
    schema: pa.Schema,
    conditions: list[tuple[int, int]],
    first: int,
    count: int,
) -> pa.Table:
    rows = count * len(conditions)
    sizes = np.tile(np.array([size for size, _ in conditions]), count)
    places = np.tile(np.array([place for _, place in conditions], np.int32), count)
    extra = np.where((places > 0) & (sizes > 32), 357 + 10.4 * (sizes - 34), 22.0 * (places > 0))
    level_us = 122 + 0.74 * sizes + extra
    shares = np.arange(1.0, len(VMM_CYCLE.calls) + 1)
    shares /= shares.sum()
    noise = rng.lognormal(0, 0.05, (rows, len(shares)))
    calls = np.round(level_us[:, None] * 1000 * shares * noise).astype(np.int64)
    numbers = {
        "round": first + np.repeat(np.arange(count), len(conditions)),
        "order": np.tile(np.arange(len(conditions)), count),
        "size_bytes": sizes * MIB,
        "attempt": 1,
        "start_ns": (first * len(conditions) + np.arange(rows)) * 10_000_000,
        "processes": 1,
        "threads": 1,
        "devices": 1,
        "total_ns": calls.sum(axis=1),
        **{f"{call}_ns": calls[:, i] for i, call in enumerate(VMM_CYCLE.calls)},
    }
    arrays = []
    for field in schema:
        if field.name == "placement":
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(places), list(PLACEMENTS)))
        else:
            values = np.broadcast_to(np.asarray(numbers.get(field.name, 0)), rows)
            arrays.append(pa.array(values).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cycles", nargs="?", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="make the recording here, or use it from there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or Path(scratch)) / f"scale{SUFFIX}"
        if not folder.is_dir():
            make_recording(folder, arguments.cycles)
        begin = time.monotonic()
        report = subprocess.run(
            [sys.executable, "-m", "vmmprof", "report", str(folder), "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        # The report is the only child process, so its use is that of all children.
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(report.stdout)
    summarised = sum(size["n"] for one in result["placements"] for size in one["sizes"])
    peak_bytes = used.ru_maxrss * 1024
    cpu_seconds = used.ru_utime + used.ru_stime
    print(
        f"{summarised} cycles summarised in {seconds:.1f} s ({cpu_seconds:.1f} s of CPU time), "
        f"peak {peak_bytes / 1e6:.0f} MB"
    )
    for one in result["placements"]:
        print(
            f"  {one['placement']}: threshold {one['threshold'] and one['threshold']['lower_mib']}"
        )
    return int(seconds > MOST_SECONDS or peak_bytes > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
