# SPDX-License-Identifier: MIT
"""A CUDA device on the simulated card, as verify/gpu.py wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from tests.simulated.card import PAGE, PAGE_WORDS, Backing, Card, Fault
from tests.simulated.rm import PCI_ADDRESS, SimulatedRm
from vmmprof.drivers.protocol import PlacementUnavailableError
from vmmprof.placement import Placement
from vmmprof.verify.pattern import Pattern, pattern_words


class SimulatedAllocation:
    def __init__(self, gpu: SimulatedGpu, backing: Backing, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.backing = backing
        self._gpu = gpu
        self._card = gpu.card

    def compressible(self) -> bool:
        return self.backing.compressible

    def map(self) -> None:
        self._gpu.mapped += 1

    def unmap(self) -> None:
        self._gpu.mapped -= 1

    def release(self) -> None:
        self._gpu.rm._drop_reference(self.backing, decrement=True)

    def locality_domain(self) -> int | None:
        domain = self.backing.domain
        if domain is not None and self._card.has(Fault.WRONG_DOMAIN):
            return 1 - domain
        return domain

    def export(self) -> int:
        return self._gpu.rm.export_backing(self.backing)

    def poison(self, word: int) -> None:
        for page in self.backing.pages:
            self._card.write(page, word * 0x1_0000_0001)

    def fill(self, pattern: Pattern, seed: int) -> None:
        for number, page in enumerate(self.backing.pages):
            first = number * PAGE_WORDS
            indices = np.arange(first, first + PAGE_WORDS, dtype=np.uint64)
            self._card.write(page, pattern_words(indices, seed, pattern))
        if self._card.has(Fault.LOST_WRITE):
            self._card.memory[self.backing.pages[0]][12345] ^= np.uint64(1)

    def put(self, offset: int, value: int) -> None:
        page, within = divmod(offset, PAGE)
        data = self._card.bytes_of(self.backing.pages[page])
        data[within : within + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)

    def read(self, offset: int, length: int) -> npt.NDArray[np.uint64]:
        first = offset // PAGE
        pages = self.backing.pages[first : first + length // PAGE]
        return np.concatenate([self._card.memory[page] for page in pages])


class SimulatedGpu:
    """``others_text`` is who else uses it; ``mapped`` counts live CUDA mappings."""

    pci_address = PCI_ADDRESS
    compression_supported = True
    export_supported = True

    def __init__(self, card: Card, rm: SimulatedRm) -> None:
        self.card = card
        self.rm = rm
        self.domain_count: int | None = None
        self.others_text: str | None = None
        self.mapped = 0

    def create(self, placement: Placement, size_bytes: int) -> SimulatedAllocation:
        compressible = placement.compressible and not self.card.has(Fault.COMPRESSION_IGNORED)
        for noncontiguous in (False, True):
            backing = self.card.allocate(
                size_bytes,
                compressible=compressible,
                noncontiguous=noncontiguous,
                domain=placement.domain,
            )
            if backing is not None:
                backing.objects += 1
                return SimulatedAllocation(self, backing, size_bytes)
        raise PlacementUnavailableError("cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY")

    def import_file(self, fd: int, size_bytes: int) -> SimulatedAllocation:
        backing = self.rm.files[fd].exported
        assert backing is not None
        backing.objects += 1
        self.card.increment(backing)
        return SimulatedAllocation(self, backing, size_bytes)

    def free_bytes(self) -> int:
        return self.card.free_bytes

    @contextmanager
    def scattered(self, need_bytes: int) -> Iterator[None]:
        held = self.card.free_pages[1::2]
        self.card.free_pages = self.card.free_pages[0::2]
        try:
            yield
        finally:
            self.card.free_pages = sorted(self.card.free_pages + held)

    def others(self) -> str | None:
        return self.others_text

    def close_file(self, fd: int) -> None:
        self.rm.close(fd)
