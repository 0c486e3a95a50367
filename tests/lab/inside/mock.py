# SPDX-License-Identifier: MIT
"""Load, drive and read the mock driver; inside the lab only."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

MODULES = Path(os.environ.get("LAB_MODULES", ""))
DEBUGFS = Path("/sys/kernel/debug")
# Built around the object of a driver tree when there was one.
HAS_REAL = (MODULES / "vmmprof_real_stock.ko").exists()


@dataclass(frozen=True)
class Request:
    """struct mock_request of kernel_module_tests/lab/mock_core.h."""

    pages: int
    run_pages: int = 1
    pte_ns: int = 0
    barrier_ns: int = 0
    tlb_ns: int = 0
    sleep_us: int = 0
    outside_calls: int = 0
    release: int = 0
    localized: int = 0
    contiguous: int = 0

    def packed(self) -> bytes:
        values = astuple(self)
        return struct.pack(f"{len(values)}Q", *values)


class Mock:
    """A loaded mock driver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = DEBUGFS / name

    def run(self, request: Request) -> None:
        (self._folder / "run").write_bytes(request.packed())

    def reset(self) -> None:
        (self._folder / "reset").write_text("1")

    def truth(self) -> dict[str, int]:
        lines = (self._folder / "truth").read_text().splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines)}


def insert(name: str, *parameters: str) -> subprocess.CompletedProcess[str]:
    command = ["insmod", str(MODULES / f"{name}.ko"), *parameters]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def remove(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["rmmod", name], capture_output=True, text=True, check=False)


@contextmanager
def inserted(name: str, *parameters: str) -> Iterator[None]:
    done = insert(name, *parameters)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        removed = remove(name)
        assert removed.returncode == 0, removed.stderr


@contextmanager
def loaded(core: str, flavour: str) -> Iterator[Mock]:
    """A mock around a core: ``padded``, ``padless``, or ``real``, a driver tree's own object."""
    name = f"vmmprof_real_{flavour}" if core == "real" else f"vmmprof_mock_{core}_{flavour}"
    with inserted(name):
        yield Mock(name)


def kernel_log() -> str:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
