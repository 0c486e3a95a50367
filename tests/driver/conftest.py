# SPDX-License-Identifier: MIT
"""The bench and the driver program are not part of the package: put them on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.requirements import skip_unless

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "kernel_module_tests")]


@pytest.fixture(scope="session")
def driver_src() -> Path:
    """A stock driver source tree, named by DRIVER_SRC."""
    named = os.environ.get("DRIVER_SRC", "")
    skip_unless("tree", bool(named), "DRIVER_SRC names no driver source tree")
    return Path(named)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")
