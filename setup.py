# SPDX-License-Identifier: MIT
"""Builds the timing core; everything else about the package is in pyproject.toml."""

import importlib.util
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup


def cuda_include() -> str:
    """Folder of the pinned cuda.h, from the nvidia-cuda-runtime wheel of the build environment."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else ():
        include = Path(root) / "cu13" / "include"
        if (include / "cuda.h").is_file():
            return str(include)
    raise SystemExit(
        "cuda.h was not found beside the nvidia-cuda-runtime 13.4 wheel; "
        "install vmmprof with pip so that its build requirements are there"
    )


core = "src/vmmprof/drivers/cuda"
HEADERS = ("cycle_core", "burst", "victim", "nvtx")
setup(
    ext_modules=cythonize(
        [
            Extension(
                "vmmprof.drivers.cuda._cycle",
                [f"{core}/_cycle.pyx"],
                include_dirs=[core, cuda_include(), np.get_include()],
                depends=[f"{core}/{name}.hpp" for name in HEADERS],
                language="c++",
                extra_compile_args=["-std=c++17", "-O2", "-Wall", "-pthread"],
            )
        ]
    )
)
