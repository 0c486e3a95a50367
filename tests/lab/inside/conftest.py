# SPDX-License-Identifier: MIT
"""Inside the lab: the probe module is loaded throughout, and the kernel must stay well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .mock import inserted, kernel_log

BAD = ("BUG:", "WARNING:", "Oops", "general protection", "refcount", "RCU stall")


@pytest.fixture(scope="session", autouse=True)
def probe_module() -> Iterator[None]:
    with inserted("vmmprof_probe"):
        yield


@pytest.fixture(scope="module", autouse=True)
def healthy_kernel() -> Iterator[None]:
    before = len(kernel_log())
    yield
    news = kernel_log()[before:]
    assert not [line for line in news.splitlines() if any(word in line for word in BAD)]
