# SPDX-License-Identifier: MIT
"""Fixtures that run child processes against the stub libcuda."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import stub_cuda

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 60


@dataclass(frozen=True)
class Ended:
    """A child process that ended, and what it did to the stub."""

    returncode: int
    stdout: str
    stderr: str
    ledger: stub_cuda.Ledger


Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def stub_library() -> Path:
    """Folder of the built libcuda.so.1."""
    return stub_cuda.build()


@pytest.fixture
def on_stub(stub_library: Path, tmp_path: Path) -> Run:
    """Run ``python ARGUMENTS`` on the stub; keywords are the stub's settings."""
    runs = 0

    def run(*arguments: str, **settings: object) -> Ended:
        nonlocal runs
        runs += 1
        ledger = tmp_path / f"ledger-{runs}"
        ledger.mkdir()
        done = subprocess.run(
            [sys.executable, *arguments],
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
