# SPDX-License-Identifier: MIT
"""fill.cu, fill.ptx and pattern.py are one function."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.verify.fill_ptx import PTX, SOURCE, generate
from vmmprof.verify.pattern import Pattern, pattern_words

HOST_MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
struct Dim { unsigned x; };
static Dim gridDim{3}, blockDim{4}, blockIdx, threadIdx;
#define __global__
#include "fill.cu"
int main(int, char **argv)
{
    std::vector<unsigned long long> words(strtoull(argv[1], nullptr, 0));
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
            vmmprof_fill(words.data(), words.size(), strtoull(argv[2], nullptr, 0),
                         strtoul(argv[3], nullptr, 0));
    fwrite(words.data(), 8, words.size(), stdout);
}
"""


@pytest.fixture(scope="module")
def host_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel's source run on the CPU, thread by thread."""
    folder = tmp_path_factory.mktemp("fill")
    source, program = folder / "main.cc", folder / "fill"
    source.write_text(HOST_MAIN)
    subprocess.run(
        ["g++", "-x", "c++", f"-I{SOURCE.parent}", str(source), "-o", str(program)], check=True
    )
    return program


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("pattern", Pattern)
@pytest.mark.parametrize("seed", [0, 0x7FFF_FFFF_FFFF_FFFF])
def test_the_kernel_writes_what_the_checks_expect(
    host_program: Path, pattern: Pattern, seed: int
) -> None:
    command = [str(host_program), "1003", str(seed), str(pattern.value)]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    written = np.frombuffer(output, np.uint64)
    expected = pattern_words(np.arange(1003, dtype=np.uint64), seed, pattern)
    assert (written == expected).all()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc to make the PTX again")
def test_the_ptx_is_made_from_the_source() -> None:
    assert generate("nvcc") == PTX.read_text()


def test_the_ptx_carries_the_constants_of_the_pattern() -> None:
    """Where there is no nvcc: a PTX of another kernel does not have these multipliers."""
    numbers = {
        int(number) & ((1 << 64) - 1) for number in re.findall(r"-?\d{15,}", PTX.read_text())
    }
    assert {0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB} <= numbers


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="there is no ptxas to assemble with")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_ptx_assembles(arch: str, tmp_path: Path) -> None:
    subprocess.run(
        ["ptxas", f"-arch={arch}", "-o", str(tmp_path / "fill.cubin"), str(PTX)], check=True
    )
