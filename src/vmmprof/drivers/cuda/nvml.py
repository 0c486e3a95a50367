# SPDX-License-Identifier: MIT
"""State of a GPU that CUDA does not tell, read through NVML: who uses it, clocks, modes.

Every reading is a value or the reason why there is none, as text; NVML missing
altogether is one reason for all of them. Nothing is ever set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True)
class Usage:
    """Others on the GPU: ``None`` where NVML cannot tell."""

    other_pids: tuple[int, ...] | None
    used_bytes: int | None


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def usage(pci_bus_id: str) -> Usage:
    """Processes other than this one on the GPU, and bytes in use by anyone."""
    try:
        with _nvml():
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
            processes = [
                *pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
                *pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
            ]
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError:
        return Usage(None, None)
    others = {process.pid for process in processes} - {os.getpid()}
    return Usage(tuple(sorted(others)), int(memory.used))


def _on_off(value: int) -> str:
    return "on" if value else "off"


def _mig(handle: Any) -> str:
    return _on_off(pynvml.nvmlDeviceGetMigMode(handle)[0])


def _ecc(handle: Any) -> str:
    return _on_off(pynvml.nvmlDeviceGetEccMode(handle)[0])


def _clock(kind: int) -> Callable[[Any], int]:
    return lambda handle: int(pynvml.nvmlDeviceGetClockInfo(handle, kind))


_READINGS: dict[str, Callable[[Any], object]] = {
    "persistence": lambda handle: _on_off(pynvml.nvmlDeviceGetPersistenceMode(handle)),
    "mig": _mig,
    "ecc": _ecc,
    "compute_mode": lambda handle: int(pynvml.nvmlDeviceGetComputeMode(handle)),
    "sm_clock_mhz": _clock(pynvml.NVML_CLOCK_SM),
    "memory_clock_mhz": _clock(pynvml.NVML_CLOCK_MEM),
    "temperature_c": lambda handle: int(
        pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    ),
    "power_w": lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "pcie_generation": lambda handle: int(pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    "pcie_width": lambda handle: int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    "bar1_total_mib": lambda handle: pynvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total >> 20,
    "bar1_used_mib": lambda handle: pynvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Used >> 20,
}


def readings(pci_bus_id: str) -> dict[str, object]:
    """All readings of one GPU; a reading that fails is ``unknown: REASON``."""
    try:
        with _nvml():
            result: dict[str, object] = {
                "driver_version": pynvml.nvmlSystemGetDriverVersion(),
            }
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
            for name, read in _READINGS.items():
                try:
                    result[name] = read(handle)
                except pynvml.NVMLError as error:
                    result[name] = f"unknown: {error}"
            return result
    except pynvml.NVMLError as error:
        return {"nvml": f"unknown: {error}"}
