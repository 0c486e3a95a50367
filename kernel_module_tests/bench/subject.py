# SPDX-License-Identifier: MIT
"""Build a function under test with the simulator and run cases on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from bench.cases import Case
from bench.errors import BenchError

SIM_DIR = Path(__file__).parent / "sim"
UPDATE_PATH = Path(__file__).parent.parent / "update_path" / "update_path.c"

_FINDINGS = {
    1 << 0: "read a page past the end of the memory",
    1 << 1: "mapped addresses outside BAR1",
    1 << 2: "mapped a range that is not whole aligned pages",
    1 << 3: "mapped over valid PTEs without allowing it",
    1 << 4: "passed a page array that does not fit the range",
    1 << 5: "mapped another descriptor, or not as valid memory",
}

Pte = tuple[int, int, bool]
"""Physical slot, kind, localized."""


@dataclass(frozen=True)
class Call:
    """One mapping call: slots [slot, slot + n_slots) of BAR1, and what it returned."""

    slot: int
    n_slots: int
    status: int


@dataclass
class Outcome:
    """What one operation did, and the page table after it."""

    operation: str
    status: int
    maps: int
    pte_writes: int
    synced_maps: int
    full_flushes: int
    partial_flushes: int
    downgrades: int
    upgrades: int
    read_backs: int
    """Mapping calls that change the PTEs that are there and keep their addresses."""
    findings: tuple[str, ...]
    calls: list[Call] = field(default_factory=list)
    changed: dict[int, Pte | None] = field(default_factory=dict)
    """BAR1 slots that differ from the mapping at boot; None: unmapped."""
    stale: list[int] = field(default_factory=list)
    """Slots whose walker or TLB view differs from what was written."""

    @property
    def flushes(self) -> int:
        """Flushes of the loop, wherever made; not those of single PTE writes."""
        return self.full_flushes + self.partial_flushes + self.synced_maps

    @property
    def invalidates(self) -> int:
        return self.downgrades + self.upgrades + self.synced_maps


class CrashError(Exception):
    """The function under test ended the process; the text is the first line of why."""


def _parse(lines: Sequence[str]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for line in lines:
        word, *rest = line.split()
        if word == "op":
            numbers = [int(number) for number in rest[1:]]
            findings = tuple(text for bit, text in _FINDINGS.items() if numbers[9] & bit)
            outcomes.append(
                Outcome(
                    operation=rest[0],
                    status=numbers[0],
                    maps=numbers[1],
                    pte_writes=numbers[2],
                    synced_maps=numbers[3],
                    full_flushes=numbers[4],
                    partial_flushes=numbers[5],
                    downgrades=numbers[6],
                    upgrades=numbers[7],
                    read_backs=numbers[8],
                    findings=findings,
                )
            )
        elif word == "call":
            outcomes[-1].calls.append(Call(*map(int, rest)))
        elif word == "stale":
            outcomes[-1].stale.append(int(rest[0]))
        elif word == "pte":
            slot, count, physical, kind, localized, valid = map(int, rest)
            for i in range(count):
                pte = (physical + i, kind, bool(localized)) if valid else None
                outcomes[-1].changed[slot + i] = pte
    return outcomes


class Subject:
    """A running simulator with one function under test; a context manager."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, case: Case) -> list[Outcome]:
        """The outcome of each operation of the case.

        Raises CrashError when a sanitizer or a signal ended the process.
        """
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        lines = []
        try:
            process.stdin.write(case.encoded())
            process.stdin.flush()
            while (line := process.stdout.readline()) != "end\n":
                if not line:
                    raise BrokenPipeError
                lines.append(line)
        except BrokenPipeError:
            raise CrashError(self._reap()) from None
        return _parse(lines)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            # Leaks are not judged, and LeakSanitizer cannot run under ptrace.
            environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
            self._process = subprocess.Popen(
                [self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        return self._process

    def _reap(self) -> str:
        assert self._process is not None
        process, self._process = self._process, None
        _, errors = process.communicate()
        for line in errors.splitlines():
            if "runtime error" in line or "ERROR: AddressSanitizer" in line:
                return line.strip()
        if process.returncode == -signal.SIGALRM:
            return "did not come to an end"
        return errors.strip().splitlines()[0] if errors.strip() else f"exit {process.returncode}"


def compiler() -> str:
    """The C compiler to use; $CC if set. Raises BenchError when there is none."""
    name = os.environ.get("CC", "cc")
    if shutil.which(name) is None:
        raise BenchError(f"no C compiler '{name}'; install gcc or set CC")
    return name


_FLAGS = (
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


def _compile(command: Sequence[str]) -> None:
    """Run the compiler. Raises BenchError with its first error."""
    done = subprocess.run(
        [compiler(), *_FLAGS, *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise BenchError(f"does not compile on the bench: {(errors or ['unknown error'])[0]}")


def _simulator(directory: Path) -> list[str]:
    """Objects of the simulator itself, compiled once for each directory."""
    objects = []
    for name in ("mmu", "main"):
        target = directory / f"sim-{name}.o"
        if not target.exists():
            _compile(["-c", str(SIM_DIR / f"{name}.c"), "-o", str(target)])
        objects.append(str(target))
    return objects


def build(program: Path, adapter: str, sources: Mapping[str, Path], defines: Sequence[str]) -> None:
    """Compile the simulator with an adapter of sim/ into `program`.

    sources: macro name to the file that the adapter includes under that name.
    Raises BenchError with the compiler's first error.
    """
    command = [f"-I{UPDATE_PATH.parent}", f"-I{SIM_DIR}", *defines]
    command += [f'-D{name}="{path}"' for name, path in sources.items()]
    command += [str(SIM_DIR / adapter), *_simulator(program.parent)]
    _compile([*command, "-o", str(program)])


def build_own(program: Path, flavour: str, source: Path = UPDATE_PATH) -> None:
    """Build this project's own update path. flavour: letters of a, b, c; '' is stock."""
    macros = {"a": "UP_COALESCE", "b": "UP_DEFER_SYNC", "c": "UP_UPDATE_ONCE"}
    defines = [f"-D{macro}=1" for letter, macro in macros.items() if letter in flavour]
    build(program, "subject_own.c", {"UPDATE_PATH_SOURCE": source.resolve()}, defines)


def build_extracted(program: Path, source: Path) -> None:
    """Build functions that were cut out of a driver tree into `source`."""
    build(program, "subject_rm.c", {"EXTRACTED_SOURCE": source.resolve()}, [])
