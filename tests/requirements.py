# SPDX-License-Identifier: MIT
"""Skips that say why, and that VMMPROF_REQUIRE=gpu,lab,tree,browser turns into failures."""

from __future__ import annotations

import os

import pytest

KINDS = ("gpu", "lab", "tree", "browser")


def skip_unless(kind: str, available: bool, reason: str) -> None:
    """Skip the running test for ``reason`` unless ``available``; fail where it is required."""
    assert kind in KINDS
    if available:
        return
    if kind in os.environ.get("VMMPROF_REQUIRE", "").split(","):
        pytest.fail(f"VMMPROF_REQUIRE asks for {kind}: {reason}", pytrace=False)
    pytest.skip(reason)
