# SPDX-License-Identifier: MIT
"""``sweep --nvtx`` on the stub: a tool attached to the process sees every call as a range."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import stub_cuda
from vmmprof.drivers.cuda import _cycle
from vmmprof.errors import ExitCode
from vmmprof.operations import POOL_CYCLE, VMM_CYCLE
from vmmprof.recording.reader import load

TOOL = Path(__file__).parent / "nvtx_injection.c"

pytestmark = pytest.mark.skipif(
    not _cycle.HAS_NVTX, reason="the core was built without NVTX's header (wheel nvidia-nvtx)"
)


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    include = stub_cuda.cuda_include()
    if not (include / "nvtx3" / "nvToolsExt.h").is_file():
        pytest.skip("no NVTX header to build the tool with: pip install 'nvidia-nvtx==13.4.*'")
    library = tmp_path_factory.mktemp("tool") / "libtool.so"
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Werror",
            f"-isystem{include}",
            str(TOOL),
            "-o",
            library,
        ],
        check=True,
    )
    return library


def sweep(tmp_path: Path, tool: Path, *words: str) -> subprocess.CompletedProcess[str]:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    variables = stub_cuda.env(stub_cuda.build(), ledger, domains=2)
    variables |= {"NVTX_INJECTION64_PATH": str(tool), "NVTX_TEST_LOG": str(tmp_path / "ranges")}
    command = [sys.executable, "-m", "vmmprof", "sweep", "--no-lock", "--pin", "none", "--quiet"]
    return subprocess.run(
        [*command, "--output", str(tmp_path / "out"), "--sizes", "2M", *words],
        check=False, env=variables, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(("words", "operation"), [((), VMM_CYCLE), (("--api", "pool"), POOL_CYCLE)])
def test_every_call_is_a_range_of_its_name(
    tmp_path: Path, tool: Path, words: tuple[str, ...], operation: object
) -> None:
    done = sweep(tmp_path, tool, "--driver", "cuda", "--nvtx", "--repeats", "5", *words)
    assert done.returncode == ExitCode.OK, done.stderr
    recording = load(str(tmp_path / "out"))
    cycle = [f"{name}." for name in recording.operation.api_names]
    assert recording.operation == operation
    ranges = (tmp_path / "ranges").read_text().split()
    assert ranges[: len(cycle)] == cycle
    assert sorted(ranges) == sorted(cycle * len(recording.samples))
    assert recording.environment["gpu"]["nvtx_ranges"] is True


def test_without_the_option_there_is_no_range(tmp_path: Path, tool: Path) -> None:
    done = sweep(tmp_path, tool, "--driver", "cuda", "--repeats", "5")
    assert done.returncode == ExitCode.OK, done.stderr
    assert not (tmp_path / "ranges").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--driver", "model:b300"), "--nvtx marks calls of the CUDA driver"),
        (("--driver", "cuda", "--processes", "2"), "leave --processes out"),
    ],
)
def test_where_it_marks_nothing_it_is_refused(
    tmp_path: Path, tool: Path, words: tuple[str, ...], message: str
) -> None:
    done = sweep(tmp_path, tool, "--nvtx", *words)
    assert done.returncode == ExitCode.USAGE
    assert message in done.stderr
