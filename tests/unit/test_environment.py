# SPDX-License-Identifier: MIT
"""What a recording says of its machine, read from a made-up /sys, /proc and kernel log."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from vmmprof.recording import environment

BUILD_ID = bytes(range(20))
NOTE = (4).to_bytes(4, "little") + (20).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"GNU\0"

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for / in what the collectors read."""

    def below(path: str) -> Path:
        return Path(path) if path.startswith(str(tmp_path)) else tmp_path / path.lstrip("/")

    monkeypatch.setattr(environment, "Path", below)
    return tmp_path


def put(root: Path, path: str, content: str | bytes) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    ("path", "content", "read", "value"),
    [
        (
            "/sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
            environment.kernel_lockdown,
            "integrity",
        ),
        (
            "/sys/module/nvidia/notes/.note.gnu.build-id",
            NOTE + BUILD_ID,
            environment.module_build_id,
            BUILD_ID.hex(),
        ),
        (
            "/sys/module/nvidia/notes/.note.gnu.build-id",
            NOTE + BUILD_ID[:7],
            environment.module_build_id,
            "unknown: the note is not a GNU build-id",
        ),
        ("/proc/driver/nvidia/version", OPEN, environment.driver_flavour, "open"),
        ("/proc/driver/nvidia/version", CLOSED, environment.driver_flavour, "proprietary"),
        (
            "/proc/driver/nvidia/params",
            'Mobile: 1\nRegistryDwords: "RMForceStaticBar1=1"\nRegistryDwordsPerDevice: ""\n',
            environment.registry_dwords,
            "RMForceStaticBar1=1",
        ),
        ("/proc/driver/nvidia/params", 'RegistryDwords: ""\n', environment.registry_dwords, ""),
        ("/sys/kernel/iommu_groups/0/type", "DMA", environment.iommu, "on"),
        ("/proc/cpuinfo", "flags\t: fpu hypervisor sse\n", environment.hypervisor, "yes"),
        ("/proc/cpuinfo", "flags\t: fpu sse\n", environment.hypervisor, "no"),
        ("/proc/cpuinfo", "model name\t: AMD EPYC\n", environment.cpu_model, "AMD EPYC"),
        # The kernel cuts a command's name at 15 characters.
        ("/proc/77/comm", "nvidia-cuda-mps\n", environment.mps_running, "yes"),
        ("/proc/77/comm", "bash\n", environment.mps_running, "no"),
    ],
)
def test_a_reading_is_its_value(
    root: Path, path: str, content: str | bytes, read: Callable[[], str], value: str
) -> None:
    put(root, "/proc/1/comm", "init")
    put(root, path, content)
    assert read() == value


@pytest.mark.parametrize(
    "read",
    [
        environment.kernel_lockdown,
        environment.module_build_id,
        environment.driver_flavour,
        environment.registry_dwords,
        environment.iommu,
    ],
)
def test_what_cannot_be_read_is_unknown_with_its_reason(
    root: Path, read: Callable[[], str]
) -> None:
    assert read().startswith("unknown: ")


def test_an_empty_folder_of_iommu_groups_is_off(root: Path) -> None:
    (root / "sys/kernel/iommu_groups").mkdir(parents=True)
    assert environment.iommu() == "off"


LOG = """\
[   10.000000] NVRM: loading NVIDIA UNIX Open Kernel Module
[  100.500000] NVRM: Xid (PCI:0000:01:00): 31, pid=1, MMU Fault
[  100.600000] usb 1-1: new device
[  101.000000] nvidia 0000:01:00.0: Xid note without its tag
no stamp NVRM
"""


def fake_dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "dmesg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_the_kernel_log_has_the_drivers_lines_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dmesg(tmp_path, monkeypatch, f"cat <<'EOF'\n{LOG}EOF")
    lines = environment.kernel_log_since(100.0)
    assert lines == [LOG.splitlines()[1], LOG.splitlines()[3]]


def test_a_kernel_log_that_may_not_be_read_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dmesg(tmp_path, monkeypatch, "echo 'read kernel buffer failed' >&2; exit 1")
    log = environment.kernel_log_since(0.0)
    assert isinstance(log, str) and log.startswith("unknown: ")
    assert "\n" not in log


@pytest.mark.parametrize("slew_ppm", [-40.0, 0.0, 120.0])
def test_the_rate_of_the_clock_is_right_although_readings_are_interrupted(
    monkeypatch: pytest.MonkeyPatch, slew_ppm: float
) -> None:
    now_ns = 1_000_000_000
    # Every reading takes 30 ns; every seventh is interrupted for 20 us.
    takes_ns = itertools.cycle([30] * 6 + [20_000])

    def pass_time(nanoseconds: int) -> int:
        nonlocal now_ns
        now_ns += nanoseconds
        return now_ns

    def monotonic_ns() -> int:
        return round(pass_time(next(takes_ns)) * (1 + slew_ppm * 1e-6))

    monkeypatch.setattr(environment.time, "monotonic_ns", monotonic_ns)
    monkeypatch.setattr(
        environment.time, "clock_gettime_ns", lambda clock: pass_time(next(takes_ns))
    )
    monkeypatch.setattr(environment.time, "sleep", lambda s: pass_time(round(s * 1e9)))
    facts = environment.clock_facts()
    within = float(str(facts["monotonic_against_raw_within_ppm"]))
    assert within < 2
    assert abs(float(str(facts["monotonic_against_raw_ppm"])) - slew_ppm) <= within
