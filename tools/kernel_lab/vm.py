# SPDX-License-Identifier: MIT
"""One run of the lab: boot, run a command, tell how it ended."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lab.errors import LabError, Verdict
from kernel_lab.kernels import Kernel

QEMU = "qemu-system-x86_64"
GUEST_FILES = Path(__file__).parent / "guest"
PANIC_MARK = b"Kernel panic - not syncing"
# Emulated boots were seen to stop about once in 30; one that works takes 5 s.
BOOT_ATTEMPTS = 3
# After a status the guest only powers off.
POWER_OFF_S = 20

KERNEL_ARGUMENTS = (
    "console=ttyS0 panic=-1 oops=panic nokaslr mitigations=off audit=0 apparmor=0 "
    "tsc=reliable random.trust_cpu=on"
)


@dataclass(frozen=True)
class Machine:
    """What to boot and for how long; times in seconds of this machine's clock."""

    kernel: Kernel
    cpus: int = 2
    memory_mib: int = 3072
    count_instructions: bool = False
    """Guest time counts executed instructions (1 ns each) instead of seconds; one CPU only."""
    boot_timeout_s: float = 60
    timeout_s: float = 300
    share: Path | None = None
    """A folder that the guest may write to; all else it writes is thrown away."""
    kernel_arguments: str = ""


@dataclass
class Outcome:
    """How a run ended, and what the kernel said."""

    verdict: Verdict | None
    """None when the command ran to its end."""
    command_status: int | None
    console: bytes
    dmesg: str

    @property
    def exit_code(self) -> int:
        if self.verdict is not None:
            return self.verdict
        assert self.command_status is not None
        return self.command_status

    def describe(self) -> str:
        """One line for an ending that is not the command's own; empty otherwise."""
        last = self.console.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        texts = {
            Verdict.NEVER_BOOTED: f"the kernel never came up; its console ends with: {last[0]}",
            Verdict.PANIC: f"the kernel panicked: {self._panic_line()}",
            Verdict.HANG: "the command did not end in time; the machine was stopped",
            Verdict.NO_STATUS: f"the machine ended without a status; its console ends: {last[0]}",
        }
        return texts.get(self.verdict, "") if self.verdict is not None else ""

    def _panic_line(self) -> str:
        lines = self.console.decode(errors="replace").splitlines()
        return next((line.strip() for line in lines if PANIC_MARK.decode() in line), "no message")


def run(machine: Machine, command: Sequence[str], environment: Mapping[str, str]) -> Outcome:
    """Run the command as root in the current folder of a fresh boot; output goes to ours."""
    for program in (QEMU, "busybox"):
        if shutil.which(program) is None:
            raise LabError(f"{program} is missing; tools/kernel-lab setup --packages installs it")
    for attempt in range(1, BOOT_ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix="kernel-lab-") as folder:
            initrd = Path(folder) / "initrd"
            initrd.write_bytes(_initrd(machine, command, environment))
            outcome = _boot(machine, initrd)
        if outcome.verdict != Verdict.NEVER_BOOTED or attempt == BOOT_ATTEMPTS:
            return outcome
        # Nothing of the command has run, so that a second try changes nothing but the verdict.
        print(f"kernel-lab: boot {attempt} did not come up; trying again", file=sys.stderr)
    raise AssertionError("the loop returns")


def _cpio(entries: Sequence[tuple[str, int, bytes]]) -> bytes:
    """A 'newc' archive of (name, mode, content)."""
    archive = bytearray()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        raw_name = name.encode() + b"\0"
        fields = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw_name), 0]
        archive += b"070701" + b"".join(b"%08X" % value for value in fields) + raw_name
        archive += b"\0" * (-len(archive) % 4)
        archive += content
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)


def _initrd(machine: Machine, command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    folder_mode, file_mode, program_mode = 0o040755, 0o100644, 0o100755
    busybox = shutil.which("busybox")
    assert busybox is not None
    settings = {
        **environment,
        "KERNEL_LAB_BUILD": str(machine.kernel.build),
        "KERNEL_LAB_SOURCE": str(machine.kernel.source),
        "KERNEL_LAB_SHARE": str(machine.share or ""),
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    script = f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(command)}\n"
    folders = ["bin", "boot-modules", "dev", "proc", "sys", "lower", "layer", "root", "lab"]
    entries = [(name, folder_mode, b"") for name in folders]
    entries.append(("bin/busybox", program_mode, Path(busybox).read_bytes()))
    for module in sorted((machine.kernel.folder / "boot-modules").iterdir()):
        entries.append((f"boot-modules/{module.name}", file_mode, module.read_bytes()))
    entries.append(("init", program_mode, (GUEST_FILES / "init.sh").read_bytes()))
    entries.append(("lab/job.sh", program_mode, (GUEST_FILES / "job.sh").read_bytes()))
    entries.append(("lab/environment.sh", file_mode, exports.encode()))
    entries.append(("lab/command.sh", file_mode, script.encode()))
    return _cpio(entries)


def _qemu_command(machine: Machine, initrd: Path, outputs: Mapping[str, int]) -> list[str]:
    acceleration = "tcg,tb-size=512,thread=multi"
    if machine.count_instructions:
        acceleration = "tcg,tb-size=512,thread=single"
    # fmt: off
    command = [
        QEMU, "-machine", "q35", "-cpu", "max,la57=off", "-m", f"{machine.memory_mib}M",
        "-smp", str(machine.cpus), "-accel", acceleration, "-nodefaults", "-no-user-config",
        "-display", "none", "-no-reboot",
        "-kernel", str(machine.kernel.image), "-initrd", str(initrd),
        "-append", f"{KERNEL_ARGUMENTS} loglevel=4 {machine.kernel_arguments}".strip(),
    ]
    # fmt: on
    if machine.count_instructions:
        command += ["-icount", "shift=0,sleep=off"]
    for name, descriptor in outputs.items():
        command += ["-chardev", f"file,id={name},path=/dev/fd/{descriptor},append=on"]
        command += ["-serial", f"chardev:{name}"]
    shares = [("root", Path("/"), ",readonly=on")]
    if machine.share is not None:
        shares.append(("share", machine.share.resolve(), ""))
    for tag, path, mode in shares:
        command += [
            "-fsdev",
            f"local,id={tag},path={path},security_model=none,multidevs=remap{mode}",
            "-device",
            f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
        ]
    return command


class _Watch:
    """What has been heard from a running machine so far."""

    def __init__(self) -> None:
        self.console = bytearray()
        self.control = bytearray()

    @property
    def up(self) -> bool:
        return self.control.startswith(b"up\n")

    @property
    def status(self) -> int | None:
        lines = self.control.split(b"\n")
        if len(lines) < 3 or not lines[1].startswith(b"status "):
            return None
        return int(lines[1].split()[1])

    @property
    def dmesg(self) -> str:
        return b"\n".join(self.control.split(b"\n")[2:]).decode(errors="replace")

    def hear(self, channel: str, data: bytes) -> None:
        if channel == "console":
            self.console += data
        elif channel == "control":
            self.control += data
        else:
            stream = sys.stdout if channel == "stdout" else sys.stderr
            stream.buffer.write(data)
            stream.buffer.flush()


def _boot(machine: Machine, initrd: Path) -> Outcome:
    channels = ("console", "stdout", "stderr", "control")
    pipes = {name: os.pipe() for name in channels}
    writers = {name: ends[1] for name, ends in pipes.items()}
    watch = _Watch()
    with selectors.DefaultSelector() as selector:
        for name, (reader, _) in pipes.items():
            selector.register(reader, selectors.EVENT_READ, name)
        started = time.monotonic()
        qemu = subprocess.Popen(
            _qemu_command(machine, initrd, writers),
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(writers.values()),
        )
        try:
            for writer in writers.values():
                os.close(writer)
            stopped = _follow(machine, selector, watch, started)
        finally:
            qemu.kill()
            qemu.wait()
            for reader, _ in pipes.values():
                os.close(reader)
    verdict = _verdict(watch, stopped)
    return Outcome(verdict, watch.status, bytes(watch.console), watch.dmesg)


def _follow(
    machine: Machine, selector: selectors.BaseSelector, watch: _Watch, started: float
) -> bool:
    """Copy output until the machine is gone; True when it had to be stopped."""
    deadline = started + machine.boot_timeout_s
    was_up = ending = False
    while selector.get_map():
        left = deadline - time.monotonic()
        if left <= 0:
            return True
        for key, _ in selector.select(left):
            data = os.read(key.fd, 1 << 16)
            if not data:
                selector.unregister(key.fd)
                continue
            watch.hear(key.data, data)
        if watch.up and not was_up:
            was_up = True
            deadline = time.monotonic() + machine.timeout_s
        if watch.status is not None and not ending:
            ending = True
            deadline = time.monotonic() + POWER_OFF_S
    return False


def _verdict(watch: _Watch, stopped: bool) -> Verdict | None:
    if PANIC_MARK in watch.console:
        return Verdict.PANIC
    if watch.status is not None:
        return None
    if not watch.up:
        return Verdict.NEVER_BOOTED
    return Verdict.HANG if stopped else Verdict.NO_STATUS
