# SPDX-License-Identifier: MIT
"""The machine whose driver is looked at or changed, under a root directory.

Every path goes through the root, so that the same code runs on '/' and on a
throw-away root in tests.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driverpatch.elf import build_id_of_notes, module_build_id
from driverpatch.errors import DriverError

MODULE_NAMES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
# Users before what they use: the order in which they can be unloaded.
UNLOAD_ORDER = ("nvidia-peermem", "nvidia-drm", "nvidia-uvm", "nvidia-modeset", "nvidia")
_LIBRARY_DIRS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")


_MODPROBE_CONFIG = (
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "lib/modprobe.d",
)


def stem_of(file: Path) -> str:
    """'nvidia-uvm' of nvidia_uvm.ko.xz: kmod takes - and _ for the same."""
    return file.name.split(".ko", 1)[0].replace("_", "-")


def run(command: Sequence[str], *, what: str) -> str:
    """Standard output of a command that has to succeed. Raises DriverError saying `what`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DriverError(f"{what}: no program '{command[0]}'; install it") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise DriverError(f"{what}: {said[-1] if said else f'exit {done.returncode}'}")
    return done.stdout


@dataclass(frozen=True)
class System:
    root: Path
    kernel: str
    """Kernel release whose modules are meant."""

    @classmethod
    def running(cls, root: Path, kernel: str | None) -> System:
        return cls(root, kernel or os.uname().release)

    @property
    def modules_dir(self) -> Path:
        return self.root / "lib/modules" / self.kernel

    @property
    def state_dir(self) -> Path:
        return self.root / "var/lib/vmmprof-driver"

    # What modprobe would do.

    def module_file(self, name: str) -> Path | None:
        """The file that modprobe would load for the module; None when it knows none.

        Distributions may rename it: Debian's modprobe.d turns 'nvidia' into
        'nvidia-current-open' by an install command, which is followed here.
        """
        line = self._modprobe_shows(name)
        if line.startswith("install "):
            renamed = re.search(r"modprobe\s.*(?:-i|--ignore-install)\s+([\w-]+)", line)
            if renamed is None:
                raise DriverError(f"modprobe's install command for {name} cannot be read: {line}")
            line = self._modprobe_shows(renamed.group(1), "--ignore-install")
        words = line.split()
        if len(words) < 2 or words[0] != "insmod":
            return None
        # On '/' modprobe prints '//lib/...', which pathlib takes for another root.
        return Path("/" + words[1].lstrip("/"))

    def _modprobe_shows(self, name: str, *options: str) -> str:
        """The last line of what modprobe would do: that of the module itself."""
        command = ["modprobe", "-d", str(self.root), "-S", self.kernel, "--show-depends"]
        config = [self.root / directory for directory in _MODPROBE_CONFIG]
        for directory in [found for found in config if found.is_dir()] or [Path("/dev/null")]:
            command += ["-C", str(directory)]
        try:
            done = subprocess.run(
                [*command, *options, name], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            raise DriverError("no program 'modprobe'; install kmod") from None
        lines = done.stdout.strip().splitlines()
        return lines[-1].strip() if done.returncode == 0 and lines else ""

    def file_stems(self) -> dict[str, str]:
        """File names without suffix, as modprobe resolves them, to the modules' own names."""
        stems = {name: name for name in MODULE_NAMES}
        for name in MODULE_NAMES:
            file = self.module_file(name)
            if file is not None:
                stems[stem_of(file)] = name
        return stems

    def depmod(self) -> None:
        run(["depmod", "-b", str(self.root), self.kernel], what="depmod")

    # What runs now.

    def loaded(self) -> list[str]:
        """Names of NVIDIA's modules that are loaded, users first."""
        table = self.root / "proc/modules"
        if not table.is_file():
            return []
        names = {line.split()[0].replace("_", "-") for line in table.read_text().splitlines()}
        return [name for name in UNLOAD_ORDER if name in names]

    def running_build_id(self, name: str) -> str | None:
        """Build-id of a loaded module; None when it is not loaded or has none."""
        notes = self.root / "sys/module" / name.replace("-", "_") / "notes"
        for file in sorted(notes.glob("*build-id*")) if notes.is_dir() else []:
            found = build_id_of_notes(file.read_bytes())
            if found is not None:
                return found
        return None

    def installed_build_id(self, name: str) -> str | None:
        file = self.module_file(name)
        return module_build_id(file) if file is not None else None

    def gpu_users(self) -> dict[int, str]:
        """PID to command of every process that holds a device file of the driver open."""
        users: dict[int, str] = {}
        for process in sorted((self.root / "proc").glob("[0-9]*")):
            try:
                targets = [str(link.readlink()) for link in (process / "fd").iterdir()]
                command = (process / "comm").read_text().strip()
            except OSError:  # gone meanwhile
                continue
            if any(target.startswith("/dev/nvidia") for target in targets):
                users[int(process.name)] = command
        return users

    def user_space_versions(self) -> set[str]:
        """Versions of the driver libraries that are installed."""
        found = set()
        for directory in _LIBRARY_DIRS:
            for library in (self.root / directory).glob("libnvidia-ml.so.*.*"):
                found.add(library.name.removeprefix("libnvidia-ml.so."))
        return found

    def enforces_signatures(self) -> str:
        """Why the kernel would refuse an unsigned module; '' when it would not."""
        lockdown = self.root / "sys/kernel/security/lockdown"
        state = lockdown.read_text() if lockdown.is_file() else ""
        chosen = re.search(r"\[(\w+)\]", state)
        if chosen is not None and chosen.group(1) != "none":
            return f"lockdown is '{chosen.group(1)}'"
        enforce = self.root / "sys/module/module/parameters/sig_enforce"
        if enforce.is_file() and enforce.read_text().strip() == "Y":
            return "module.sig_enforce is set"
        return ""

    def trusts_signer(self, signer: str) -> bool | None:
        """Whether a kernel keyring names the signer; None when keyrings cannot be read."""
        keys = self.root / "proc/keys"
        try:
            return signer in keys.read_text()
        except OSError:
            return None

    # The initramfs.

    def initramfs_images(self) -> list[Path]:
        boot = self.root / "boot"
        names = (f"initrd.img-{self.kernel}", f"initramfs-{self.kernel}.img")
        return [boot / name for name in names if (boot / name).is_file()]

    def rebuild_initramfs(self, image: Path) -> None:
        if image.name.startswith("initrd.img-"):
            boot = str(image.parent)
            command = ["update-initramfs", "-u", "-k", self.kernel, "-b", boot]
        else:
            command = ["dracut", "--force", str(image), self.kernel]
        run(command, what=f"rebuilding {image.name}")
