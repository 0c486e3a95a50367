# SPDX-License-Identifier: MIT
"""The driver's mapping path as a model: virtual time, deterministic, no GPU.

pages (pma) -> how often the driver maps and synchronises (update_loop) ->
microseconds (costs, with the parameters of gpus) -> a driver (driver).
docs/models.md says what each model knows, from where, and what it does not.
"""

from __future__ import annotations

from vmmprof.drivers.model.driver import ModelDriver
from vmmprof.drivers.model.gpus import GPUS
from vmmprof.errors import UsageError

__all__ = ["GPUS", "ModelDriver", "make"]

_PREFIX = "model:"


def make(name: str, patch: str = "none") -> ModelDriver:
    """The model called ``model:b300``, ``model:b200`` or ``model:h200``.

    patch: none, a, b or ab, as in ``--patch``.
    """
    gpu = name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX) or gpu not in GPUS:
        known = ", ".join(_PREFIX + each for each in GPUS)
        raise UsageError(f"model {name!r} is unknown; the models are {known}")
    return ModelDriver(GPUS[gpu](), patch)
