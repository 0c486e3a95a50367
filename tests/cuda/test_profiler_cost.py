# SPDX-License-Identifier: MIT
"""benchmarks/profiler_cost.py: a smoke run on the stub, and its ratios on made-up blocks."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

import numpy as np
import pytest

from tests.cuda.conftest import REPOSITORY, Run

BENCHMARK = REPOSITORY / "benchmarks" / "profiler_cost.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("profiler_cost", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_contestants_run_the_same_cycles(on_stub: Run) -> None:
    child = on_stub(str(BENCHMARK), "--sizes", "2M,4M", "--rounds", "6", "--no-lock", "--json")
    assert child.returncode == 0, child.stderr
    results = json.loads(child.stdout)
    assert [result["size_bytes"] >> 20 for result in results] == [2, 4]
    for result in results:
        assert set(result["ratio_to_twin"]) == {"twin again", "core", "Python"}
        assert all(ns > 0 for ns in result["median_ns"]["Python"].values())
    # 2 sizes, 6 rounds and 5 of warm-up, 4 blocks of 20.
    cycles = 2 * 11 * 4 * 20
    for function in ("cuMemCreate", "cuMemGetAllocationPropertiesFromHandle"):
        assert child.ledger.calls[function] == cycles
    assert child.ledger.calls["cuPointerGetAttribute"] == cycles
    assert child.ledger.violations == []
    assert child.ledger.is_empty


def test_no_ordinal_is_read_where_the_driver_knows_none(on_stub: Run) -> None:
    child = on_stub(
        str(BENCHMARK), "--sizes", "2M", "--rounds", "6", "--no-lock", "--json", domains=0
    )
    assert child.returncode == 0, child.stderr
    assert child.ledger.calls["cuPointerGetAttribute"] == 0
    assert child.ledger.violations == []


@pytest.mark.parametrize("call", [7, 301])  # of the warm-up's first blocks, and later
def test_a_failing_call_ends_it_with_its_name(on_stub: Run, call: int) -> None:
    fail = f"cuMemCreate:{call}:CUDA_ERROR_NOT_PERMITTED"
    child = on_stub(str(BENCHMARK), "--sizes", "2M", "--rounds", "6", "--no-lock", fail=fail)
    assert child.returncode == 3
    assert "CUDA_ERROR_NOT_PERMITTED" in child.stderr
    assert "Traceback" not in child.stderr


def test_ratios_are_paired_so_that_drift_cancels(benchmark: ModuleType) -> None:
    # The machine becomes ten times slower during the run; the core costs 5 % more throughout.
    drift = np.linspace(1000.0, 10_000.0, 100)[:, None] * np.ones(8)
    medians = {"twin": drift, "twin again": drift, "core": 1.05 * drift, "Python": 2 * drift}
    total = benchmark.ratios(medians, "core")["total"]
    assert total.lo == pytest.approx(1.05) and total.hi == pytest.approx(1.05)
    assert benchmark.outside({2 << 20: medians}, 0.06) == []
    (failure,) = benchmark.outside({2 << 20: medians}, 0.02)
    assert "2 MiB" in failure and "1.050" in failure


def test_the_whole_interval_must_lie_within(benchmark: ModuleType) -> None:
    # The median ratio is 1, but a third of the rounds say 1.1: the interval's end is out.
    ones = np.ones((12, 8))
    core = ones * np.where(np.arange(12) < 4, 1.1, 1.0)[:, None]
    medians = {"twin": ones, "twin again": ones, "core": core, "Python": ones}
    assert benchmark.ratios(medians, "core")["total"].value == 1.0
    assert len(benchmark.outside({2 << 20: medians}, 0.02)) == 1
