# SPDX-License-Identifier: MIT
"""What all checks share: a CUDA device, a resource-manager client for it, a report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from vmmprof.drivers.cuda.api import CudaError
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.errors import NothingMeasuredError, UsageError, VmmprofError
from vmmprof.kernel.rm import (
    Bar1Mapping,
    Bar1Region,
    Memory,
    PhysicalLayout,
    RmClient,
    RmError,
    RmStatus,
    StaticBar1,
    Transport,
    bar1_region,
    find_gpu,
    framebuffer_address,
    import_memory,
    layout_from_bus_addresses,
    lies_in_static_bar1,
    static_bar1,
)
from vmmprof.placement import PLAIN, Condition, Placement, parse_placement
from vmmprof.verify.gpu import Allocation, Gpu, exported
from vmmprof.verify.outcome import Report

# A GPU may be in use to this extent while nothing of note runs on it.
RESERVE_BYTES = 512 << 20


class CannotAllocateError(VmmprofError):
    """The memory to be checked cannot be had; nothing was checked with it."""


@dataclass(frozen=True)
class Wish:
    """A condition to check; ``asked`` when the user named it rather than the default set."""

    condition: Condition
    asked: bool


@dataclass
class Session:
    """One run of a verify command on one GPU."""

    gpu: Gpu
    client: RmClient
    bar1: Bar1Region
    static: StaticBar1
    report: Report
    words_per_page: int = 512
    random: np.random.Generator = field(default_factory=np.random.default_rng)

    def shows(self, mapping: Bar1Mapping) -> bool:
        """Whether the mapping lies in static BAR1."""
        return lies_in_static_bar1(mapping.bus_address, self.bar1, self.static)

    def framebuffer_address(self, mapping: Bar1Mapping) -> int:
        return framebuffer_address(mapping.bus_address, self.bar1, self.static)

    def create(self, placement: Placement, size_bytes: int) -> Allocation:
        """Create memory; CannotAllocateError when it cannot be had."""
        try:
            return self.gpu.create(placement, size_bytes)
        except (CudaError, PlacementUnavailableError) as error:
            raise CannotAllocateError(str(error)) from error

    @contextmanager
    def mapped(self, placement: Placement, size_bytes: int) -> Iterator[Allocation]:
        """Memory that CUDA can write; unmapped and released on leaving."""
        allocation = self.create(placement, size_bytes)
        with ExitStack() as undo:
            undo.callback(allocation.release)
            allocation.map()
            undo.callback(allocation.unmap)
            yield allocation

    def machine_facts(self) -> dict[str, object]:
        """Where the checks run, JSON-ready."""
        return {
            "device file": self.client.gpu.path,
            "PCI address": self.gpu.pci_address,
            "driver": self.client.driver_version(),
            "BAR1": f"{self.bar1.size_bytes >> 20} MiB at 0x{self.bar1.base:X}",
            "static BAR1": f"{self.static.size_bytes >> 20} MiB from offset "
            f"0x{self.static.start_offset:X}",
            "root": "yes" if os.geteuid() == 0 else "no",
        }

    @contextmanager
    def imported(self, allocation: Allocation) -> Iterator[Memory]:
        """The CUDA allocation as a memory object of our own client."""
        with exported(self.gpu, allocation) as fd, import_memory(self.client, fd) as memory:
            yield memory

    def layout(self, memory: Memory, whole: Bar1Mapping) -> tuple[PhysicalLayout, str]:
        """Physical pages and where they are known from: the RM as root, bus addresses else."""
        try:
            return memory.physical_layout(), "resource manager"
        except RmError as error:
            if error.status != RmStatus.NV_ERR_INSUFFICIENT_PERMISSIONS:
                raise
        layout = layout_from_bus_addresses(memory, whole, self.bar1, self.static)
        return layout, "bus addresses (not root)"


@contextmanager
def opened(
    gpu: Gpu, report: Report, *, words_per_page: int, transport: Transport | None = None
) -> Iterator[Session]:
    """A session on the GPU. NothingMeasuredError where static BAR1 is off or out of reach."""
    try:
        node = find_gpu(pci_address=gpu.pci_address, transport=transport)
        client = RmClient(node, transport)
    except RmError as error:
        raise NothingMeasuredError(str(error)) from error
    with client:
        static = static_bar1(client)
        if not static.enabled:
            raise NothingMeasuredError(
                f"static BAR1 is off on {node.path}: there is nothing to read back (BAR1 must be "
                "larger than the memory of the card; see docs/verify.md)"
            )
        if not gpu.export_supported:
            raise NothingMeasuredError(
                "this device cannot export memory as a POSIX file descriptor, by which it is "
                "handed to the resource manager"
            )
        yield Session(gpu, client, bar1_region(client), static, report, words_per_page)


def wishes(
    gpu: Gpu, placements: Sequence[str] | None, sizes: Sequence[int], *, sizes_asked: bool
) -> list[Wish]:
    """What to check: the placements named, or plain, compressible and every domain."""
    asked = placements is not None
    chosen: list[Placement] = []
    for text in placements or _default_placements(gpu):
        for placement in parse_placement(text, gpu.domain_count):
            if placement.noncontiguous:
                raise UsageError(
                    f"placement {placement}: CUDA cannot ask for non-contiguous memory"
                )
            if placement not in chosen:
                chosen.append(placement)
    if PLAIN not in chosen:
        chosen.insert(0, PLAIN)
    return [
        Wish(Condition(placement, size), (asked and placement != PLAIN) or sizes_asked)
        for placement in chosen
        for size in sizes
    ]


def placements_of(wishes: Sequence[Wish]) -> list[Placement]:
    """Each placement once, in order."""
    return list(dict.fromkeys(wish.condition.placement for wish in wishes))


def _default_placements(gpu: Gpu) -> list[str]:
    texts = ["device", "compressible"]
    if (gpu.domain_count or 1) > 1:
        texts.append("domain:all")
    return texts


def waive_missing_domains(session: Session, placements: Sequence[str] | None) -> None:
    """Say what the default set would hold on another device."""
    if placements is None and (session.gpu.domain_count or 1) < 2:
        reason = (
            "this driver does not know locality domains"
            if session.gpu.domain_count is None
            else f"the device has {session.gpu.domain_count} locality domain"
        )
        session.report.cannot("domain:all", "localized memory", reason, asked=False)


def unavailable(gpu: Gpu, wish: Wish) -> str | None:
    """Why the condition cannot be tested here, or None."""
    condition = wish.condition
    if condition.placement.compressible and not gpu.compression_supported:
        return "the device reports no support for compressible memory"
    free_bytes = gpu.free_bytes()
    if condition.size_bytes > free_bytes - RESERVE_BYTES:
        return (
            f"{free_bytes >> 20} MiB of the card are free, and {RESERVE_BYTES >> 20} MiB of them "
            "are left alone"
        )
    return None
