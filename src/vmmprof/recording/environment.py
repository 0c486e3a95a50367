# SPDX-License-Identifier: MIT
"""Facts about the machine that stand beside every number, one small function each.

A collector returns JSON-ready values; what cannot be read is ``unknown`` with
the reason. GPU facts come from the driver that ran the cycles.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vmmprof import __version__
from vmmprof.recording.schema import FORMAT_VERSION

_NT_GNU_BUILD_ID = 3
_CLOCK_MONOTONIC_RAW = 4
_CLOCK_WINDOW_S = 0.1
_CLOCK_READINGS = 50


def read_text(path: str) -> str:
    """Stripped text of a small kernel file, or ``unknown: REASON``."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"unknown: {error.strerror}"


def kernel_lockdown() -> str:
    """The lockdown mode in force: none, integrity, confidentiality, or unknown."""
    if not Path("/sys/kernel/security/lockdown").exists():
        return "unknown: no /sys/kernel/security/lockdown (not built in, or not mounted)"
    text = read_text("/sys/kernel/security/lockdown")
    selected = re.search(r"\[(\w+)\]", text)
    return selected[1] if selected else text


def module_build_id(module: str = "nvidia") -> str:
    """GNU build-id of a loaded module: what tells two builds apart (srcversion does not)."""
    path = Path("/sys/module") / module / "notes" / ".note.gnu.build-id"
    try:
        note = path.read_bytes()
    except OSError as error:
        return f"unknown: {error.strerror}"
    name_size, desc_size, kind = (int.from_bytes(note[i : i + 4], "little") for i in (0, 4, 8))
    start = 12 + (name_size + 3) // 4 * 4
    if kind != _NT_GNU_BUILD_ID or len(note) < start + desc_size:
        return "unknown: the note is not a GNU build-id"
    return note[start : start + desc_size].hex()


def driver_flavour() -> str:
    """``open``, ``proprietary`` or unknown, from the kernel module's own version line."""
    text = read_text("/proc/driver/nvidia/version")
    if text.startswith("unknown"):
        return text
    return "open" if "Open Kernel Module" in text else "proprietary"


def registry_dwords() -> str:
    """NVreg_RegistryDwords of the loaded module: keys that change static BAR1 and locality."""
    text = read_text("/proc/driver/nvidia/params")
    match = re.search(r'^RegistryDwords: "(.*)"$', text, re.MULTILINE)
    return match[1] if match else text if text.startswith("unknown") else ""


def cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.machine()


def clock_facts() -> dict[str, object]:
    """The clock source, and the rate of CLOCK_MONOTONIC against CLOCK_MONOTONIC_RAW in ppm.

    CLOCK_MONOTONIC is what BPF and perf share; NTP slews it, and the slew is
    what the ppm show, to within the ppm beside it.
    """
    first = _both_clocks()
    time.sleep(_CLOCK_WINDOW_S)
    last = _both_clocks()
    elapsed_raw_ns = last.raw_ns - first.raw_ns
    rate = (last.monotonic_ns - first.monotonic_ns) / elapsed_raw_ns
    return {
        "source": read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "monotonic_against_raw_ppm": round((rate - 1) * 1e6, 1),
        "monotonic_against_raw_within_ppm": round(
            (first.error_ns + last.error_ns) / elapsed_raw_ns * 1e6, 1
        ),
    }


@dataclass(frozen=True)
class _ClockPair:
    """Two clocks at one moment; the monotonic one is within ``error_ns`` of that moment."""

    monotonic_ns: float
    raw_ns: int
    error_ns: float


def _both_clocks() -> _ClockPair:
    """The closest of several readings: an interrupt between two clocks spoils one of them."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        before = time.monotonic_ns()
        raw = time.clock_gettime_ns(_CLOCK_MONOTONIC_RAW)
        after = time.monotonic_ns()
        readings.append(_ClockPair((before + after) / 2, raw, (after - before) / 2))
    return min(readings, key=lambda reading: reading.error_ns)


def hypervisor() -> str:
    flags = re.search(r"^flags\s*:\s*(.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return "yes" if flags and "hypervisor" in flags[1].split() else "no"


def iommu() -> str:
    groups = Path("/sys/kernel/iommu_groups")
    if not groups.is_dir():
        return "unknown: no /sys/kernel/iommu_groups"
    return "on" if any(groups.iterdir()) else "off"


def mps_running() -> str:
    """Whether an MPS control daemon can be seen among the processes."""
    names = {read_text(str(comm))[:15] for comm in Path("/proc").glob("[0-9]*/comm")}
    return "yes" if "nvidia-cuda-mps" in names else "no"


def c_library() -> str:
    name, release = platform.libc_ver()
    return f"{name} {release}"


def scheduling() -> dict[str, object]:
    return {
        "affinity": sorted(os.sched_getaffinity(0)),
        "policy": {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle"}.get(
            os.sched_getscheduler(0), "unknown"
        ),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def machine() -> dict[str, object]:
    """Kernel, CPU and clock of this machine."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "numa_nodes": read_text("/sys/devices/system/node/online"),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "hypervisor": hypervisor(),
        "lockdown": kernel_lockdown(),
        "iommu": iommu(),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo_disabled": read_text("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "c_library": c_library(),
        "python": platform.python_version(),
        "clock": clock_facts(),
        "scheduling": scheduling(),
    }


def nvidia_module() -> dict[str, object]:
    """The loaded NVIDIA kernel module."""
    return {
        "version": read_text("/sys/module/nvidia/version"),
        "flavour": driver_flavour(),
        "build_id": module_build_id(),
        "registry_dwords": registry_dwords(),
        "mps": mps_running(),
    }


def kernel_log_since(start_seconds: float) -> list[str] | str:
    """NVRM and Xid lines of the kernel log from ``start_seconds`` (CLOCK_MONOTONIC) on."""
    try:
        log = subprocess.run(
            ["dmesg", "--kernel"], capture_output=True, text=True, check=True, timeout=10
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {' '.join(str(error).split())}"
    lines = []
    for line in log.splitlines():
        stamp = re.match(r"\[\s*(\d+\.\d+)\]", line)
        if stamp and float(stamp[1]) >= start_seconds and re.search(r"NVRM|Xid", line):
            lines.append(line)
    return lines


def preamble(command: list[str]) -> dict[str, object]:
    """What every recording starts with."""
    return {
        "format_version": FORMAT_VERSION,
        "vmmprof_version": __version__,
        "command": " ".join(command),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def merged(*parts: Mapping[str, object]) -> dict[str, object]:
    """One environment from parts whose keys do not meet."""
    result: dict[str, object] = {}
    for part in parts:
        twice = result.keys() & part.keys()
        assert not twice, f"environment keys given twice: {twice}"
        result |= part
    return result
