# SPDX-License-Identifier: MIT
"""From ``--driver`` to a driver: auto takes CUDA where a device can be used, else a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmmprof.errors import UsageError, VmmprofError

if TYPE_CHECKING:
    from vmmprof.drivers.protocol import Driver

MODELS = ("model:b300", "model:b200", "model:h200")
CHOICES = ("auto", "cuda", "rm", *MODELS)
FALLBACK_MODEL = "model:b300"
PATCHES = ("none", "a", "b", "ab")


@dataclass(frozen=True)
class Selection:
    """A driver, and why it is not the one that was hoped for (None when it is)."""

    driver: Driver
    fallback_reason: str | None = None


def select(name: str, device: int, patch: str) -> Selection:
    """The driver called ``name``; ``patch`` is the modelled driver patch, models only."""
    if name not in CHOICES:
        raise UsageError(f"driver {name!r} is unknown; one of {', '.join(CHOICES)}")
    if patch != "none" and not name.startswith("model:"):
        raise UsageError(
            f"--patch {patch} changes a model; name one with --driver, for example "
            f"{FALLBACK_MODEL}, or load the patched driver and leave --patch out"
        )
    if name.startswith("model:"):
        return Selection(_model(name, device, patch))
    if name == "rm":
        from vmmprof.drivers.rm import RmDriver

        return Selection(RmDriver(device))
    from vmmprof.drivers.cuda.driver import CudaDriver

    if name == "cuda":
        return Selection(CudaDriver(device))
    try:
        return Selection(CudaDriver(device))
    except UsageError:
        raise
    except VmmprofError as error:
        return Selection(_model(FALLBACK_MODEL, device, "none"), str(error))


def _model(name: str, device: int, patch: str) -> Driver:
    from vmmprof.drivers.model import make

    if device != 0:
        raise UsageError(f"device {device}: a model has one device, 0")
    return make(name, patch)
