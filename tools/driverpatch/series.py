# SPDX-License-Identifier: MIT
"""The patch series and the classes of bodies that it is for (patches/series.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from driverpatch.errors import DriverError
from driverpatch.tree import UpdatePath

PATCHES_DIR = Path(__file__).parent.parent.parent / "patches"
NO_ARM = "stock"


@dataclass(frozen=True)
class Patch:
    id: str
    file: Path
    title: str


@dataclass(frozen=True)
class UpdateClass:
    """A body of the update function; patched: arm to the digest it must give."""

    id: str
    digest: str
    tags: tuple[str, ...]
    difference: str
    patchable: bool
    patched: Mapping[str, str]
    verified_on: str
    """The tag on which check, compile and bench were run; '' for a body that is not patched."""


@dataclass(frozen=True)
class ReferencesClass:
    """A pair of reference counting bodies; patched: the increase after patch C."""

    id: str
    increase: str
    decrease: str
    tags: tuple[str, ...]
    patched: str


@dataclass(frozen=True)
class Unaffected:
    """Releases without the loop, for the support table."""

    tags: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Known:
    """What a tree was recognised as."""

    update: UpdateClass
    arm: str
    """'stock' or an arm of the series."""
    references: ReferencesClass | None


@dataclass(frozen=True)
class Series:
    patches: tuple[Patch, ...]
    arms: Mapping[str, tuple[str, ...]]
    updates: tuple[UpdateClass, ...]
    references: tuple[ReferencesClass, ...]
    unaffected: tuple[Unaffected, ...] = ()

    @classmethod
    def load(cls, directory: Path = PATCHES_DIR) -> Series:
        """Read series.toml. Raises DriverError when it cannot be read."""
        table = _read_toml(directory / "series.toml")
        return cls(
            patches=tuple(
                Patch(entry["id"], directory / entry["file"], entry["title"])
                for entry in table["patch"]
            ),
            arms={arm: tuple(ids) for arm, ids in table["arms"].items()},
            updates=tuple(
                UpdateClass(
                    id=entry["id"],
                    digest=entry["digest"],
                    tags=tuple(entry["tags"]),
                    difference=entry["difference"],
                    patchable=entry["patchable"],
                    patched=entry.get("patched", {}),
                    verified_on=entry.get("verified_on", ""),
                )
                for entry in table["update"]
            ),
            references=tuple(
                ReferencesClass(
                    id=entry["id"],
                    increase=entry["increase"],
                    decrease=entry["decrease"],
                    tags=tuple(entry["tags"]),
                    patched=entry["patched"],
                )
                for entry in table["references"]
            ),
            unaffected=tuple(
                Unaffected(tuple(entry["tags"]), entry["reason"]) for entry in table["unaffected"]
            ),
        )

    def patches_of(self, arm: str) -> list[Patch]:
        """The patches of an arm, in the order in which they apply."""
        by_id = {patch.id: patch for patch in self.patches}
        return [by_id[id_] for id_ in self.arms[arm]]

    def recognise(self, path: UpdatePath) -> Known | None:
        """Which class and arm the functions' text is; None when it is none of them."""
        references, once = self._references_of(path)
        for known in self.updates:
            for arm, digest in {NO_ARM: known.digest, **known.patched}.items():
                if path.update.digest == digest:
                    # There is no arm of C alone; with A or B alone it is unknown too.
                    if once and arm != "ab":
                        return None
                    return Known(known, "abc" if once else arm, references)
        return None

    def _references_of(self, path: UpdatePath) -> tuple[ReferencesClass | None, bool]:
        """The class of the reference counting, and whether patch C is in it."""
        if path.increase is None or path.decrease is None:
            return None, False
        for known in self.references:
            if path.decrease.digest == known.decrease:
                if path.increase.digest == known.increase:
                    return known, False
                if path.increase.digest == known.patched:
                    return known, True
        return None, False

    def expected_digests(self, known: Known, arm: str) -> tuple[str, str]:
        """Digests of update and increase functions after applying `arm` to a stock tree."""
        if known.references is None:
            raise DriverError(f"class {known.update.id} has no known reference counting")
        counting = known.references.patched if arm == "abc" else known.references.increase
        return known.update.patched["ab" if arm == "abc" else arm], counting


def _toml() -> Any:
    """The standard library's TOML module, or its older twin for Python 3.10."""
    for name in ("tomllib", "tomli"):
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise DriverError(
        "this Python has no tomllib; use Python 3.11 or later, or install python3-tomli"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    toml = _toml()
    try:
        return dict(toml.loads(path.read_text(encoding="utf-8")))
    except (OSError, toml.TOMLDecodeError) as error:
        raise DriverError(f"{path}: cannot be read as TOML: {error}") from error
