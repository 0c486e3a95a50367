# SPDX-License-Identifier: MIT
"""Which ways into the update path work on this machine, and what each gives.

A method is asked, not guessed from a version: every reason here comes from
looking at the thing that is needed. The best method that works is taken.
"""

from __future__ import annotations

import gzip
import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.kernel import kprobe_events, probe_module, sampling
from vmmprof.kernel.bcc import BccMissingError, load_bcc
from vmmprof.kernel.perf import SampleRing, explain_refusal
from vmmprof.kernel.symbols import ResolvedPath, SymbolTable, module_identity, resolve_path
from vmmprof.kernel.update_path import DRIVER_MODULE

AUTO = "auto"
TRACEFS = Path("/sys/kernel/tracing")
DEBUGFS_TRACING = Path("/sys/kernel/debug/tracing")

CAPABILITIES = {"CAP_SYS_MODULE": 16, "CAP_SYS_ADMIN": 21, "CAP_SYSLOG": 34}

COUNTED = (
    "every call's iterations, runs, bytes, status, and time in page-table writes, barrier and "
    "TLB invalidate"
)
SAMPLED = (
    "shares of time in page-table writes, barrier and TLB invalidate; counts, runs, bytes and "
    "status stay unknown"
)


@dataclass(frozen=True)
class Method:
    """A way into the update path and whether it works here.

    ``reason`` is empty for a method that works; ``remedy`` is what would
    change one that does not.
    """

    name: str
    about: str
    gives: str
    reason: str = ""
    remedy: str = ""

    @property
    def works(self) -> bool:
        return not self.reason


class _Refused(Exception):
    """Why a method does not work, and what would change that."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class _Machine:
    """What all checks look at, read once."""

    table: SymbolTable
    module: str

    def path(self) -> ResolvedPath:
        if not module_identity(self.module):
            raise _Refused(
                f"kernel module {self.module} is not loaded",
                "load the driver, or name its module with --module",
            )
        try:
            return resolve_path(self.table, self.module)
        except UsageError as error:
            reason, _, remedy = str(error).partition("; ")
            raise _Refused(reason, remedy) from None


def examine(module: str = DRIVER_MODULE) -> list[Method]:
    """Every method, best first, with what speaks against it on this machine."""
    machine = _Machine(SymbolTable.read(), module)
    return [
        _examined(kprobe_events.METHOD, "kprobe events, by bcc", COUNTED, _check_kprobe, machine),
        _examined(
            probe_module.METHOD,
            f"raw kprobes of our module {probe_module.MODULE}, read by bcc",
            COUNTED,
            _check_module,
            machine,
        ),
        _examined(
            sampling.METHOD,
            "cpu-clock sampling of the kernel, by perf",
            SAMPLED,
            _check_sampling,
            machine,
        ),
    ]


def choose(name: str, module: str = DRIVER_MODULE) -> Method:
    """The method called ``name``, or the best that works for ``auto``.

    UsageError for a name that is none; NothingMeasuredError with the reason
    for a method that does not work here.
    """
    methods = {method.name: method for method in examine(module)}
    if name != AUTO:
        if name not in methods:
            raise UsageError(f"method {name!r} is unknown; one of auto, {', '.join(methods)}")
        found = methods[name]
        if not found.works:
            raise NothingMeasuredError(
                f"method {name} does not work here: {found.reason}; {found.remedy}"
            )
        return found
    for found in methods.values():
        if found.works:
            return found
    reasons = dict.fromkeys(method.reason for method in methods.values())
    raise NothingMeasuredError(
        f"no method works here ({'; '.join(reasons)}); see vmmprof trace --explain"
    )


def _examined(
    name: str, about: str, gives: str, check: Callable[[_Machine], None], machine: _Machine
) -> Method:
    try:
        _check_machine(machine)
        check(machine)
    except _Refused as refused:
        return Method(name, about, gives, refused.reason, refused.remedy)
    except OSError as error:
        # Lockdown and missing rights show as files that cannot be opened.
        reason = f"{error.filename} cannot be read ({error.strerror})"
        return Method(name, about, gives, reason, "be root, without kernel lockdown")
    return Method(name, about, gives)


def _check_machine(machine: _Machine) -> None:
    if platform.machine() != "x86_64":
        raise _Refused(
            f"this is {platform.machine()}; arguments and stacks are read as on x86-64",
            "trace on an x86-64 machine",
        )
    if not machine.table.has_addresses:
        raise _Refused(
            "/proc/kallsyms hides its addresses",
            "be root, or have CAP_SYSLOG with kernel.kptr_restrict below 2",
        )
    machine.path()


def _check_bcc() -> None:
    try:
        load_bcc()
    except BccMissingError as error:
        raise _Refused(
            str(error).split(";", maxsplit=1)[0], str(error).rpartition("; ")[2]
        ) from None
    release = os.uname().release
    if not Path(f"/lib/modules/{release}/build").exists() and "BCC_KERNEL_SOURCE" not in os.environ:
        raise _Refused(
            f"there are no headers of kernel {release}, which bcc compiles against",
            f"install linux-headers-{release} (kernel-devel on Fedora)",
        )


def _check_capability(name: str) -> None:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:") and int(line.split()[1], 16) >> CAPABILITIES[name] & 1:
            return
    raise _Refused(f"this process lacks {name}", f"be root, or have {name}")


def _check_kprobes(machine: _Machine) -> None:
    if not machine.table.find("register_kretprobe", ""):
        raise _Refused("the running kernel has no kprobes", "boot a kernel with CONFIG_KPROBES=y")
    if _lockdown() == "confidentiality":
        raise _Refused(
            "kernel lockdown is in confidentiality mode, which forbids kprobes",
            "boot with lockdown=integrity or none",
        )


def _lockdown() -> str:
    with suppress(OSError, IndexError):
        text = Path("/sys/kernel/security/lockdown").read_text(encoding="ascii")
        return text.split("[")[1].split("]")[0]
    return "unknown"


def _tracefs() -> Path:
    for folder in (TRACEFS, DEBUGFS_TRACING):
        if (folder / "kprobe_events").exists():
            return folder
    raise _Refused(
        f"there are no kprobe events in {TRACEFS}",
        "mount it (mount -t tracefs none /sys/kernel/tracing), or boot a kernel with "
        "CONFIG_KPROBE_EVENTS=y",
    )


def _check_kprobe(machine: _Machine) -> None:
    _check_capability("CAP_SYS_ADMIN")
    _check_kprobes(machine)
    folder = _tracefs()
    without_pad = _without_pads(folder, machine.path())
    if without_pad and not _probes_notrace():
        raise _Refused(
            f"{without_pad[0]} has no ftrace pad, so the kernel refuses a kprobe event on it",
            "use --method module, build the driver with pads, or boot a kernel with "
            "CONFIG_KPROBE_EVENTS_ON_NOTRACE=y",
        )
    _check_bcc()


def _without_pads(folder: Path, path: ResolvedPath) -> list[str]:
    """The path's functions that the function tracer cannot see."""
    traceable = set()
    with (folder / "available_filter_functions").open(encoding="ascii") as lines:
        for line in lines:
            if f"[{path.module}]" in line:
                traceable.add(line.split()[0])
    names = [symbol.name for symbols in path.symbols.values() for symbol in symbols]
    return [name for name in names if name not in traceable]


def _probes_notrace() -> bool:
    """Whether kprobe events are let through without a pad; False when nobody can tell."""
    release = os.uname().release
    option = "CONFIG_KPROBE_EVENTS_ON_NOTRACE=y"
    with suppress(OSError):
        return option in gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
    with suppress(OSError):
        return option in Path(f"/boot/config-{release}").read_text(encoding="utf-8")
    return False


def _check_module(machine: _Machine) -> None:
    _check_capability("CAP_SYS_ADMIN")
    _check_kprobes(machine)
    if not probe_module.is_loaded():
        _check_module_loading()
    _check_bcc()


def _check_module_loading() -> None:
    _check_capability("CAP_SYS_MODULE")
    with suppress(OSError):
        if Path("/proc/sys/kernel/modules_disabled").read_text(encoding="ascii").strip() == "1":
            raise _Refused("module loading is switched off (kernel.modules_disabled)", "reboot")
    try:
        shown = subprocess.run(
            ["modinfo", "-F", "signer", probe_module.MODULE],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise _Refused("there is no modinfo to look for our module with", "install kmod") from None
    if shown.returncode != 0:
        raise _Refused(
            f"module {probe_module.MODULE} is not built for kernel {os.uname().release}",
            f"build it from {probe_module.SOURCES} (docs/probing.md)",
        )
    if _lockdown() == "integrity" and not shown.stdout.strip():
        raise _Refused(
            f"kernel lockdown asks for signed modules and {probe_module.MODULE} has no signature",
            "sign it with an enrolled key (docs/probing.md)",
        )


def _check_sampling(machine: _Machine) -> None:
    try:
        ring = SampleRing(pid=0, cpu=-1, period_ns=sampling.DEFAULT_PERIOD_NS, pages=1)
    except OSError as error:
        reason, _, remedy = explain_refusal(error).partition("; ")
        raise _Refused(reason, remedy) from None
    ring.close()


def cleanup() -> list[str]:
    """Take out what traces left behind: our module, event definitions of killed processes."""
    done = []
    if probe_module.unload():
        done.append(f"module {probe_module.MODULE} unloaded")
    with suppress(OSError):
        done += [f"kprobe event {name} removed" for name in kprobe_events.forget_dead()]
    return done
