# SPDX-License-Identifier: MIT
"""Injected failures are seen as failures of the call they were put into; bad use is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmmprof.kernel.symbols import SymbolTable, resolve_path

from .mock import HAS_REAL, Mock, Request, insert, inserted, kernel_log, loaded, remove
from .probes import attached

STATUS = 0x51
# What is waited for has happened long before; this ends a check that hangs.
GIVE_UP_S = 600
FAULTS = Path("/sys/module/vmmprof_fault/parameters")


def _function(mock: Mock) -> str:
    return f"function={mock.name}:dmaUpdateVASpace_GF100"


@pytest.mark.parametrize(
    ("method", "core", "flavour", "iterations", "status"),
    # stock goes on and loses the error; the patched loop stops and returns the first
    [
        ("kprobe", "padded", "stock", 512, 0),
        ("module", "padless", "ab", 101, STATUS),
        *([("module", "real", "stock", 512, 0)] if HAS_REAL else []),
        *([("module", "real", "ab", 101, STATUS)] if HAS_REAL else []),
    ],
)
def test_failure_at_a_call(
    method: str, core: str, flavour: str, iterations: int, status: int
) -> None:
    with (
        loaded(core, flavour) as mock,
        inserted("vmmprof_fault", _function(mock), "call=100", f"status={STATUS}"),
        attached(method, mock) as probe,
    ):
        mock.run(Request(512))
        probe.poll()
        (call,) = probe.result().calls
        assert (call.failed_iteration, call.failed_status) == (100, STATUS)
        assert (call.maps, call.status) == (iterations, status)
        assert mock.truth()["status"] == status


def test_unloading_restores() -> None:
    with loaded("padless", "ab") as mock:
        with inserted("vmmprof_fault", _function(mock), "call=0", "times=1000000"):
            mock.run(Request(4))
            assert mock.truth()["status"] == STATUS
        mock.run(Request(4))
        assert mock.truth()["status"] == 0


def test_by_thread_and_probability() -> None:
    with loaded("padless", "ab") as mock:
        with inserted("vmmprof_fault", _function(mock), f"thread={os.getpid()}", "times=100"):
            other = threading.Thread(target=mock.run, args=(Request(4),))
            other.start()
            other.join()
            assert mock.truth()["status"] == 0
            mock.run(Request(4))
            assert mock.truth()["status"] == STATUS
        with inserted("vmmprof_fault", _function(mock), "per_million=500000"):
            # without the stop at a failure: releases go on
            mock.run(Request(2000, release=1))
            assert int((FAULTS / "seen").read_text()) == 2000
            assert 800 < int((FAULTS / "injected").read_text()) < 1200


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([], "function= is missing"),
        (["function=no_such_function"], "no_such_function cannot be probed"),
        (["function=schedule", "per_million=2000000"], "per_million=2000000"),
        (["function=schedule", "thread=-3"], "thread=-3 is no thread ID"),
    ],
)
def test_wrong_parameters(parameters: list[str], message: str) -> None:
    before = len(kernel_log())
    assert insert("vmmprof_fault", *parameters).returncode != 0
    assert message in kernel_log()[before:]


def test_double_load_is_refused() -> None:
    done = insert("vmmprof_probe")
    assert done.returncode != 0
    assert "File exists" in done.stderr


@contextmanager
def _holding() -> Iterator[int]:
    """The probe module's control file, held open."""
    control = os.open("/dev/vmmprof_probe", os.O_RDWR)
    try:
        yield control
    finally:
        os.close(control)


def test_one_holder_and_no_unloading_meanwhile() -> None:
    with _holding():
        with pytest.raises(OSError, match="busy"):
            os.open("/dev/vmmprof_probe", os.O_RDWR)
        done = remove("vmmprof_probe")
        assert done.returncode != 0
        assert "in use" in done.stderr


@pytest.mark.parametrize(
    "command",
    ["arm 9 schedule", "arm 0 no_such_function", "calibrate 0 0", "calibrate 8", "nonsense"],
)
def test_bad_commands_are_refused(command: str) -> None:
    with _holding() as control:
        with pytest.raises(OSError):
            os.write(control, command.encode())
        assert os.pread(control, 4096, 0) == b""


def test_death_of_the_holder_disarms() -> None:
    with loaded("padless", "stock") as mock:
        program = (
            "import os, time\n"
            "control = os.open('/dev/vmmprof_probe', os.O_RDWR)\n"
            f"os.write(control, b'arm 2 {mock.name}:kbusFlush_GM107')\n"
            "print('armed', flush=True)\n"
            "time.sleep(1000)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"armed\n"
            holder.send_signal(signal.SIGKILL)
        with _holding() as control:
            assert os.pread(control, 4096, 0) == b""


def _hits_once_all_are_hit(control: int) -> list[int]:
    """Hits of each armed probe; a loaded machine may take a while to reach them all."""
    deadline_s = time.monotonic() + GIVE_UP_S
    while True:
        hits = [int(line.split()[2]) for line in os.pread(control, 4096, 0).splitlines()]
        if (hits and min(hits) > 0) or time.monotonic() > deadline_s:
            return hits
        time.sleep(0.1)


def test_detaching_under_load() -> None:
    with loaded("padless", "stock") as mock:
        path = resolve_path(SymbolTable.read(), mock.name)
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                mock.run(Request(64, sleep_us=50))

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                with _holding() as control:
                    for part, symbols in path.symbols.items():
                        command = f"arm {part.value} {symbols[0].qualified_name}"
                        os.write(control, command.encode())
                    hits = _hits_once_all_are_hit(control)
                    assert len(hits) == 4
                    assert min(hits) > 0
                assert remove("vmmprof_probe").returncode == 0
                assert insert("vmmprof_probe").returncode == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_reload_is_noticed() -> None:
    with loaded("padless", "stock") as mock, attached("module", mock) as probe:
        assert not probe.result().reloaded
        assert remove(mock.name).returncode == 0
        assert insert(mock.name).returncode == 0
        mock.run(Request(3))
        probe.poll()
        result = probe.result()
    assert result.reloaded
    assert not result.calls
