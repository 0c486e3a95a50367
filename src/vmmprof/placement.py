# SPDX-License-Identifier: MIT
"""Where memory goes, and a condition to measure: a placement, a size, a card state, a level."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmmprof.errors import PartialError, UsageError
from vmmprof.sizes import format_size
from vmmprof.variant import STANDARD, Variant

_HINT = (
    "placements are device, domain:N, domain:all, compressible, rdma and noncontiguous, joined by +"
)


@dataclass(frozen=True, order=True)
class Placement:
    """Properties of an allocation on one device.

    ``domain`` is the locality-domain ordinal, or None for memory that is not
    localized. ``noncontiguous`` asks the resource manager for a non-contiguous
    memory descriptor, which CUDA cannot: only ``--driver rm`` takes it. The
    plain placement (all defaults) is the control of every run.
    """

    domain: int | None = None
    compressible: bool = False
    rdma: bool = False
    noncontiguous: bool = False

    @property
    def is_plain(self) -> bool:
        return self == PLAIN

    def __str__(self) -> str:
        parts = []
        if self.domain is not None:
            parts.append(f"domain:{self.domain}")
        if self.compressible:
            parts.append("compressible")
        if self.rdma:
            parts.append("rdma")
        if self.noncontiguous:
            parts.append("noncontiguous")
        return "+".join(parts) or "device"


PLAIN = Placement()


def parse_placement(text: str, domain_count: int | None) -> list[Placement]:
    """Placements named by one ``--placement`` argument, ``domain:all`` expanded.

    ``domain_count`` is the device's number of locality domains, None when the
    driver does not know the attribute. UsageError for a word that is no
    placement and for a domain that does not exist; PartialError when the
    driver cannot say whether it exists.
    """
    domains: list[int | None] = [None]
    compressible = rdma = noncontiguous = False
    for word in text.split("+"):
        if word == "device":
            continue
        if word == "compressible":
            compressible = True
        elif word == "rdma":
            rdma = True
        elif word == "noncontiguous":
            noncontiguous = True
        elif word.startswith("domain:"):
            if domains != [None]:
                raise UsageError(
                    f"placement {text!r} names two locality domains; memory is on one, so "
                    "give each a --placement of its own"
                )
            domains = _parse_domain(word, domain_count)
        else:
            raise UsageError(f"placement {word!r} in {text!r} is unknown; {_HINT}")
    return [Placement(domain, compressible, rdma, noncontiguous) for domain in domains]


def _parse_domain(word: str, domain_count: int | None) -> list[int | None]:
    which = word.removeprefix("domain:")
    if which != "all" and not which.isdecimal():
        raise UsageError(f"placement {word!r} is unknown; {_HINT}")
    if domain_count is None:
        raise PartialError(
            f"placement {word!r}: this driver does not know locality domains (CUDA 13.4 or "
            "later does); leave the placement out"
        )
    if domain_count == 0:
        raise UsageError(f"placement {word!r}: the device has no locality domains; leave it out")
    if which == "all":
        return list(range(domain_count))
    if int(which) >= domain_count:
        raise UsageError(
            f"placement {word!r}: the device has {domain_count} locality domain(s), "
            f"so N is at most {domain_count - 1}"
        )
    return [int(which)]


@dataclass(frozen=True, order=True)
class Level:
    """How many allocate at once: ``threads`` on each of ``devices`` in each of ``processes``."""

    processes: int = 1
    threads: int = 1
    devices: int = 1

    @property
    def workers(self) -> int:
        return self.processes * self.threads * self.devices

    @property
    def workers_a_device(self) -> int:
        return self.processes * self.threads

    def __str__(self) -> str:
        counts = (
            (self.processes, "processes"),
            (self.devices, "devices"),
            (self.threads, "threads"),
        )
        parts = [f"{n} {words}" for n, words in counts if n != 1]
        return "nobody" if self.workers == 0 else " x ".join(parts) or "1 thread"


ALONE = Level()
"""One thread: what a run without levels measures."""
NOBODY = Level(threads=0)
"""Nobody allocates: what a victim is measured against."""


@dataclass(frozen=True, order=True)
class Series:
    """Conditions of all sizes: one curve in a report."""

    placement: Placement
    scattered: bool = False
    level: Level = ALONE
    variant: Variant = STANDARD

    @property
    def control(self) -> Series:
        """What this series is compared with; itself when it is a control."""
        if self.placement != PLAIN:
            return replace(self, placement=PLAIN)
        # A pool is another operation, never measured beside the usual cycle.
        return self if self.variant.pool else replace(self, variant=STANDARD)

    @property
    def is_control(self) -> bool:
        return self.control == self

    @property
    def place(self) -> str:
        """The placement, variant and card state, such as ``domain:0, busy, card scattered``."""
        name = "device (plain, the control)" if self.is_control else str(self.placement)
        if self.variant != STANDARD:
            name = f"{name}, {self.variant}"
        return f"{name}, card scattered" if self.scattered else name


@dataclass(frozen=True, order=True)
class Condition:
    """One thing to measure: ``size_bytes`` of memory at ``placement``.

    ``scattered`` is the state of the card while it is measured: every other
    2 MiB piece of free memory is held, so that physical memory is scattered.
    ``level`` says how many allocate at once, ``variant`` how the cycle differs
    from the usual one.
    """

    placement: Placement
    size_bytes: int
    scattered: bool = False
    level: Level = ALONE
    variant: Variant = STANDARD

    @property
    def series(self) -> Series:
        """What conditions that differ in size alone have in common."""
        return Series(self.placement, self.scattered, self.level, self.variant)

    @property
    def control(self) -> Condition:
        """What this condition is compared with, at the same size, card state and level.

        Plain memory in the same variant; for plain memory of a variant, plain
        memory in the usual cycle.
        """
        control = self.series.control
        return replace(self, placement=control.placement, variant=control.variant)

    def __str__(self) -> str:
        state = " scattered" if self.scattered else ""
        level = "" if self.level == ALONE else f", {self.level}"
        variant = "" if self.variant == STANDARD else f", {self.variant}"
        return f"{self.placement} {format_size(self.size_bytes)}{state}{level}{variant}"
