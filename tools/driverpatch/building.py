# SPDX-License-Identifier: MIT
"""Build a patched tree: one object first (a second), then the modules (minutes)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from driverpatch.elf import module_build_id
from driverpatch.errors import DriverError, DriverUsageError
from driverpatch.patching import Patched
from driverpatch.system import MODULE_NAMES, System

RESULT = "vmmprof-build.json"
_CROSS = {"aarch64": "aarch64-linux-gnu-gcc", "x86_64": "x86_64-linux-gnu-gcc"}


@dataclass(frozen=True)
class Headers:
    """Kernel headers; source and output differ where a distribution splits them."""

    source: Path
    output: Path


@dataclass(frozen=True)
class BuiltModule:
    name: str
    path: Path
    build_id: str
    sha256: str


@dataclass(frozen=True)
class Build:
    """The modules of one build of a patched tree for one kernel."""

    patched: Patched
    kernel: str
    modules: tuple[BuiltModule, ...]

    def save(self) -> None:
        data = {
            "kernel": self.kernel,
            "modules": {
                module.name: {
                    "path": str(module.path.relative_to(self.patched.root)),
                    "build_id": module.build_id,
                    "sha256": module.sha256,
                }
                for module in self.modules
            },
        }
        (self.patched.root / RESULT).write_text(json.dumps(data, indent=2) + "\n")

    @classmethod
    def load(cls, root: Path) -> Build:
        """Read what `build` left. Raises DriverUsageError when the tree is not built."""
        patched = Patched.load(root)
        result = root / RESULT
        if not result.is_file():
            raise DriverUsageError(f"{root}: not built yet; run 'driver build' on it first")
        data = json.loads(result.read_text())
        modules = tuple(
            BuiltModule(name, root / entry["path"], entry["build_id"], entry["sha256"])
            for name, entry in data["modules"].items()
        )
        return cls(patched, data["kernel"], modules)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def find_headers(system: System, named: Path | None) -> Headers:
    """The headers to build against: those named, or /lib/modules/KERNEL/build.

    Debian splits them into an architecture and a common directory; the Makefile
    of the first names the second.
    """
    output = named or system.modules_dir / "build"
    makefile = output / "Makefile"
    if not makefile.is_file():
        raise DriverError(f"{output}: no kernel headers; install those of {system.kernel}")
    output = output.resolve()
    # Absolute only: a whole kernel Makefile includes its architecture's by a variable.
    included = re.search(r"^include\s+(/\S+)/Makefile$", makefile.read_text(), re.MULTILINE)
    if included is None:
        return Headers(output, output)
    # The path in the Makefile is absolute; headers unpacked elsewhere lie side by side.
    common = Path(included.group(1))
    if not common.is_dir():
        common = output.parent / common.name
    if not common.is_dir():
        raise DriverError(f"{output}: belongs to {included.group(1)}, which is missing; install it")
    return Headers(common, output)


def object_command(patched: Patched, arch: str, *, debug: bool) -> list[str]:
    """The command that compiles the one patched object, without kernel headers."""
    # bus/arch/turing/kern_bus_tu102.c becomes _out/Linux_ARCH/kern_bus_tu102.o
    kind = "kern_bus_tu102.o"
    output = "_out/vmmprof-object" + ("-debug" if debug else "")
    command = ["make", "-C", str(patched.root / "src/nvidia"), f"OUTPUTDIR={output}/{arch}"]
    command += [f"TARGET_ARCH={arch}"]
    if arch != os.uname().machine:
        command += [f"CC={_CROSS[arch]}"]
    if debug:
        command += ["DEBUG=1"]
    return [*command, f"{output}/{arch}/{kind}"]


def compile_object(patched: Patched, arch: str, *, debug: bool) -> Path:
    """Compile the patched object. Raises DriverError with the compiler's first error."""
    if arch not in _CROSS:
        raise DriverUsageError(f"architecture '{arch}' is not known; expected x86_64 or aarch64")
    if arch != os.uname().machine and shutil.which(_CROSS[arch]) is None:
        raise DriverError(f"no cross compiler {_CROSS[arch]}; install gcc-{arch}-linux-gnu")
    command = object_command(patched, arch, debug=debug)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
        raise DriverError(f"the object does not compile: {(errors or ['no message'])[0]}")
    return patched.root / "src/nvidia" / command[-1]


def modules_command(patched: Patched, system: System, headers: Headers, jobs: int) -> list[str]:
    return [
        "make",
        "-C",
        str(patched.root),
        f"-j{jobs}",
        f"KERNEL_UNAME={system.kernel}",
        f"SYSSRC={headers.source}",
        f"SYSOUT={headers.output}",
        "modules",
    ]


def build_modules(patched: Patched, system: System, headers: Headers, jobs: int) -> Build:
    """Build all kernel modules, with the compiler's output on standard error."""
    command = modules_command(patched, system, headers, jobs)
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise DriverError(f"make modules failed (exit {done.returncode}); see its output above")
    return record_build(patched, system.kernel)


def record_build(patched: Patched, kernel: str) -> Build:
    """Take stock of the modules that lie in kernel-open/ and save it in the tree."""
    modules = []
    for name in MODULE_NAMES:
        path = patched.root / "kernel-open" / f"{name}.ko"
        if not path.is_file():
            continue
        identity = module_build_id(path)
        if identity is None:
            raise DriverError(f"{path}: has no GNU build-id, so it could never be told from stock")
        modules.append(BuiltModule(name, path, identity, sha256_of(path)))
    if not any(module.name == "nvidia" for module in modules):
        raise DriverError(f"{patched.root}/kernel-open: no nvidia.ko came out of the build")
    build = Build(patched, kernel, tuple(modules))
    build.save()
    return build
