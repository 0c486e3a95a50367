# SPDX-License-Identifier: MIT
"""Recordings made up for the tests of the reports, always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import Flag
from vmmprof.sizes import MIB

from ..analysis.synthetic import (
    FloatArray,
    b300_extra_us,
    heavy_tailed,
    plain_us,
    samples,
)

SIZES_MIB = np.array([2.0, 16, 30, 32, 34, 36, 64, 1024])


def environment(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "command": "vmmprof sweep --sizes 2M,16M,30M:36M:2M,64M,1G",
        "driver": "cuda",
        "is_model": False,
        "operation": "vmm_cycle",
        "headline": "total",
        "gpu": {"name": "NVIDIA B300 SXM6", "driver_version": "615.71.09"},
        "machine": {"kernel": "6.18.0"},
        "outcome": "complete",
    }
    return facts | changes


def frame(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Samples as the reader gives them: times float64, NaN for null."""
    joined = pd.concat(parts, ignore_index=True)
    joined["placement"] = joined["placement"].astype("category")
    times = [c for c in joined.columns if c.endswith("_ns") and c != "start_ns"]
    return joined.astype(dict.fromkeys(times, "float64"))


def matrices(
    rng: np.random.Generator, rounds: int, sizes: FloatArray, spread_us: float
) -> dict[str, FloatArray]:
    shape = (rounds, len(sizes))
    plain = plain_us(sizes) + spread_us * heavy_tailed(rng, shape)
    placed = plain_us(sizes) + b300_extra_us(sizes) + spread_us * heavy_tailed(rng, shape)
    return {"device": plain, "domain:0": placed}


def measured() -> Recording:
    """A run with a discarded sample, an outlier, and one condition measured twice."""
    rng = np.random.default_rng(30)
    first = samples(matrices(rng, 30, SIZES_MIB, 1.0), SIZES_MIB, attempt=1)
    again = SIZES_MIB[4:5]
    second = samples(matrices(rng, 30, again, 1.0), again, attempt=2)
    rows = frame([first, second])
    placed = (rows.placement == "domain:0") & (rows.attempt == 1)
    at = rows.index[placed & (rows.size_bytes == 64 * MIB)]
    rows.loc[at[4], "flags"] = int(Flag.WRONG_ORDINAL)
    rows.loc[at[7], "total_ns"] = 5_000_000.0
    facts = environment(remeasured={"domain:0 34 MiB": "first and second half differ"})
    return Recording(Path("b300.vmmprof"), rows, facts, VMM_CYCLE)


def modelled() -> Recording:
    """A model's noise-free run in which one call is not modelled."""
    rng = np.random.default_rng(31)
    rows = frame([samples(matrices(rng, 30, SIZES_MIB, 0.0), SIZES_MIB, attempt=1)])
    rows["map_ns"] = np.nan
    facts = environment(driver="model:b300", is_model=True, gpu={}, machine={})
    return Recording(Path("b300-model.vmmprof"), rows, facts, VMM_CYCLE)


def plain_only(rounds: int = 30) -> Recording:
    """A run of the control alone."""
    rng = np.random.default_rng(32)
    totals = {"device": matrices(rng, rounds, SIZES_MIB, 1.0)["device"]}
    rows = frame([samples(totals, SIZES_MIB, attempt=1)])
    return Recording(Path("plain.vmmprof"), rows, environment(), VMM_CYCLE)


RECORDINGS = {"measured": measured, "modelled": modelled, "plain": plain_only}
