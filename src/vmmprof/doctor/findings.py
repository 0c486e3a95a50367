# SPDX-License-Identifier: MIT
"""Questions about the machine, each answered by asking the system, not its version."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path

from vmmprof.errors import UsageError, VmmprofError
from vmmprof.kernel import probe_module, rm
from vmmprof.kernel.bcc import BccMissingError, load_bcc
from vmmprof.recording import environment
from vmmprof.recording.environment import read_text


class Answer(Enum):
    """Three answers; a question with another kind of answer has none of them."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One question's answer. ``key`` is stable for JSON; ``detail`` is value or reason."""

    section: str
    key: str
    question: str
    answer: Answer | None
    detail: str

    @property
    def answer_text(self) -> str:
        """The answer as shown; empty for a question that has a value instead."""
        return self.answer.value if self.answer else ""


def _yes_no(value: object) -> Answer:
    return Answer.UNKNOWN if value is None else Answer.YES if value else Answer.NO


def _from_text(section: str, key: str, question: str, text: str) -> Finding:
    """A finding from a reading that is a value or ``unknown: REASON``."""
    if text.startswith("unknown"):
        return Finding(section, key, question, Answer.UNKNOWN, text.removeprefix("unknown: "))
    return Finding(section, key, question, None, text)


# -- GPU through CUDA ------------------------------------------------------


def _cuda(device: int) -> tuple[list[Finding], str | None]:
    """Findings about the CUDA device, and its PCI address (None without one)."""
    from vmmprof.drivers.cuda.driver import CudaDriver

    try:
        driver = CudaDriver(device)
        with driver:
            facts = driver.environment()
    except UsageError:
        raise
    except VmmprofError as error:
        unusable = Finding("GPU", "cuda", "CUDA device usable", Answer.NO, str(error))
        return [unusable, _bindings()], None
    number = int(str(facts["cuda_driver_version"]))
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    findings = [
        Finding("GPU", "cuda", "CUDA device usable", Answer.YES, f"{facts['name']}, CUDA {cuda}"),
        _bindings(),
        Finding("GPU", "vmm", "virtual memory management", Answer.YES, ""),
        Finding(
            "GPU",
            "compression",
            "compressible memory",
            _yes_no(facts["compression_supported"]),
            "",
        ),
        _domains(driver.domain_count, cuda),
        Finding(
            "GPU",
            "memory",
            "free memory",
            None,
            f"{facts['free_memory_mib']} of {facts['total_memory_mib']} MiB",
        ),
        _others(driver.usage_before.other_pids),
    ]
    findings += [
        _from_text("GPU", key, question, str(facts.get(key, "unknown: NVML cannot be used")))
        for key, question in (
            ("persistence", "persistence mode"),
            ("mig", "MIG mode"),
            ("ecc", "ECC"),
        )
    ]
    return findings, driver.pci_bus_id


def _bindings() -> Finding:
    return Finding("GPU", "bindings", "CUDA of the bindings", None, version("cuda-bindings"))


def _domains(count: int | None, cuda: str) -> Finding:
    if count is None:
        detail = f"this driver (CUDA {cuda}) does not know the question; CUDA 13.4 does"
        return Finding("GPU", "locality_domains", "locality domains", Answer.UNKNOWN, detail)
    detail = f"{count}" if count > 1 else "one: the whole device"
    return Finding("GPU", "locality_domains", "locality domains", _yes_no(count > 1), detail)


def _others(pids: tuple[int, ...] | None) -> Finding:
    if pids is None:
        return Finding("GPU", "others", "others on the GPU", Answer.UNKNOWN, "NVML cannot tell")
    detail = f"PID {', '.join(str(pid) for pid in pids)}" if pids else ""
    return Finding("GPU", "others", "others on the GPU", _yes_no(pids), detail)


# -- kernel driver ---------------------------------------------------------


def _module() -> list[Finding]:
    if not Path("/sys/module/nvidia").exists():
        reason = "the NVIDIA kernel module is not loaded"
        return [Finding("driver", "version", "kernel module", Answer.NO, reason)]
    return [
        _from_text("driver", "version", "kernel module", read_text("/sys/module/nvidia/version")),
        _from_text("driver", "flavour", "open or proprietary", environment.driver_flavour()),
        _from_text("driver", "build_id", "GNU build-id", environment.module_build_id()),
        _from_text(
            "driver", "registry", "NVreg_RegistryDwords", environment.registry_dwords() or "none"
        ),
    ]


def _resource_manager(pci_address: str | None) -> list[Finding]:
    if not Path("/dev/nvidiactl").exists():
        reason = "there is no /dev/nvidiactl to ask the resource manager through"
        return [
            Finding("driver", "static_bar1", "static BAR1", Answer.UNKNOWN, reason),
            Finding("driver", "rm_localization", "localized memory (RM)", Answer.UNKNOWN, reason),
        ]
    facts = rm.gather(pci_address=pci_address)
    bar1 = facts.static_bar1.value
    if bar1 is None:
        static = Finding(
            "driver", "static_bar1", "static BAR1", Answer.UNKNOWN, facts.static_bar1.reason
        )
    else:
        where = f"{bar1.size_bytes >> 20} MiB from offset {bar1.start_offset:#x}"
        detail = where if bar1.enabled else ""
        static = Finding("driver", "static_bar1", "static BAR1", _yes_no(bar1.enabled), detail)
    localization = Finding(
        "driver",
        "rm_localization",
        "localized memory (RM)",
        _yes_no(facts.localization.value),
        facts.localization.reason,
    )
    return [static, localization]


# -- kernel ----------------------------------------------------------------


def _kprobes() -> Finding:
    question = "kprobes"
    config = Path(f"/boot/config-{platform.release()}")
    signs = (Path("/sys/kernel/debug/kprobes"), Path("/sys/kernel/tracing/kprobe_events"))
    if any(sign.exists() for sign in signs):
        return Finding("kernel", "kprobes", question, Answer.YES, "")
    try:
        symbols = Path("/proc/kallsyms").read_text(encoding="ascii")
    except OSError as error:
        return Finding("kernel", "kprobes", question, Answer.UNKNOWN, f"{error.strerror}")
    if re.search(r" register_kprobe$", symbols, re.MULTILINE):
        detail = "built in; tracefs is not mounted or not readable here"
        return Finding("kernel", "kprobes", question, Answer.YES, detail)
    detail = f"the kernel was built without CONFIG_KPROBES (see {config.name})"
    return Finding("kernel", "kprobes", question, Answer.NO, detail)


def _perf() -> Finding:
    text = read_text("/proc/sys/kernel/perf_event_paranoid")
    if text.startswith("unknown"):
        return Finding("kernel", "perf", "perf events", Answer.NO, "the kernel has no perf events")
    level = int(text)
    if os.geteuid() == 0 or level < 2:
        return Finding("kernel", "perf", "kernel sampling by perf", Answer.YES, f"paranoid {level}")
    detail = f"perf_event_paranoid is {level}; needs root, CAP_PERFMON or a value below 2"
    return Finding("kernel", "perf", "kernel sampling by perf", Answer.NO, detail)


def _exists(key: str, question: str, path: str, otherwise: str) -> Finding:
    there = Path(path).exists()
    return Finding("kernel", key, question, _yes_no(there), path if there else otherwise)


def _bcc() -> Finding:
    try:
        load_bcc()
    except BccMissingError as error:
        return Finding("kernel", "bcc", "bcc for Python", Answer.NO, str(error))
    return Finding("kernel", "bcc", "bcc for Python", Answer.YES, "")


def _probe_module() -> Finding:
    loaded = probe_module.is_loaded()
    detail = "vmmprof trace --cleanup takes it out" if loaded else "nothing to clean up"
    question = f"{probe_module.MODULE} loaded"
    return Finding("kernel", "probe_module", question, _yes_no(loaded), detail)


def _kernel() -> list[Finding]:
    release = platform.release()
    return [
        Finding("kernel", "release", "kernel", None, f"{release} {platform.machine()}"),
        _from_text("kernel", "lockdown", "lockdown", environment.kernel_lockdown()),
        _kprobes(),
        _perf(),
        _exists("btf", "BTF", "/sys/kernel/btf/vmlinux", "no /sys/kernel/btf/vmlinux"),
        _exists(
            "headers",
            "kernel headers",
            f"/lib/modules/{release}/build",
            f"no /lib/modules/{release}/build; install the headers of {release}",
        ),
        _bcc(),
        _probe_module(),
    ]


def examine(device: int) -> list[Finding]:
    """All findings about this machine and CUDA device ``device``.

    UsageError when CUDA works and has no such device; everything else that
    fails is a finding.
    """
    gpu, pci_address = _cuda(device)
    return [*gpu, *_module(), *_resource_manager(pci_address), *_kernel()]


def session_facts(device: int) -> dict[str, object]:
    """What a recording of a real GPU also keeps: the kernel driver and static BAR1."""
    facts: dict[str, object] = {"nvidia_module": environment.nvidia_module()}
    for finding in _resource_manager(_pci_address(device)):
        facts[finding.key] = ": ".join(filter(None, (finding.answer_text, finding.detail)))
    return facts


def _pci_address(device: int) -> str | None:
    from vmmprof.drivers.cuda import api

    try:
        api.device_count()
        bus_id: bytes = api.call("cuDeviceGetPCIBusId", 32, api.call("cuDeviceGet", device))
    except VmmprofError:
        return None
    return bus_id.split(b"\0")[0].decode()
