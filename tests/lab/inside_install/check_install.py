# SPDX-License-Identifier: MIT
"""tools/driver on a running kernel: real modules, the real modprobe, a real reload.

LAB_MODULES holds stock/nvidia.ko and patched/nvidia.ko, two builds of a small
module of our own. The order of the checks matters: signature enforcement can
be switched on in a running kernel, but not off again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "tools"))

from driverpatch.building import record_build  # noqa: E402
from driverpatch.elf import module_build_id  # noqa: E402
from driverpatch.patching import Patched  # noqa: E402
from driverpatch.system import System  # noqa: E402

DRIVER = REPOSITORY / "tools/driver"
KERNEL = os.uname().release
BUILT = Path(os.environ["LAB_MODULES"])
HERE = System(Path("/"), KERNEL)
STOCK = module_build_id(BUILT / "stock/nvidia.ko")
PATCHED = module_build_id(BUILT / "patched/nvidia.ko")


def driver(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DRIVER, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built tree, as `driver build` leaves it."""
    root = tmp_path_factory.mktemp("built")
    (root / "kernel-open").mkdir()
    shutil.copy2(BUILT / "patched/nvidia.ko", root / "kernel-open/nvidia.ko")
    patched = Patched(root, "999.1", "ab", "c6", "0" * 16)
    patched.save()
    record_build(patched, KERNEL)
    return root


@pytest.fixture(scope="module", autouse=True)
def stock_driver() -> None:
    """The stock module lies where DKMS puts it, and is loaded."""
    target = HERE.modules_dir / "updates/dkms/nvidia.ko"
    target.parent.mkdir(parents=True)
    shutil.copy2(BUILT / "stock/nvidia.ko", target)
    HERE.depmod()
    subprocess.run(["modprobe", "nvidia"], check=True)
    assert HERE.running_build_id("nvidia") == STOCK != PATCHED


def test_gpu_in_use_is_refused(tree: Path) -> None:
    device = Path("/dev/nvidia0")
    os.mknod(device, 0o020666, os.makedev(1, 3))
    try:
        with device.open("rb"):
            done = driver("install", str(tree))
    finally:
        device.unlink()
    assert done.returncode == 6
    assert f"{os.getpid()} (" in done.stderr
    assert HERE.running_build_id("nvidia") == STOCK


def test_install_reloads_and_revert_brings_stock_back(tree: Path) -> None:
    done = driver("install", str(tree))
    assert done.returncode == 0, done.stdout + done.stderr
    assert HERE.running_build_id("nvidia") == PATCHED
    done = driver("verify")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running    build-id" in done.stdout
    done = driver("revert")
    assert done.returncode == 0, done.stdout + done.stderr
    assert HERE.running_build_id("nvidia") == STOCK
    assert HERE.installed_build_id("nvidia") == STOCK


def test_next_boot_leaves_the_running_module(tree: Path) -> None:
    assert driver("install", "--next-boot", str(tree)).returncode == 0
    assert HERE.running_build_id("nvidia") == STOCK
    assert HERE.installed_build_id("nvidia") == PATCHED
    assert driver("verify").returncode == 1
    assert driver("revert", "--next-boot").returncode == 0
    assert HERE.installed_build_id("nvidia") == STOCK


def test_module_in_use_is_taken_back(tree: Path) -> None:
    """A user that holds the module without a device file: modprobe -r fails, nothing stays."""
    with Path("/sys/kernel/debug/nvidia_hold").open("rb"):
        done = driver("install", str(tree))
    assert done.returncode == 1
    assert "unloading nvidia" in done.stderr
    assert HERE.running_build_id("nvidia") == STOCK
    assert HERE.installed_build_id("nvidia") == STOCK
    assert not HERE.state_dir.exists()


def test_secure_boot_refuses_what_the_kernel_would_refuse(tree: Path, tmp_path: Path) -> None:
    Path("/sys/module/module/parameters/sig_enforce").write_text("1")
    done = driver("install", str(tree))
    assert done.returncode == 6
    assert "is not signed and the kernel demands it" in done.stderr
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.der"
    subject = ["-subj", "/CN=vmmprof lab key", "-outform", "DER", "-out", certificate]
    request = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes"]
    subprocess.run([*request, "-keyout", key, *subject], check=True, capture_output=True)
    done = driver("sign", str(tree), "--key", str(key), "--certificate", str(certificate))
    assert done.returncode == 0, done.stderr
    done = driver("install", str(tree))
    assert done.returncode == 6
    assert "does not know the signer 'vmmprof lab key'" in done.stderr
    # The kernel agrees: it takes neither module now.
    signed = tree / "kernel-open/nvidia.ko"
    subprocess.run(["modprobe", "-r", "nvidia"], check=True)
    for module in (BUILT / "patched/nvidia.ko", signed):
        refused = subprocess.run(["insmod", module], capture_output=True, text=True, check=False)
        assert refused.returncode != 0
