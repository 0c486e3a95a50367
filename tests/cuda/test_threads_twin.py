# SPDX-License-Identifier: MIT
"""benchmarks/threads_against_twin.py: a smoke run on the stub, with threads and processes."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from tests.cuda.conftest import REPOSITORY, Run

BENCHMARK = REPOSITORY / "benchmarks" / "threads_against_twin.py"


def test_core_and_twin_run_the_same_levels(on_stub: Run, tmp_path: Path) -> None:
    child = on_stub(
        *(str(BENCHMARK), str(tmp_path / "out"), "--size", "2M", "--threads", "1,2"),
        *("--processes", "1,2", "--burst", "8", "--rounds", "6"),
    )
    assert child.returncode == 0, child.stderr
    assert child.ledger.is_empty and child.ledger.violations == []
    levels = json.loads((tmp_path / "out" / "result.json").read_text())["levels"]
    assert [(level["processes"], level["threads"]) for level in levels] == [
        *((1, 1), (1, 2), (2, 1), (2, 2))
    ]
    assert all("core_to_twin" in level["quantiles"]["P50"] for level in levels)
    cycles = pd.read_parquet(tmp_path / "out" / "cycles.parquet")
    most = cycles.groupby(["contestant", "processes", "threads", "round", "worker"])["repeat"].max()
    # 1 + 2 + 2 + 4 workers of each of three contestants, six rounds.
    assert len(most) == 3 * 9 * 6 and most.min() >= 8
    assert (tmp_path / "out" / "quantiles.png").stat().st_size > 10_000


def test_a_failing_call_ends_it_with_its_name(on_stub: Run, tmp_path: Path) -> None:
    child = on_stub(
        *(str(BENCHMARK), str(tmp_path / "out"), "--size", "2M", "--threads", "2"),
        *("--burst", "8", "--rounds", "6"),
        fail="cuMemMap:100:CUDA_ERROR_NOT_PERMITTED",
    )
    assert child.returncode == 3
    assert "CUDA_ERROR_NOT_PERMITTED" in child.stderr and "Traceback" not in child.stderr
