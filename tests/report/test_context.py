# SPDX-License-Identifier: MIT
"""The words that stand beside a recording's numbers."""

from __future__ import annotations

import math

import pytest

from vmmprof.report.context import half_width_words, machine_line
from vmmprof.report.numbers import percent

UNKNOWN = "unknown: No such file or directory"


@pytest.mark.parametrize(
    ("module", "nvml", "shown"),
    [
        ("580.159.04", "580.159.04", "driver 580.159.04"),
        (UNKNOWN, "580.159.04", "driver 580.159.04"),
        (UNKNOWN, None, "driver unknown"),
        (None, None, "driver unknown"),
    ],
)
def test_the_driver_is_the_first_that_is_known(
    module: str | None, nvml: str | None, shown: str
) -> None:
    environment = {
        "gpu": {"name": "NVIDIA H200", "driver_version": nvml},
        "nvidia_module": {"version": module},
        "machine": {"kernel": "6.18.0"},
    }
    assert machine_line(environment) == f"NVIDIA H200, {shown}, kernel 6.18.0"


@pytest.mark.parametrize(
    ("share", "text"), [(0.02, "2%"), (0.0001, "0.01%"), (0.12345, "12.3%"), (1.5, "150%")]
)
def test_percentages_keep_their_digits(share: float, text: str) -> None:
    assert percent(share) == text


def test_what_until_ci_was_left_with() -> None:
    assert half_width_words(0.004) == "the interval is within 0.4% of the median"
    assert half_width_words(math.inf) == "too few samples for an interval"
