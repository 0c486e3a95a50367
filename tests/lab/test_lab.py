# SPDX-License-Identifier: MIT
"""The kernel lab itself, and what is tested inside of it (tests/lab/inside)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import skip_unless

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "tools/kernel-lab"
INSIDE = Path(__file__).parent / "inside"
# Minutes on an idle machine; this ends a guest that hangs on a loaded one.
GIVE_UP_S = "3600"
HINT = "tools/kernel-lab setup --packages installs and fetches it"


def _lab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(LAB), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        cwd=REPOSITORY,
    )


def _headers(kernel: str) -> str | None:
    """Header folder of a kernel that is set up."""
    for line in _lab("show").stdout.splitlines():
        words = line.split("\t")
        if words[0] == kernel and len(words) == 3:
            return words[2]
    return None


def _require_lab(kernel: str) -> str:
    for program in ("qemu-system-x86_64", "busybox", "make", "gcc"):
        skip_unless("lab", shutil.which(program) is not None, f"{program} is missing; {HINT}")
    bcc = Path("/usr/lib/python3/dist-packages/bcc").is_dir()
    skip_unless("lab", bcc, f"python3-bpfcc is missing; {HINT}")
    headers = _headers(kernel)
    skip_unless("lab", headers is not None, f"kernel {kernel} is not set up; {HINT}")
    assert headers is not None
    return headers


def _modules(kernel: str, folder: Path, driver_src: str = "") -> Path:
    """Build the lab's modules for a kernel, with a driver tree's own object if one is named."""
    built = subprocess.run(
        [
            "make",
            "-j2",
            "-C",
            str(REPOSITORY / "kernel_module_tests/lab"),
            f"KERNEL_BUILD={_require_lab(kernel)}",
            f"OUT={folder}",
            f"DRIVER_SRC={driver_src}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def _run_inside(
    kernel: str,
    modules: Path,
    checks: list[str],
    *,
    machine: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
) -> None:
    done = _lab(
        "run",
        *("--kernel", kernel, "--timeout", GIVE_UP_S),
        *("--env", "LAB_MODULES", "--env", "PYTHONPATH"),
        *machine,
        "--",
        sys.executable,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=check_*.py"),
        *only,
        *(str(INSIDE / check) for check in checks),
        LAB_MODULES=str(modules),
        PYTHONPATH=str(REPOSITORY / "src"),
    )
    print(done.stdout[-8000:], done.stderr[-4000:])
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("status", "options", "command"),
    [
        (0, [], "exit 0"),
        (7, [], "exit 7"),
        (120, ["--boot-timeout", "0.2"], "exit 0"),
        (121, [], "echo c > /proc/sysrq-trigger"),
        (122, ["--timeout", "1"], "sleep 1000"),
        (123, [], "/run/kernel-lab/busybox poweroff -f"),
    ],
    ids=["success", "failure", "never-booted", "panic", "hang", "no-status"],
)
def test_endings_are_told_apart(status: int, options: list[str], command: str) -> None:
    _require_lab("bookworm")
    done = _lab("run", *options, "--", "sh", "-c", command)
    assert done.returncode == status, done.stderr


def test_output_passes_and_writes_do_not() -> None:
    _require_lab("bookworm")
    marker = REPOSITORY / "tests/lab/written-inside"
    done = _lab("run", "--", "sh", "-c", f"echo out; echo err >&2; touch {marker}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert not marker.exists()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _modules("bookworm", tmp_path_factory.mktemp("modules"))


@pytest.mark.parametrize("checks", ["counting", "faults", "program", "traced_rounds"])
def test_inside_debian_12(modules: Path, checks: str) -> None:
    _run_inside("bookworm", modules, [f"check_{checks}.py"])


def test_inside_a_newer_kernel(tmp_path_factory: pytest.TempPathFactory) -> None:
    modules = _modules("bookworm-backports", tmp_path_factory.mktemp("modules"))
    _run_inside(
        "bookworm-backports",
        modules,
        ["check_counting.py", "check_program.py"],
        only=("-k", "module-padless-stock or sampling_attributes or sampling_says"),
    )


def test_times_on_an_instruction_clock(modules: Path) -> None:
    _run_inside("bookworm", modules, ["check_times.py"], machine=("--count-instructions",))


@pytest.mark.parametrize(
    ("kernel", "only"),
    [
        ("bookworm", "real"),
        ("bookworm-backports", "check_real or real-stock or real-ab"),
    ],
    ids=["debian-12", "newer"],
)
def test_a_driver_s_own_object(
    tmp_path_factory: pytest.TempPathFactory, kernel: str, only: str
) -> None:
    driver_src = os.environ.get("DRIVER_SRC", "")
    skip_unless("tree", bool(driver_src), "DRIVER_SRC names no driver source tree")
    modules = _modules(kernel, tmp_path_factory.mktemp("modules"), driver_src)
    _run_inside(
        kernel,
        modules,
        ["check_real.py", "check_counting.py", "check_faults.py", "check_program.py"],
        only=("-k", only),
    )
