# SPDX-License-Identifier: MIT
"""What the checks need of CUDA, as a protocol: a test puts a simulated GPU in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vmmprof.placement import Placement
from vmmprof.verify.pattern import Expectation, Pattern


class Allocation(Protocol):
    """Exportable CUDA VMM memory, created and not yet mapped. Offsets are in bytes."""

    size_bytes: int

    def compressible(self) -> bool:
        """Whether compression was granted, read back from the handle."""
        ...

    def map(self) -> None:
        """Reserve an address range, map the memory there and grant access."""
        ...

    def unmap(self) -> None: ...

    def release(self) -> None: ...

    def locality_domain(self) -> int | None:
        """The domain that mapped memory is on, read back; None when it is not localized."""
        ...

    def export(self) -> int:
        """A new file holding the memory; the caller closes it."""
        ...

    def poison(self, word: int) -> None:
        """Set every 32-bit word."""
        ...

    def fill(self, pattern: Pattern, seed: int) -> None:
        """Write the pattern to all of the memory by a kernel."""
        ...

    def put(self, offset: int, value: int) -> None:
        """Write one 64-bit word at any offset."""
        ...

    def read(self, offset: int, length: int) -> npt.NDArray[np.uint64]: ...


class Gpu(Protocol):
    """A CUDA device."""

    pci_address: str
    domain_count: int | None
    compression_supported: bool
    export_supported: bool

    def create(self, placement: Placement, size_bytes: int) -> Allocation:
        """VmmprofError when it cannot be had."""
        ...

    def import_file(self, fd: int, size_bytes: int) -> Allocation:
        """Memory that another client exported into the file."""
        ...

    def free_bytes(self) -> int: ...

    def scattered(self, need_bytes: int) -> AbstractContextManager[None]:
        """Hold every other 2 MiB piece of free memory while inside."""
        ...

    def others(self) -> str | None:
        """Who else uses the GPU, as text; None when nobody does."""
        ...

    def close_file(self, fd: int) -> None: ...


@contextmanager
def exported(gpu: Gpu, allocation: Allocation) -> Iterator[int]:
    """A file holding the allocation, closed on leaving."""
    fd = allocation.export()
    try:
        yield fd
    finally:
        gpu.close_file(fd)


def write(allocation: Allocation, expectation: Expectation) -> None:
    """Write through CUDA what the expectation says."""
    allocation.fill(expectation.pattern, expectation.seed)
    for offset, value in expectation.tags():
        allocation.put(offset, value)
