# SPDX-License-Identifier: MIT
"""The models' parameters: few, named, each with what it was fitted on.

They are package data, one JSON file a model, written by
``python -m vmmprof.drivers.model.fit``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files

DATA = files("vmmprof.drivers.model") / "data"


@dataclass(frozen=True)
class Parameter:
    """One number of a model.

    size_mib: for a knot of a curve over size, the size it belongs to.
    """

    name: str
    value: float
    unit: str
    fitted_on: str
    size_mib: int | None = None


@dataclass(frozen=True)
class Curve:
    """Straight lines between knots ``(size_mib, us)``, ascending; unknown beyond the ends."""

    knots: tuple[tuple[float, float], ...]

    def at(self, size_mib: float) -> float | None:
        """us at a size, None outside the knots: there no source says anything."""
        if not self.knots[0][0] <= size_mib <= self.knots[-1][0]:
            return None
        below = max(knot for knot in self.knots if knot[0] <= size_mib)
        above = min(knot for knot in self.knots if knot[0] >= size_mib)
        if above[0] == below[0]:
            return below[1]
        share = (size_mib - below[0]) / (above[0] - below[0])
        return below[1] + share * (above[1] - below[1])


@dataclass(frozen=True)
class ParameterSet:
    """All parameters of one model."""

    parameters: tuple[Parameter, ...]

    def value(self, name: str) -> float:
        """The parameter that is one number."""
        (found,) = (p for p in self.parameters if p.name == name and p.size_mib is None)
        return found.value

    def curve(self, name: str) -> Curve:
        """The parameter that is a curve over size."""
        knots = [(p.size_mib, p.value) for p in self.parameters if p.name == name and p.size_mib]
        return Curve(tuple(sorted(knots)))

    def to_json(self) -> str:
        """As the package stores it."""
        return json.dumps([asdict(p) for p in self.parameters], indent=1) + "\n"


def load(model: str) -> ParameterSet:
    """The stored parameters of ``b300``, ``b200`` or ``h200``."""
    entries = json.loads((DATA / f"{model}.json").read_text(encoding="utf-8"))
    return ParameterSet(tuple(Parameter(**entry) for entry in entries))
