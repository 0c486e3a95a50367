# SPDX-License-Identifier: MIT
"""Build the stub libcuda, steer it through the environment and read its ledger.

The stub is for child processes only: they load it as libcuda.so.1 through
``LD_LIBRARY_PATH``, so it is the real cuda.bindings that call it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent
BUILD_ROOT = SOURCE.parents[1] / "build"
CUDA_HEADER = Path("include", "cuda.h")


def cuda_include() -> Path:
    """Folder of the cuda.h that the nvidia-cuda-runtime wheel brings."""
    spec = importlib.util.find_spec("nvidia.cu13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (header := Path(folder, CUDA_HEADER)).is_file():
            return header.parent
    raise FileNotFoundError(
        "cuda.h of CUDA 13.4 is not installed; pip install 'nvidia-cuda-runtime==13.4.*'"
    )


def build(sanitize: str = "") -> Path:
    """Build the stub, if anything changed, and return the folder of libcuda.so.1.

    ``sanitize`` is a compiler's list of sanitizers, such as ``address,undefined``.
    """
    folder = BUILD_ROOT / f"stub_cuda{'-' if sanitize else ''}{sanitize.replace(',', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["make", "--silent", "-C", str(SOURCE), f"BUILD={folder}"]
    command.append(f"CUDA_INCLUDE={cuda_include()}")
    if sanitize:
        command.append(f"SANITIZE=-fsanitize={sanitize} -fno-omit-frame-pointer")
    # Several test processes may want it at once.
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True)
    return folder


def env(library: Path, ledger: Path, **settings: object) -> dict[str, str]:
    """This process's environment with the stub in front.

    ``library`` is what :func:`build` returned, ``ledger`` an existing folder.
    ``settings`` are the variables of README.md in lower case and without their
    prefix: ``env(..., domains=1, fail="cuMemMap:3:CUDA_ERROR_OUT_OF_MEMORY")``.
    """
    variables = {k: v for k, v in os.environ.items() if not k.startswith("STUB_CUDA_")}
    variables["LD_LIBRARY_PATH"] = str(library)
    variables["STUB_CUDA_LEDGER"] = str(ledger)
    # What a machine with GPUs may have set would hide the stub's devices.
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    variables.update({f"STUB_CUDA_{k.upper()}": str(v) for k, v in settings.items()})
    return variables


@dataclass
class Ledger:
    """What the processes that used one ledger folder did, added up.

    ``alive``: objects and bytes never given back, by kind. ``calls``: calls by
    function, those that failed included. ``violations``: one text for each
    wrong argument or order. ``faults``: injected errors. ``exited``: whether
    every process ended by returning from main or calling exit.
    """

    processes: int = 0
    exited: bool = True
    faults: int = 0
    sticky_result: int = 0
    peak_allocated_bytes: int = 0
    alive: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    violation_count: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether everything was given back."""
        return not any(self.alive.values())

    def add(self, document: dict[str, object]) -> None:
        """Add one process's ledger."""
        self.processes += 1
        self.exited = self.exited and document["exited"] == 1
        self.sticky_result = self.sticky_result or int(str(document["sticky_result"]))
        self.faults += int(str(document["faults"]))
        self.peak_allocated_bytes += int(str(document["peak_allocated_bytes"]))
        self.violation_count += int(str(document["violation_count"]))
        for name in ("alive", "calls"):
            counts = document[name]
            assert isinstance(counts, dict)
            getattr(self, name).update({k: n for k, n in counts.items() if n})
        violations = document["violations"]
        assert isinstance(violations, list)
        self.violations += violations


def read_ledger(folder: Path) -> Ledger:
    """The sum of all ledgers in a folder; ``processes`` is 0 if the stub was never called."""
    ledger = Ledger()
    for path in sorted(folder.glob("*.json")):
        ledger.add(json.loads(path.read_text()))
    return ledger
