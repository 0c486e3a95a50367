# SPDX-License-Identifier: MIT
"""Recordings with kernel events, made up: every even round traced, one update in each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.events import events_table, write_events
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import SUFFIX, Flag
from vmmprof.sizes import MIB

from .cli_runs import save
from .recordings import environment, frame, matrices, samples

SIZES_MIB = np.array([64.0, 1024.0])
FACTS = {"module": "nvidia", "driver_reloaded": False}
COUNTING = FACTS | {
    "method": "module",
    "losses": {"records_lost": 0},
    "calibration": {"self_ns": 390.0, "leaf_ns": 500.0, "map_ns": 800.0},
}
SAMPLING = FACTS | {
    "method": "sampling",
    "period_ns": 1000,
    "lost_samples": 0,
    "throttled": 0,
}


def _rows() -> pd.DataFrame:
    """Cycles 10 ms apart: create and release take 1 ms each, the other calls 1 us."""
    rng = np.random.default_rng(40)
    rows = frame([samples(matrices(rng, 30, SIZES_MIB, 1.0), SIZES_MIB, attempt=1)])
    rows["start_ns"] = np.arange(len(rows), dtype=np.int64) * 10_000_000
    for call in VMM_CYCLE.calls:
        rows[f"{call}_ns"] = 1e6 if call in ("create", "release") else 1e3
    rows["flags"] = np.where(rows["round"] % 2 == 0, int(Flag.TRACED), 0).astype(np.uint16)
    # A traced cycle takes twice as long.
    rows["total_ns"] = np.where(rows["flags"] > 0, 4e6, 2e6)
    return rows


def _inside(rows: pd.DataFrame) -> list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Direction, moments inside of the call and sizes, of the traced cycles of domain:0."""
    mine = rows[(rows["flags"] > 0) & (rows["placement"] == "domain:0")]
    sizes = mine["size_bytes"].to_numpy()
    start = mine["start_ns"].to_numpy()
    return [("commit", start + 1_000 + 100, sizes), ("release", start + 1_004_000 + 100, sizes)]


def _write(path: Path, rows: pd.DataFrame, columns: dict[str, Any], facts: dict[str, Any]) -> str:
    saved = save(path, Recording(path, rows, environment(), VMM_CYCLE))
    traced = rows[rows["flags"] > 0]["start_ns"]
    windows = [[int(start) - 10, int(start) + 9_000_000] for start in traced]
    table = events_table(columns, facts | {"traced_windows_ns": windows})
    write_events(saved.with_name(saved.name + SUFFIX), table)
    return str(saved)


def counted(path: Path, *, deferred: bool = False, facts: dict[str, Any] | None = None) -> str:
    """Counted calls: an iteration a 2 MiB and a synchronisation an iteration, or one in all."""
    rows = _rows()
    names = ("kind", "time_ns", "direction", "iterations", "bytes")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for direction, moments, sizes in _inside(rows):
        columns["kind"] += ["update"] * len(moments)
        columns["time_ns"] += moments.tolist()
        columns["direction"] += [direction] * len(moments)
        columns["iterations"] += (sizes // (2 * MIB)).tolist()
        columns["bytes"] += sizes.tolist()
    n = len(columns["kind"])
    syncs = [1] * n if deferred else columns["iterations"]
    path_ns = 200_000 if deferred else 800_000
    columns |= {
        "pid": [7] * n,
        "tid": [7] * n,
        "runs": [1] * n,
        "duration_ns": [path_ns] * n,
        "pte_ns": [150_000] * n,
        "barrier_ns": [20_000 if deferred else 250_000] * n,
        "tlb_ns": [20_000 if deferred else 350_000] * n,
        "barriers": syncs,
        "invalidates": syncs,
        "status": [0] * n,
    }
    return _write(path, rows, columns, COUNTING | (facts or {}))


def sampled(path: Path) -> str:
    """Ten samples in each call, the path eight, its barrier two and its invalidate two of them."""
    rows = _rows()
    phases = ["pte"] * 3 + ["page_flush"] + ["barrier"] * 2 + ["tlb"] * 2 + ["outside"] * 2
    columns: dict[str, list[Any]] = {"time_ns": [], "direction": [], "phase": [], "stack": []}
    for direction, moments, _ in _inside(rows):
        for moment in moments.tolist():
            columns["time_ns"] += [moment + 1000 * i for i in range(len(phases))]
            columns["direction"] += [None if p == "outside" else direction for p in phases]
            columns["phase"] += phases
            columns["stack"] += ["rm_ioctl;vidmemConstruct_IMPL"] * len(phases)
    n = len(columns["time_ns"])
    columns |= {"kind": ["sample"] * n, "pid": [7] * n, "tid": [7] * n}
    return _write(path, rows, columns, SAMPLING)
