# SPDX-License-Identifier: MIT
"""``vmmprof sweep`` when the driver fails, memory runs out or somebody interrupts it.

However it ends: the error's name is on standard error, the exit code is that of
docs/exit-codes.md, what was measured is saved, and the driver has everything back.
"""

from __future__ import annotations

import signal

import pandas as pd
import pytest
from cuda.bindings.driver import CUresult

from tests.cuda.conftest import Run, assert_clean
from vmmprof.drivers.cuda.api import is_sticky
from vmmprof.operations import VMM_CYCLE
from vmmprof.recording.schema import Flag

ERRORS = [result.name for result in CUresult if int(result) != 0]
STICKY = [result.name for result in CUresult if int(result) != 0 and is_sticky(int(result))]
TEARDOWN = ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree")
CALL_COLUMNS = [f"{call}_ns" for call in VMM_CYCLE.calls]

# The default sweep of these tests: 6 conditions, 4 rounds of which 1 is warm-up.
ALL_ROWS = 24
# Of the second round of three; a call of the 13th cycle.
MIDDLE = 13


def failed(samples: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = samples[(samples["flags"].to_numpy() & Flag.FAILED) != 0]
    return rows


@pytest.mark.parametrize("function", VMM_CYCLE.api_names)
def test_every_error_at_every_call_costs_its_condition_only(sweep: Run, function: str) -> None:
    errors = [error for error in ERRORS if error not in STICKY]
    # The cycles fail one after the other; a failed teardown call is tried again at once.
    calls_a_cycle = 2 if function in TEARDOWN else 1
    fail = ",".join(f"{function}:{1 + i * calls_a_cycle}:{error}" for i, error in enumerate(errors))
    ended = sweep("--sizes", "2M:100M:2M", "--repeats", "1", "--warmup", "0", fail=fail)
    assert_clean(ended)
    assert ended.returncode == 4
    assert ended.ledger.faults == len(errors) > 80
    for error in errors:
        told = [line for line in ended.errors if f"{function} failed: {error} (" in line]
        assert len(told) == 1 and told[0].startswith("given up: ")
    # A condition may be measured a second time for its scatter; that is not what is tested.
    samples = ended.recording.samples.query("attempt == 1")
    assert len(samples) == 150
    bad = failed(samples)
    assert len(bad) == len(errors)
    assert (samples["flags"] == 0).sum() == 150 - len(errors)
    # The calls before it have their times, it and the later ones have none.
    at = VMM_CYCLE.api_names.index(function)
    assert bad[CALL_COLUMNS[:at]].notna().all(axis=None)
    assert bad[[*CALL_COLUMNS[at:], "total_ns"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("function", "error"),
    [(VMM_CYCLE.api_names[i % 7], error) for i, error in enumerate(STICKY)],
)
def test_an_error_that_ends_the_context_ends_the_run(sweep: Run, function: str, error: str) -> None:
    ended = sweep(fail=f"{function}:{MIDDLE}:{error}")
    assert_clean(ended)
    assert ended.returncode == 4
    assert any(
        line.startswith("ended early: ") and f"{function} failed: {error}" in line
        for line in ended.errors
    )
    samples = ended.recording.samples
    assert len(samples) == MIDDLE
    assert len(failed(samples)) == 1
    assert ended.recording.environment["outcome"] != "complete"


def test_a_driver_that_refuses_everything_from_then_on(sweep: Run) -> None:
    error = "CUDA_ERROR_ILLEGAL_ADDRESS"
    ended = sweep(
        fail=f"cuMemSetAccess:{MIDDLE}:{error}:sticky,cuDevicePrimaryCtxRelease:1:{error}"
    )
    assert ended.returncode == 4
    assert "Traceback" not in ended.stderr
    assert any(line.startswith("not given back: ") and error in line for line in ended.errors)
    # What the 13th cycle held could not be freed; the 12 before it were.
    assert ended.ledger.alive["mappings"] == ended.ledger.alive["handles"] == 1
    assert len(ended.recording.samples) == MIDDLE


def test_memory_that_cannot_be_given_back_ends_the_run(sweep: Run) -> None:
    ended = sweep(fail=f"cuMemUnmap:{MIDDLE}+:CUDA_ERROR_ILLEGAL_STATE")
    assert ended.returncode == 4
    assert any(
        "cuMemUnmap failed (CUDA_ERROR_ILLEGAL_STATE)" in line and "could not be given back" in line
        for line in ended.errors
    )
    assert ended.ledger.alive["mappings"] == 1
    assert ended.ledger.calls["cuMemCreate"] == MIDDLE
    assert len(ended.recording.samples) == MIDDLE


@pytest.mark.parametrize(
    "function",
    [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem",
        "cuDeviceGetPCIBusId",
        "cuDeviceGetName",
        "cuDeviceGetUuid",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuMemGetInfo",
        "cuMemGetAllocationGranularity",
    ],
)
def test_an_error_before_the_first_cycle_is_one_line(sweep: Run, function: str) -> None:
    ended = sweep(fail=f"{function}:1+:CUDA_ERROR_NOT_PERMITTED")
    assert_clean(ended)
    assert ended.returncode == 3
    assert f"{function} failed: CUDA_ERROR_NOT_PERMITTED" in ended.errors[-1]
    assert ended.errors[-1].startswith("vmmprof: error: ")
    assert ended.ledger.calls["cuMemCreate"] == 0
    assert ended.output is not None and not ended.output.with_suffix(".vmmprof").exists()


def test_the_first_error_is_told_when_giving_back_fails_too(sweep: Run) -> None:
    error = "CUDA_ERROR_NOT_PERMITTED"
    ended = sweep(fail=f"cuMemGetInfo:1:{error},cuDevicePrimaryCtxRelease:1:{error}")
    assert ended.returncode == 3
    assert ended.errors == [f"vmmprof: error: cuMemGetInfo failed: {error}"]


def test_a_condition_that_failed_is_not_measured_again(sweep: Run) -> None:
    ended = sweep(fail=f"cuMemCreate:{MIDDLE}:CUDA_ERROR_OUT_OF_MEMORY")
    assert_clean(ended)
    assert ended.returncode == 4
    samples = ended.recording.samples.query("attempt == 1")
    bad = failed(samples)
    assert len(bad) == 1
    same = samples[
        (samples["placement"] == bad["placement"].iloc[0])
        & (samples["size_bytes"] == bad["size_bytes"].iloc[0])
    ]
    assert same.index[-1] == MIDDLE - 1
    # All others have their four rounds.
    assert len(samples) - len(same) == ALL_ROWS - 4


def test_a_result_is_kept_when_only_the_context_stays(sweep: Run) -> None:
    ended = sweep(fail="cuDevicePrimaryCtxRelease:1:CUDA_ERROR_NOT_PERMITTED")
    assert ended.returncode == 0
    (line,) = ended.errors
    assert "cuDevicePrimaryCtxRelease failed: CUDA_ERROR_NOT_PERMITTED" in line
    assert "plain, the control" in ended.stdout
    assert ended.recording.environment["outcome"] == "complete"


@pytest.mark.parametrize(
    ("function", "name"),
    [*((function, "SIGINT") for function in VMM_CYCLE.api_names), ("cuMemCreate", "SIGTERM")],
)
def test_a_signal_in_any_call_ends_the_run_behind_its_cycle(
    sweep: Run, function: str, name: str
) -> None:
    ended = sweep(signal=f"{function}:{MIDDLE}:{name}")
    assert_clean(ended)
    assert ended.returncode == 130
    assert any(line.startswith(f"ended early: interrupted by {name}") for line in ended.errors)
    samples = ended.recording.samples
    assert len(samples) == MIDDLE
    assert (samples["total_ns"] > 0).all()
    assert ended.recording.environment["outcome"] == f"interrupted by {name}"
    assert "plain, the control" in ended.stdout


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("cuInit", "SIGINT"),
        ("cuInit", "SIGHUP"),
        ("cuInit", "SIGTERM"),
        ("cuDevicePrimaryCtxRetain", "SIGTERM"),
        ("cuCtxSetCurrent", "SIGINT"),
        ("cuMemGetInfo", "SIGTERM"),
    ],
)
def test_a_signal_before_the_first_cycle(sweep: Run, function: str, name: str) -> None:
    ended = sweep(signal=f"{function}:1:{name}")
    assert_clean(ended)
    assert ended.returncode == 130
    assert any(f"interrupted by {name}" in line for line in ended.errors)
    assert ended.ledger.calls["cuMemCreate"] == 0


def test_a_signal_behind_the_last_cycle_takes_nothing_away(sweep: Run) -> None:
    ended = sweep(signal="cuDevicePrimaryCtxRelease:1:SIGTERM")
    assert_clean(ended)
    assert ended.returncode == 0
    assert len(ended.recording.samples) == ALL_ROWS


def test_a_second_signal_does_not_wait_and_keeps_what_is_saved(sweep: Run) -> None:
    ended = sweep(signal=f"cuMemMap:{MIDDLE}:SIGINT,cuMemUnmap:{MIDDLE}:SIGTERM")
    assert_clean(ended)
    assert ended.returncode == 130
    assert any("interrupted by SIGTERM" in line for line in ended.errors)
    ended.recording  # noqa: B018  # it loads


def test_a_hangup_that_nohup_ignores_stays_ignored(sweep: Run) -> None:
    ended = sweep(signal=f"cuMemMap:{MIDDLE}:SIGHUP", under=("nohup",))
    assert_clean(ended)
    assert ended.returncode == 0
    assert len(ended.recording.samples) == ALL_ROWS


def test_a_hangup_is_an_interrupt_otherwise(sweep: Run) -> None:
    ended = sweep(signal=f"cuMemMap:{MIDDLE}:SIGHUP")
    assert_clean(ended)
    assert ended.returncode == 130
    assert len(ended.recording.samples) == MIDDLE


def test_a_killed_run_leaves_what_it_had_flushed(sweep: Run, on_stub: Run) -> None:
    # 25 ms a cycle: by the 120th, more than the two seconds have gone that rows may wait.
    ended = sweep("--repeats", "30", latency="cuMemCreate:25000000", signal="cuMemMap:120:SIGKILL")
    assert ended.returncode == -signal.SIGKILL
    assert ended.ledger.alive["handles"] == 1
    assert 0 < len(ended.recording.samples) < 120
    assert ended.output is not None
    shown = on_stub("-m", "vmmprof", "report", str(ended.output))
    assert shown.returncode == 0, shown.stderr
    assert "plain, the control" in shown.stdout


@pytest.mark.parametrize("words", [("--order", "sequential"), ("--repeats", "1")])
def test_a_trace_needs_rounds_in_turn(sweep: Run, words: tuple[str, ...]) -> None:
    ended = sweep("--sizes", "2M", *words, "--trace")
    assert ended.returncode == 2
    assert len(ended.errors) == 1
    assert "--trace takes every other round: --repeats 2 or more" in ended.errors[0]
