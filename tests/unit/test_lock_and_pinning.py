# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.experiment.lock import measurement_lock
from vmmprof.experiment.pinning import cpus_to_pin, parse_cpus, pinned

HOLD = """
import sys, time, pathlib
from vmmprof.experiment.lock import measurement_lock
with measurement_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other_holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_holder_is_named(tmp_path: Path, other_holder: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(NothingMeasuredError, match=rf"PID {other_holder.pid} \(.*python"),
        measurement_lock(tmp_path / "lock"),
    ):
        pass


def test_a_killed_holder_leaves_no_lock(
    tmp_path: Path, other_holder: subprocess.Popen[str]
) -> None:
    other_holder.send_signal(signal.SIGKILL)
    other_holder.wait()
    with measurement_lock(tmp_path / "lock"):
        pass


def test_the_lock_is_given_back_on_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), measurement_lock(tmp_path / "lock"):
        raise RuntimeError
    with measurement_lock(tmp_path / "lock"):
        pass


def test_a_lock_file_that_cannot_be_opened_is_said() -> None:
    with (
        pytest.raises(NothingMeasuredError, match="--no-lock measures without it"),
        measurement_lock(Path("/proc/none/lock")),
    ):
        pass


def test_cpu_lists() -> None:
    assert parse_cpus("0,2-4") == {0, 2, 3, 4}
    for text in ("", "a", "1-", "-1", "0,,1"):
        with pytest.raises(UsageError, match="not auto, none or a CPU list"):
            parse_cpus(text)


def test_a_backward_range_is_bad_input() -> None:
    with pytest.raises(UsageError, match="3-1 runs backwards"):
        parse_cpus("0,3-1")


def test_affinity_is_given_back_on_error() -> None:
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with pytest.raises(RuntimeError), pinned(one):
        assert os.sched_getaffinity(0) == one
        raise RuntimeError
    assert os.sched_getaffinity(0) == before


def test_a_cpu_that_may_not_be_used_is_bad_input() -> None:
    with pytest.raises(UsageError, match="CPU 99999 may not be used"):
        cpus_to_pin("99999", None)


def test_what_auto_could_not_do_is_said() -> None:
    assert cpus_to_pin("auto", None) == (None, "none: no GPU is measured")
    cpus, said = cpus_to_pin("auto", "FFFFFFFF:FF:FF.7")
    assert cpus is None
    assert said == "none: the NUMA node of FFFFFFFF:FF:FF.7 is unknown"
