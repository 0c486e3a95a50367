# SPDX-License-Identifier: MIT
"""The resource manager's part of `doctor`: every question gets an answer, none raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from vmmprof.kernel.rm.client import RmClient, find_gpu
from vmmprof.kernel.rm.errors import RmError
from vmmprof.kernel.rm.queries import (
    Bar1Region,
    Framebuffer,
    StaticBar1,
    bar1_region,
    framebuffer,
    gpu_name,
    localization_supported,
    static_bar1,
)
from vmmprof.kernel.rm.transport import Transport

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What was answered; ``value`` None means unknown, and ``reason`` says why."""

    value: T | None
    reason: str = ""


@dataclass(frozen=True)
class RmFacts:
    """What the resource manager says about one GPU."""

    device_path: Answer[str]
    gpu_name: Answer[str]
    driver_version: Answer[str]
    static_bar1: Answer[StaticBar1]
    localization: Answer[bool]
    """Whether the GPU has locality domains: yes, no or unknown."""
    framebuffer: Answer[Framebuffer]
    bar1: Answer[Bar1Region]


def gather(
    minor: int | None = None, pci_address: str | None = None, transport: Transport | None = None
) -> RmFacts:
    """Ask the resource manager about a GPU; needs no root and no CUDA, and never raises RmError."""
    try:
        gpu = find_gpu(minor, pci_address, transport)
        with RmClient(gpu, transport) as client:
            return RmFacts(
                device_path=Answer(gpu.path),
                gpu_name=_ask(lambda: gpu_name(client)),
                driver_version=_ask(client.driver_version),
                static_bar1=_ask(lambda: static_bar1(client)),
                localization=_ask_localization(client),
                framebuffer=_ask(lambda: framebuffer(client)),
                bar1=_ask(lambda: bar1_region(client)),
            )
    except RmError as error:
        reason = str(error)
        return RmFacts(
            device_path=Answer(None, reason),
            gpu_name=Answer(None, reason),
            driver_version=Answer(None, reason),
            static_bar1=Answer(None, reason),
            localization=Answer(None, reason),
            framebuffer=Answer(None, reason),
            bar1=Answer(None, reason),
        )


def _ask(question: Callable[[], T]) -> Answer[T]:
    try:
        return Answer(question())
    except RmError as error:
        return Answer(None, str(error))


def _ask_localization(client: RmClient) -> Answer[bool]:
    answer = _ask(lambda: localization_supported(client))
    if answer.value is None and not answer.reason:
        return Answer(None, "this driver does not know the question (580 and later do)")
    return Answer(answer.value, answer.reason)
