# SPDX-License-Identifier: MIT
"""Argument types that several commands share; a bad value is a UsageError of one line."""

from __future__ import annotations

import re
from collections.abc import Callable

from vmmprof.errors import UsageError

MAX_WORKERS = 1024
TRACE_METHODS = ("auto", "kprobe", "module", "sampling")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def whole_number(name: str, least: int, most: int = 10_000_000) -> Callable[[str], int]:
    """An argparse type: a whole number between ``least`` and ``most``."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise UsageError(f"{name} {text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def duration_s(text: str) -> float:
    """``90``, ``90s``, ``10m`` or ``1h`` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--max-time {text!r} is not a time such as 90, 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def percentage_of(name: str) -> Callable[[str], float]:
    """An argparse type: ``2%`` as 0.02."""

    def parse(text: str) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
        if match is None or not 0 < float(match[1]) < 100:
            raise UsageError(f"{name} {text!r} is not a percentage such as 2%")
        return float(match[1]) / 100

    return parse


percentage = percentage_of("--until-ci")


def counts(name: str) -> Callable[[str], tuple[int, ...]]:
    """An argparse type: ascending whole numbers from 1 on, such as ``1,2,4,8``."""
    one = whole_number(name, 1, MAX_WORKERS)

    def parse(text: str) -> tuple[int, ...]:
        return tuple(sorted({one(part.strip()) for part in text.split(",")}))

    return parse


def device_set(text: str) -> tuple[int, ...]:
    """``0,1`` as (0, 1) and ``all`` as ()."""
    if text == "all":
        return ()
    one = whole_number("--devices", 0, 4095)
    devices = [one(part.strip()) for part in text.split(",")]
    if len(set(devices)) < len(devices):
        raise UsageError(f"--devices {text!r} names a device twice")
    return tuple(devices)


def rate_of(name: str, what: str) -> Callable[[str], float]:
    """An argparse type: ``1000`` or ``0.5`` of ``what`` a second."""

    def parse(text: str) -> float:
        if re.fullmatch(r"\d+(?:\.\d+)?", text) is None or not 1e-3 <= float(text) <= 1e7:
            raise UsageError(
                f"{name} {text!r} is not a number of {what} a second from 0.001 to 10000000"
            )
        return float(text)

    return parse
