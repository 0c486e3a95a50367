# SPDX-License-Identifier: MIT
"""The conditions that stand beside a recording's numbers, in the user's words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vmmprof.recording.reader import Recording
from vmmprof.recording.schema import SUFFIX
from vmmprof.report.numbers import percent

MODEL = "MODEL"
_COMPLETE = "complete"


@dataclass(frozen=True)
class Context:
    """What a reader must know beside the numbers.

    ``machine`` is one line; ``notes`` are complete sentences or clauses, one a
    line, about what was rounded, could not be measured or ended early.
    """

    name: str
    is_model: bool
    driver: str
    machine: str
    command: str
    headline: str
    notes: tuple[str, ...]

    @property
    def headline_words(self) -> str:
        """What the headline time is, such as ``sum of all calls``."""
        words = {"total": "sum of all calls", "latency": "from the intended start"}
        return words.get(self.headline, f"{self.headline} alone")

    @property
    def title(self) -> str:
        """The recording's name, with MODEL where nothing was measured."""
        if self.is_model:
            return f"{MODEL} {self.driver}: {self.name} (computed, not measured)"
        return self.name


def context(recording: Recording) -> Context:
    """The context of a loaded recording; facts that it lacks are left out or unknown."""
    environment = recording.environment
    return Context(
        name=recording.path.name.removesuffix(SUFFIX),
        is_model=recording.is_model,
        driver=str(environment.get("driver", "unknown driver")),
        machine=machine_line(environment),
        command=recording.command,
        headline=recording.headline,
        notes=tuple(_notes(environment)),
    )


def machine_line(environment: Mapping[str, Any]) -> str:
    """One line such as ``NVIDIA H200, driver 580.159.04, kernel 6.18.0``."""
    if environment.get("is_model"):
        return f"{MODEL} {environment.get('driver')}, no GPU"
    gpu = _section(environment, "gpu")
    module = _section(environment, "nvidia_module")
    version = _known(module.get("version")) or _known(gpu.get("driver_version"))
    kernel = _known(_section(environment, "machine").get("kernel"))
    parts = [
        _known(gpu.get("name")) or "unknown GPU",
        f"driver {version or 'unknown'}",
        f"kernel {kernel or 'unknown'}",
    ]
    return ", ".join(parts)


def _known(reading: object) -> str | None:
    """A reading as text; None where there is none or it says why it is unknown."""
    text = "" if reading is None else str(reading)
    return None if not text or text.startswith("unknown") else text


def half_width_words(relative: float) -> str:
    """What --until-ci was left with, from half the interval's width over the median."""
    if math.isinf(relative):
        return "too few samples for an interval"
    return f"the interval is within {percent(relative)} of the median"


def _section(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = environment.get(name)
    return section if isinstance(section, Mapping) else {}


def _notes(environment: Mapping[str, Any]) -> list[str]:
    notes = [str(note) for note in environment.get("plan_notes") or ()]
    missing: dict[str, list[str]] = {}
    for what, why in _section(environment, "missing").items():
        missing.setdefault(str(why), []).append(what)
    notes += [f"not measured: {', '.join(what)}: {why}" for why, what in missing.items()]
    notes += [
        f"measured twice: {what}: {why}"
        for what, why in _section(environment, "remeasured").items()
    ]
    notes += [
        f"not converged: {what}: {half_width_words(width)}"
        for what, width in _section(environment, "not_converged").items()
    ]
    outcome = environment.get("outcome")
    if outcome not in (None, _COMPLETE):
        notes.append(f"the run did not complete: {outcome}")
    return notes
