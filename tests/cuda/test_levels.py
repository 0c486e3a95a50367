# SPDX-License-Identifier: MIT
"""Several workers at once, from the command line to the recording, on the stub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tests import stub_cuda
from tests.cuda.conftest import REPOSITORY, Ended, Run
from vmmprof.recording.reader import load, load_victims
from vmmprof.recording.schema import JOURNAL_FILE, Flag
from vmmprof.recording.writer import read_journal

PLAIN = ("--placement", "device", "--sizes", "2M", "--driver", "cuda", "--no-lock")
DEADLINE_S = 300.0

Sweep = Callable[..., tuple[Ended, pd.DataFrame]]


@pytest.fixture
def sweep(on_stub: Run, tmp_path: Path) -> Sweep:
    def run(*arguments: str, **settings: object) -> tuple[Ended, pd.DataFrame]:
        name = str(tmp_path / "r")
        ended = on_stub(
            *("-m", "vmmprof", "sweep", "--output", name, *PLAIN, *arguments), **settings
        )
        return ended, load(name).samples

    return run


def usable(samples: pd.DataFrame) -> pd.DataFrame:
    return samples[samples["flags"] == 0]


def test_every_worker_of_every_level_has_its_samples(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--threads", "1,3", "--processes", "1,2"),
        *("--repeats", "2", "--warmup", "1", "--burst", "4", "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    assert ended.ledger.processes == 3
    workers = (
        samples[samples["flags"] & int(Flag.WARMUP) == 0]
        .groupby(["processes", "threads", "round", "process", "thread"])["repeat"]
        .max()
    )
    # 1 + 3 + 2 + 6 workers, two rounds; cycle 0 runs before the common start.
    assert len(workers) == 2 * 12
    assert workers.min() >= 4
    assert (usable(samples)["repeat"] > 0).all()
    levels = [tuple(p["level"].values()) for p in json.loads(ended.stdout)["placements"]]
    assert levels == [(1, 1, 1), (1, 3, 1), (2, 1, 1), (2, 3, 1)]


def test_cycles_count_from_the_moment_on_when_all_workers_run(sweep: Sweep) -> None:
    _, samples = sweep(*("--threads", "4", "--repeats", "3", "--warmup", "0", "--burst", "10"))
    for _, burst in samples.groupby("round"):
        first_starts = burst[burst["repeat"] > 0].groupby("thread")["start_ns"].min()
        assert usable(burst)["start_ns"].min() == first_starts.max()


def test_a_run_without_levels_has_one_cycle_a_visit(sweep: Sweep) -> None:
    ended, samples = sweep(*("--threads", "1", "--repeats", "3", "--warmup", "0"))
    assert ended.returncode == 0
    assert len(samples) == 3
    assert (samples["repeat"] == 0).all() and (samples["flags"] == 0).all()


def test_levels_spread_over_the_devices_that_are_named(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--devices", "1", "--devices", "2,1", "--threads", "2"),
        *("--repeats", "2", "--warmup", "0", "--burst", "3"),
        devices=3,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    used = samples.groupby("devices")["device"].agg(lambda d: sorted(set(d)))
    assert used.to_dict() == {1: [1], 2: [1, 2]}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--devices", "0,3"), "device 3: this machine has CUDA devices 0 to 1"),
        (("--devices", "0,1", "--devices", "1,0"), "two sets have the same number of devices"),
        (("--devices", "0", "--device", "1"), "--device and --devices exclude each other"),
        (("--devices", "0,0"), "names a device twice"),
        (("--threads", "0"), "--threads '0' is not a whole number from 1"),
        (("--threads", "64", "--processes", "32"), "2048 workers at once are too many"),
    ],
)
def test_levels_that_cannot_be_are_bad_input(
    on_stub: Run, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    output = tmp_path / "r"
    ended = on_stub(
        *("-m", "vmmprof", "sweep", "--output", str(output), *PLAIN, *arguments), devices=2
    )
    assert ended.returncode == 2
    assert complaint in ended.stderr and "Traceback" not in ended.stderr
    assert not output.with_suffix(".vmmprof").exists()


def test_a_level_that_does_not_fit_is_left_out_and_the_rest_measured(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--threads", "2,8", "--sizes", "8M", "--repeats", "2", "--burst", "2"), memory=32 << 20
    )
    assert ended.returncode == 4
    assert "8 threads: all workers together need 64 MiB of a device with 32 MiB" in ended.stderr
    assert set(samples["threads"]) == {2}


def test_a_failing_thread_is_named_and_the_samples_of_the_others_are_kept(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--threads", "4", "--repeats", "1000", "--warmup", "0", "--burst", "20"),
        fail="cuMemMap:4000:CUDA_ERROR_OUT_OF_MEMORY",
    )
    assert ended.returncode == 4
    assert "process 0 thread" in ended.stderr
    assert "on device 0: cuMemMap failed: CUDA_ERROR_OUT_OF_MEMORY" in ended.stderr
    assert ended.ledger.is_empty
    assert (samples["flags"] & int(Flag.FAILED) != 0).sum() == 1
    assert len(usable(samples)) > 0


def test_an_error_that_takes_the_context_ends_the_run_with_its_name(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--processes", "2", "--sizes", "2M,4M", "--repeats", "2", "--burst", "20"),
        fail="cuMemMap:100:CUDA_ERROR_ILLEGAL_ADDRESS:sticky",
    )
    assert ended.returncode in (3, 4)
    assert "ended early: " in ended.stderr
    assert "on device 0: cuMemMap failed: CUDA_ERROR_ILLEGAL_ADDRESS" in ended.stderr
    assert len(samples) > 0


def test_sigterm_in_a_burst_of_threads_saves_what_was_measured(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--threads", "4", "--repeats", "50", "--warmup", "0", "--burst", "50"),
        signal="cuMemCreate:1000:SIGTERM",
    )
    assert ended.returncode == 130, ended.stderr
    assert ended.ledger.is_empty
    assert len(usable(samples)) > 0


class Running:
    """A sweep with worker processes that goes on until it is disturbed."""

    def __init__(self, library: Path, tmp_path: Path, *arguments: str) -> None:
        self.recording = tmp_path / "r.vmmprof"
        self.ledgers = tmp_path / "ledger"
        self.ledgers.mkdir()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "vmmprof", "sweep", "--output", str(self.recording)),
                *(*PLAIN, "--repeats", "100000", "--warmup", "0", *arguments),
            ],
            env=stub_cuda.env(library, self.ledgers),
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_measuring(self) -> None:
        """Until two rounds are whole in the journal: a kill takes what is being written."""
        deadline = time.monotonic() + DEADLINE_S
        while self._rounds_written() < 2:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _rounds_written(self) -> int:
        try:
            rounds = read_journal(self.recording / JOURNAL_FILE)["round"].to_numpy()
        except (OSError, pa.ArrowInvalid):  # not there yet, or without its schema
            return 0
        return int(rounds.max(initial=-1)) + 1

    def worker_pids(self) -> list[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(child) for child in children.split()]

    def end(self) -> tuple[int, str]:
        _, stderr = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, stderr


def test_a_killed_process_is_reported_and_the_samples_of_the_others_are_kept(
    stub_library: Path, tmp_path: Path
) -> None:
    running = Running(stub_library, tmp_path, "--processes", "3", "--burst", "20")
    running.wait_until_measuring()
    os.kill(running.worker_pids()[1], signal.SIGKILL)
    code, stderr = running.end()
    assert code == 4, stderr
    assert "process 1: killed by SIGKILL" in stderr
    samples = load(str(running.recording)).samples
    assert set(usable(samples)["process"]) == {0, 1, 2}
    last = samples[samples["round"] == samples["round"].max()]
    assert set(last["process"]) == {0, 2}


def test_sigint_with_worker_processes_saves_and_leaves_none_behind(
    stub_library: Path, tmp_path: Path
) -> None:
    running = Running(stub_library, tmp_path, "--processes", "2", "--threads", "2")
    running.wait_until_measuring()
    workers = running.worker_pids()
    # As a terminal does it: everybody gets it.
    for pid in (*workers, running.process.pid):
        os.kill(pid, signal.SIGINT)
    code, stderr = running.end()
    assert code == 130, stderr
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    ledger = stub_cuda.read_ledger(running.ledgers)
    assert ledger.is_empty and ledger.exited
    assert len(usable(load(str(running.recording)).samples)) > 0


def test_worker_processes_die_with_the_one_that_started_them(
    stub_library: Path, tmp_path: Path
) -> None:
    running = Running(stub_library, tmp_path, "--processes", "2")
    running.wait_until_measuring()
    workers = running.worker_pids()
    running.process.kill()
    running.end()
    deadline = time.monotonic() + DEADLINE_S
    while any(_alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(load(str(running.recording)).samples) > 0


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# -- a victim ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "call"),
    [("query", "cuMemGetInfo"), ("alloc", "cuMemRelease"), ("launch", "cuLaunchKernel")],
)
def test_a_victim_runs_beside_every_burst_and_alone(
    sweep: Sweep, tmp_path: Path, kind: str, call: str
) -> None:
    ended, _ = sweep(
        *("--victim", kind, "--threads", "1,2", "--repeats", "3", "--warmup", "1"),
        *("--burst", "50", "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    victims = load_victims(load(str(tmp_path / "r")))
    assert victims is not None
    assert ended.ledger.calls[call] >= len(victims)
    by_level = victims.groupby(["threads", "round"])["repeat"].max()
    # Alone 500 operations a visit behind the first, which ran before the start.
    assert (by_level.loc[0] == 500).all()
    assert set(by_level.index.get_level_values("threads")) == {0, 1, 2}
    assert (victims[victims["repeat"] == 0]["flags"] & int(Flag.OUTSIDE_WINDOW) != 0).all()
    document = json.loads(ended.stdout)["victim"]
    assert document["kind"] == kind
    alone = document["beside"][0]
    assert alone["level"]["threads"] == 0 and alone["n"] == 3 * 500 and alone["ratio"] is None


def test_a_victim_of_processes_lives_in_the_process_that_measures(
    sweep: Sweep, tmp_path: Path
) -> None:
    ended, _ = sweep(
        *("--victim", "query", "--victim-device", "1", "--processes", "2"),
        *("--repeats", "2", "--burst", "20"),
        devices=2,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    assert "victim on device 1: cuMemGetInfo" in ended.stdout
    victims = load_victims(load(str(tmp_path / "r")))
    assert victims is not None and set(victims["processes"]) == {1, 2}


def test_a_victim_beside_a_single_set_of_devices(sweep: Sweep) -> None:
    """Nobody allocates in the visits of the victim alone: they use no set of devices at all."""
    ended, _ = sweep(
        *("--victim", "query", "--victim-device", "2", "--devices", "0,1"),
        *("--repeats", "2", "--burst", "20", "--json"),
        devices=3,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.ledger.is_empty and ended.ledger.violations == []
    levels = [row["level"] for row in json.loads(ended.stdout)["victim"]["beside"]]
    assert [(level["threads"], level["devices"]) for level in levels] == [(0, 1), (1, 2)]


def test_a_victim_that_fails_is_named_and_the_cycles_are_kept(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--victim", "launch", "--threads", "2", "--repeats", "4", "--warmup", "0"),
        fail="cuLaunchKernel:700:CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    )
    assert ended.returncode == 4, ended.stderr
    assert (
        "the victim on device 0: cuLaunchKernel or cuStreamSynchronize failed: "
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in ended.stderr
    )
    assert ended.ledger.is_empty
    assert len(samples) > 0


def test_a_model_has_no_victim(on_stub: Run, tmp_path: Path) -> None:
    ended = on_stub(
        *("-m", "vmmprof", "sweep", "--output", str(tmp_path / "r"), "--driver", "model:h200"),
        *("--victim", "query"),
    )
    assert ended.returncode == 2
    assert "--victim query: model:h200 has no source for its times" in ended.stderr


# -- an open loop -------------------------------------------------------------


def test_an_open_loop_starts_by_the_clock_and_counts_from_the_intended_start(sweep: Sweep) -> None:
    ended, samples = sweep(
        *("--rate", "2000", "--threads", "1,2", "--repeats", "2", "--warmup", "0"),
        *("--burst", "10", "--json"),
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["headline"] == "latency"
    cycles = samples[samples["repeat"] > 0].sort_values(["threads", "round", "thread", "repeat"])
    late_ns = cycles["latency_ns"] - cycles["total_ns"]
    assert (late_ns >= 0).all()
    intended = cycles.assign(intended_ns=cycles["start_ns"] - late_ns.astype("int64"))
    for _, worker in intended.groupby(["threads", "round", "thread"]):
        spacing = worker["intended_ns"].diff() / worker["repeat"].diff()
        assert (spacing.dropna() == 500_000).all()


def test_a_slow_cycle_makes_those_behind_it_late(sweep: Sweep) -> None:
    # Each cycle takes 2 ms and one should start every ms: the tenth is 9 ms late.
    _, samples = sweep(
        *("--rate", "1000", "--repeats", "1", "--warmup", "0", "--burst", "10"),
        latency="cuMemCreate:2000000",
    )
    cycles = samples[samples["repeat"] > 0].sort_values("repeat")
    late_ns = (cycles["latency_ns"] - cycles["total_ns"]).to_numpy()
    assert late_ns[9] >= 9_000_000
    assert (late_ns[1:] > late_ns[:-1]).all()


def test_a_closed_loop_has_no_latency(sweep: Sweep) -> None:
    _, samples = sweep("--threads", "2", "--repeats", "1", "--warmup", "0", "--burst", "3")
    assert samples["latency_ns"].isna().all()
