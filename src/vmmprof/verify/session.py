# SPDX-License-Identifier: MIT
"""What all checks share: a CUDA device, a resource-manager client for it, a report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from vmmprof.drivers.cuda.api import CudaError
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.errors import NothingMeasuredError, PartialError, VmmprofError
from vmmprof.kernel.rm import (
    Bar1Mapping,
    Bar1Region,
    Memory,
    Physicality,
    PhysicalLayout,
    RmClient,
    RmError,
    RmStatus,
    StaticBar1,
    Transport,
    allocate,
    allocation_params,
    bar1_region,
    find_gpu,
    framebuffer_address,
    gpu_name,
    granted_compression,
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


@dataclass(frozen=True)
class Shared:
    """The same memory as CUDA has it and as our client has it."""

    allocation: Allocation
    memory: Memory
    compressible: bool
    """Whether compression was granted, by the word of whoever allocated it."""


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
    clock_ns: Callable[[], int] = time.monotonic_ns
    """CLOCK_MONOTONIC; a test puts the simulated card's clock in its place."""

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
    def shared(self, placement: Placement, size_bytes: int) -> Iterator[Shared]:
        """Memory that both CUDA and our client hold; all of it given back on leaving.

        CannotAllocateError when it cannot be had; other errors are those of sharing it.
        """
        own = self._from_rm if placement.noncontiguous else self._from_cuda
        with own(placement, size_bytes) as shared:
            yield shared

    @contextmanager
    def _from_cuda(self, placement: Placement, size_bytes: int) -> Iterator[Shared]:
        with ExitStack() as undo:
            allocation = self.create(placement, size_bytes)
            undo.callback(allocation.release)
            allocation.map()
            undo.callback(allocation.unmap)
            fd = undo.enter_context(exported(self.gpu, allocation))
            memory = undo.enter_context(import_memory(self.client, fd))
            yield Shared(allocation, memory, allocation.compressible())

    @contextmanager
    def _from_rm(self, placement: Placement, size_bytes: int) -> Iterator[Shared]:
        """Non-contiguous memory is the resource manager's to give; CUDA imports it."""
        params = allocation_params(
            size_bytes,
            compressible=placement.compressible,
            physicality=Physicality.NONCONTIGUOUS,
            domain=placement.domain,
        )
        with ExitStack() as undo:
            try:
                memory = undo.enter_context(allocate(self.client, params))
            except RmError as error:
                raise CannotAllocateError(str(error)) from error
            fd = undo.enter_context(memory.exported())
            allocation = self.gpu.import_file(fd, size_bytes)
            undo.callback(allocation.release)
            allocation.map()
            undo.callback(allocation.unmap)
            yield Shared(allocation, memory, granted_compression(params))

    def machine_facts(self) -> dict[str, object]:
        """Where the checks run, JSON-ready."""
        return {
            "GPU": gpu_name(self.client),
            "device file": self.client.gpu.path,
            "PCI address": self.gpu.pci_address,
            "driver": self.client.driver_version(),
            "BAR1": f"{self.bar1.size_bytes >> 20} MiB at 0x{self.bar1.base:X}",
            "static BAR1": f"{self.static.size_bytes >> 20} MiB from offset "
            f"0x{self.static.start_offset:X}",
            "root": "yes" if os.geteuid() == 0 else "no",
        }

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
    session: Session, placements: Sequence[str] | None, sizes: Sequence[int], *, sizes_asked: bool
) -> list[Wish]:
    """What to check: plain memory, and the placements named or all that there are.

    Contiguous or not is CUDA's choice, so memory that is surely not, which is
    what makes the update loop go page by page, is had from the resource manager.
    """
    asked = placements is not None
    chosen = [PLAIN]
    for text in placements or _default_placements(session.gpu):
        try:
            chosen += parse_placement(text, session.gpu.domain_count)
        except PartialError as error:
            session.report.cannot(text, "allocate", str(error), asked=True)
    return [
        Wish(Condition(placement, size), (asked and placement != PLAIN) or sizes_asked)
        for placement in dict.fromkeys(chosen)
        for size in sizes
    ]


def _default_placements(gpu: Gpu) -> list[str]:
    texts = ["compressible", "noncontiguous", "compressible+noncontiguous"]
    if (gpu.domain_count or 1) > 1:
        texts.append("domain:all")
    return texts


def placements_of(wishes: Sequence[Wish]) -> list[Placement]:
    """Each placement once, in order."""
    return list(dict.fromkeys(wish.condition.placement for wish in wishes))


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
