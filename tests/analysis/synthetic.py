# SPDX-License-Identifier: MIT
"""Samples of made-up machines with a known truth, for the tests of the analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmmprof.operations import VMM_CYCLE, Operation
from vmmprof.sizes import MIB

FloatArray = npt.NDArray[np.float64]

ARITHMETIC_MIB = np.arange(30, 67, 2, dtype=np.float64)
GEOMETRIC_MIB = 2.0 ** np.arange(1, 11)


def b300_extra_us(size_mib: FloatArray) -> FloatArray:
    """The paper's shape: 22 us up to 32 MiB, 357 us at 34 MiB, then 10.4 us a MiB."""
    return np.where(size_mib <= 32, 22.0, 357.0 + 10.4 * (size_mib - 34))


def plain_us(size_mib: FloatArray) -> FloatArray:
    """Cost of the plain cycle of the same machine."""
    return 122.0 + 0.74 * size_mib


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Noise of a busy machine in us: Student's t with two degrees of freedom, spread about 1."""
    return rng.standard_t(2, size=shape)


def random_walk(rng: np.random.Generator, rounds: int, step_us: float) -> FloatArray:
    """Drift shared by everything that is measured in a round."""
    return np.cumsum(rng.normal(0, step_us, size=rounds))


def samples(
    times_us: Mapping[str, FloatArray],
    sizes_mib: FloatArray,
    *,
    operation: Operation = VMM_CYCLE,
    attempt: int = 0,
    scattered: bool = False,
    flags: int = 0,
) -> pd.DataFrame:
    """A recording's samples from totals (rounds, sizes) by placement.

    The total is split over the calls in fixed shares, so that calls add up.
    """
    shares = np.arange(1, len(operation.calls) + 1, dtype=np.float64)
    shares /= shares.sum()
    frames = []
    for placement, totals in times_us.items():
        rounds, sizes = totals.shape
        ns = np.round(totals.ravel() * 1000).astype(np.int64)
        calls = np.floor(ns[:, None] * shares).astype(np.int64)
        calls[:, -1] += ns - calls.sum(axis=1)
        columns: dict[str, object] = {
            "round": np.repeat(np.arange(rounds, dtype=np.int32), sizes),
            "order": np.tile(np.arange(sizes, dtype=np.int32), rounds),
            "thread": np.int16(0),
            "device": np.int16(0),
            "process": np.int16(0),
            "repeat": np.int32(0),
            "placement": placement,
            "size_bytes": np.tile((sizes_mib * MIB).astype(np.int64), rounds),
            "scattered": scattered,
            "attempt": np.int8(attempt),
            "start_ns": np.arange(rounds * sizes, dtype=np.int64) * 10_000_000,
        }
        columns |= {f"{call}_ns": calls[:, i] for i, call in enumerate(operation.calls)}
        columns |= {"total_ns": ns, "flags": np.uint16(flags)}
        frames.append(pd.DataFrame(columns))
    frame = pd.concat(frames, ignore_index=True)
    frame["placement"] = frame["placement"].astype("category")
    for call in (*operation.calls, "total"):
        frame[f"{call}_ns"] = frame[f"{call}_ns"].astype("Int64")
    return frame.sort_values(["round", "order"], kind="stable", ignore_index=True)


def noisy_matrix(
    truth_us: Callable[[FloatArray], FloatArray],
    sizes_mib: FloatArray,
    rounds: int,
    rng: np.random.Generator,
    spread_us: float,
) -> FloatArray:
    """Extra cost (rounds, sizes): the truth with heavy-tailed noise of the given spread."""
    noise = heavy_tailed(rng, (rounds, len(sizes_mib)))
    return truth_us(sizes_mib) + spread_us * noise
