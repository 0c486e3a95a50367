# SPDX-License-Identifier: MIT
"""Fixtures that run child processes against the stub libcuda."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import stub_cuda
from vmmprof.recording.reader import Recording, load

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 300


@dataclass(frozen=True)
class Ended:
    """A child process that ended, what it did to the stub and, for a sweep, its recording."""

    returncode: int
    stdout: str
    stderr: str
    ledger: stub_cuda.Ledger
    output: Path | None = None

    @property
    def errors(self) -> list[str]:
        """The lines of standard error that are not progress."""
        return [line for line in self.stderr.splitlines() if " cycles" not in line]

    @property
    def recording(self) -> Recording:
        """What was recorded, whole or not."""
        assert self.output is not None
        return load(str(self.output))


Run = Callable[..., Ended]


def assert_clean(ended: Ended) -> None:
    """Nothing wrong was asked of the driver, and everything was given back."""
    assert ended.ledger.violations == []
    assert ended.ledger.is_empty
    assert ended.ledger.exited
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="session")
def stub_library() -> Path:
    """Folder of the built libcuda.so.1."""
    return stub_cuda.build()


@pytest.fixture
def on_stub(stub_library: Path, tmp_path: Path) -> Run:
    """Run ``python ARGUMENTS`` on the stub; keywords are the stub's settings.

    ``under`` is a command that runs it, such as ``nohup``.
    """
    runs = 0

    def run(*arguments: str, under: tuple[str, ...] = (), **settings: object) -> Ended:
        nonlocal runs
        runs += 1
        ledger = tmp_path / f"ledger-{runs}"
        ledger.mkdir()
        done = subprocess.run(
            [*under, sys.executable, *arguments],
            env=stub_cuda.env(stub_library, ledger, **settings),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, stub_cuda.read_ledger(ledger))

    return run


@pytest.fixture
def drive(on_stub: Run) -> Run:
    """Run a function of children.py in a child process on the stub."""

    def run(function: str, *arguments: str, **settings: object) -> Ended:
        return on_stub("-m", "tests.cuda.children", function, *arguments, **settings)

    return run


@pytest.fixture
def sweep(on_stub: Run, tmp_path: Path) -> Run:
    """Run ``vmmprof sweep --driver cuda ARGUMENTS`` on the stub.

    Without arguments: 2 and 4 MiB, plain and both domains, 1 warm-up and 3
    rounds. Tests of several checkouts may run at once, hence no lock.
    """
    runs = 0

    def run(*arguments: str, driver: str = "cuda", **settings: object) -> Ended:
        nonlocal runs
        runs += 1
        output = tmp_path / f"sweep-{runs}"
        ended = on_stub(
            *("-m", "vmmprof", "sweep", "--driver", driver, "--output", str(output)),
            *("--no-lock", "--pin", "none", "--sizes", "2M,4M", "--repeats", "3", "--warmup", "1"),
            *arguments,
            **settings,
        )
        return replace(ended, output=output)

    return run
