# SPDX-License-Identifier: MIT
"""Keep the measuring threads on chosen CPUs, and give the affinity back afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmmprof.errors import UsageError


def parse_cpus(text: str) -> set[int]:
    """``0,2-3`` as {0, 2, 3}; UsageError when it is no CPU list."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--pin {text!r} is not auto, none or a CPU list such as 0,2-3")
        if last and int(last) < int(first):
            raise UsageError(f"--pin {text!r}: {part} runs backwards; the lower CPU comes first")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def gpu_cpus(pci_bus_id: str) -> set[int] | None:
    """CPUs of the GPU's NUMA node; None where the kernel does not say."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    # CUDA writes the PCI domain with eight digits, sysfs with four.
    path = Path("/sys/bus/pci/devices") / f"{domain[-4:]}:{rest}" / "local_cpulist"
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return parse_cpus(text) if text else None


def cpus_to_pin(pin: str, pci_bus_id: str | None) -> tuple[set[int] | None, str]:
    """CPUs for ``--pin`` (None: leave them alone) and what was decided, for the recording.

    UsageError for CPUs that this process may not use.
    """
    allowed = os.sched_getaffinity(0)
    if pin == "none":
        return None, "none"
    if pin == "auto":
        if pci_bus_id is None:
            return None, "none: no GPU is measured"
        cpus = gpu_cpus(pci_bus_id)
        if cpus is None:
            return None, f"none: the NUMA node of {pci_bus_id} is unknown"
        if not cpus & allowed:
            return None, f"none: no CPU of the NUMA node of {pci_bus_id} may be used"
        return cpus & allowed, f"NUMA node of {pci_bus_id}"
    cpus = parse_cpus(pin)
    if not cpus <= allowed:
        missing = ", ".join(str(cpu) for cpu in sorted(cpus - allowed))
        raise UsageError(f"--pin {pin}: CPU {missing} may not be used by this process")
    return cpus, pin


@contextmanager
def pinned(cpus: set[int] | None) -> Iterator[None]:
    """Run on ``cpus`` while inside."""
    before = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
