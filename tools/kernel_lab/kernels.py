# SPDX-License-Identifier: MIT
"""The kernels of the lab: fetched as Debian packages, unpacked, never installed."""

from __future__ import annotations

import fcntl
import lzma
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_lab.errors import LabError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "http://deb.debian.org/debian"

# What the first stage of the boot needs beyond the kernel proper; everything these depend on is
# taken along.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
# The parts of linux-image that hold them: unpacking all 4000 modules takes longer than a boot.
MODULE_FOLDERS = (
    "drivers/virtio",
    "net/9p",
    "fs/9p",
    "fs/netfs",
    "fs/fscache",
    "fs/overlayfs",
)
XZ_MAGIC = b"\xfd7zXZ\0"
ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Suite:
    """A Debian suite whose kernel the lab can boot."""

    name: str
    about: str


SUITES = {
    suite.name: suite
    for suite in (
        Suite("bookworm", "Debian 12's own kernel, 6.1"),
        Suite("bookworm-backports", "a newer kernel, 6.12 or later, built for Debian 12"),
    )
}
DEFAULT_SUITE = "bookworm"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: what to boot and what to build modules against."""

    release: str
    folder: Path

    @property
    def image(self) -> Path:
        """An ELF vmlinux (booted by PVH, without decompressing under emulation), or a bzImage."""
        return self.folder / "kernel-image"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"

    @property
    def build(self) -> Path:
        """What /lib/modules/RELEASE/build is on an installed system."""
        return self.folder / f"root/usr/src/linux-headers-{self.release}"

    @property
    def source(self) -> Path:
        """What /lib/modules/RELEASE/source is on an installed system."""
        flavour = self.release.rsplit("-", 1)[1]
        return self.build.with_name(self.build.name.removesuffix(flavour) + "common")


def cache_folder() -> Path:
    """Where kernels are kept: $KERNEL_LAB_CACHE, or vmmprof-kernel-lab in the user's cache."""
    if override := os.environ.get("KERNEL_LAB_CACHE"):
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vmmprof-kernel-lab"


def installed_kernel(suite: Suite) -> Kernel | None:
    """The suite's kernel if it was set up before."""
    folder = cache_folder() / suite.name
    try:
        release = (folder / "release").read_text().strip()
    except FileNotFoundError:
        return None
    return Kernel(release, folder)


def fetch_kernel(suite: Suite) -> Kernel:
    """Download and unpack the suite's newest kernel, replacing what was there."""
    if not KEYRING.exists():
        raise LabError(
            f"{KEYRING} is missing; the lab fetches Debian kernels and checks them by it"
        )
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / suite.name
    with _locked(cache / f"{suite.name}.lock"):
        work = cache / f"{suite.name}.partial"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            release = _unpack(suite, work)
            (work / "release").write_text(release + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    _use_absolute_headers(Kernel(release, folder))
    return Kernel(release, folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class _PrivateApt:
    """apt with its own source list and state, so that the machine's stay as they are."""

    def __init__(self, suite: Suite, folder: Path) -> None:
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text(
            f"deb [signed-by={KEYRING}] {MIRROR} {suite.name} main\n"
        )
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::Lists": folder / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": folder / "cache",
            # Without it apt drops to a user who may not write here, and warns.
            "APT::Sandbox::User": "root",
        }
        self._options = [
            part for item in settings.items() for part in ("-o", "{}={}".format(*item))
        ]
        self._folder = folder
        self._call("apt-get", "update", "-qq")

    def _call(self, program: str, *arguments: str) -> str:
        command = [program, *self._options, *arguments]
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise LabError(f"{program} {' '.join(arguments)} failed: {reason}")
        return done.stdout

    def dependencies(self, package: str) -> list[str]:
        lines = self._call("apt-cache", "depends", package).splitlines()
        return [line.split()[1] for line in lines if line.strip().startswith("Depends:")]

    def download(self, packages: list[str]) -> list[Path]:
        self._call("apt-get", "download", "-qq", *packages)
        return sorted(self._folder.glob("*.deb"))


def _unpack(suite: Suite, work: Path) -> str:
    apt = _PrivateApt(suite, work / "apt")
    (image_package,) = apt.dependencies("linux-image-amd64")
    release = image_package.removeprefix("linux-image-")
    headers = f"linux-headers-{release}"
    beside = [
        name
        for name in apt.dependencies(headers)
        if name.startswith("linux-kbuild-") or name.endswith("-common")
    ]
    root = work / "root"
    root.mkdir()
    for package in apt.download([image_package, headers, *beside]):
        if package.name.startswith("linux-image-"):
            parts = [f"./boot/vmlinuz-{release}"]
            modules = f"./lib/modules/{release}"
            parts += [f"{modules}/kernel/{part}" for part in MODULE_FOLDERS]
            parts += [f"{modules}/modules.order", f"{modules}/modules.builtin"]
        else:
            parts = ["./usr"]
        _extract(package, root, parts)
    shutil.rmtree(work / "apt")
    _write_kernel_image(root / f"boot/vmlinuz-{release}", work / "kernel-image")
    _write_boot_modules(root, release, work / "boot-modules")
    return release


def _extract(package: Path, root: Path, parts: list[str]) -> None:
    """Unpack those of the parts that the package has (fs/fscache is gone in newer kernels)."""
    archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
    tar = ["tar", "-x", "-C", str(root), "--no-same-owner", *parts]
    subprocess.run(tar, stdin=archive.stdout, stderr=subprocess.DEVNULL, check=False)
    if archive.stdout is not None:
        archive.stdout.close()
    archive.wait()
    if not (root / parts[0]).exists():
        raise LabError(f"package {package.name} has no {parts[0]}; its layout is not the known one")


def _write_kernel_image(bzimage: Path, target: Path) -> None:
    """The ELF kernel inside a bzImage; the bzImage itself when it is not compressed by xz."""
    raw = bzimage.read_bytes()
    start = raw.find(XZ_MAGIC)
    if start >= 0:
        elf = lzma.LZMADecompressor().decompress(raw[start:])
        if elf.startswith(ELF_MAGIC):
            target.write_bytes(elf)
            return
    target.write_bytes(raw)


def _write_boot_modules(root: Path, release: str, target: Path) -> None:
    """The boot's modules in loading order as NN-name.ko, not compressed."""
    target.mkdir()
    # depmod complains about the modules left in the package; what it writes is right all the same.
    subprocess.run(["depmod", "-b", str(root), release], stderr=subprocess.DEVNULL, check=True)
    order: list[Path] = []
    for name in BOOT_MODULES:
        shown = subprocess.run(
            ["modprobe", "-d", str(root), "-S", release, "--show-depends", name],
            capture_output=True,
            text=True,
            check=False,
        )
        if shown.returncode != 0:
            raise LabError(f"kernel {release} has no module {name}: {shown.stderr.strip()}")
        for line in shown.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and Path(words[1]) not in order:
                order.append(Path(words[1]))
    for index, module in enumerate(order):
        data = module.read_bytes()
        if data.startswith(XZ_MAGIC):
            data = lzma.decompress(data)
        (target / f"{index:02}-{module.name.removesuffix('.xz')}").write_bytes(data)


def _use_absolute_headers(kernel: Kernel) -> None:
    """Debian's header Makefile names /usr/src; these headers are elsewhere."""
    makefile = kernel.build / "Makefile"
    makefile.write_text(f"include {kernel.source}/Makefile\n")
