# SPDX-License-Identifier: MIT
"""Install, status, verify and revert on a throw-away root with a small DKMS module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from driverpatch import cli, install
from driverpatch.elf import module_build_id
from driverpatch.errors import DriverError, ExitCode, RefusedError
from driverpatch.initramfs import modules_in
from driverpatch.journal import Journal
from driverpatch.status import status
from driverpatch.system import System
from driverpatch.tree import TURING_FILE
from tests.driver.conftest import ROOT
from tests.driver.machine import (
    KERNEL,
    NAMES,
    PROGRAMS,
    VERSION,
    Machine,
    make_machine,
    make_module,
    put_stand_ins_on_path,
    set_loaded,
    write_initramfs,
)
from tests.requirements import skip_unless

pytestmark = pytest.mark.usefixtures("programs")

MachineMaker = Callable[..., Machine]


@pytest.fixture(scope="session")
def programs() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    skip_unless("lab", not missing, f"needs {', '.join(missing)}")


@pytest.fixture
def machine_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineMaker:
    stand_ins = put_stand_ins_on_path(tmp_path, ROOT)
    monkeypatch.setenv("PATH", f"{stand_ins}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINE_ROOT", str(tmp_path / "root"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def make(**options: bool) -> Machine:
        return make_machine(tmp_path, **options)

    return make


def do_install(machine: Machine, **options: bool) -> list[str]:
    said: list[str] = []
    chosen = {"next_boot": False, "dry_run": False} | options
    install.install(machine.build, machine.system, machine.series, say=said.append, **chosen)
    return said


def do_revert(machine: Machine, **options: bool) -> list[str]:
    said: list[str] = []
    chosen = {"force": False, "next_boot": False, "dry_run": False} | options
    install.revert(machine.system, say=said.append, **chosen)
    return said


@pytest.mark.parametrize("dkms", [True, False], ids=["dkms", "kernel-dir"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "xz"])
def test_install_and_revert(machine_at: MachineMaker, dkms: bool, compressed: bool) -> None:
    machine = machine_at(dkms=dkms, compressed=compressed)
    system, before = machine.system, machine.snapshot()
    do_install(machine)
    for module in machine.build.modules:
        chosen = system.module_file(module.name)
        assert chosen is not None and chosen.is_relative_to(system.modules_dir / "updates")
        assert module_build_id(chosen) == module.build_id
    (image,) = system.initramfs_images()
    wanted = {module.name: module.build_id for module in machine.build.modules}
    assert modules_in(image, machine.system.file_stems()) == wanted
    assert status(system).problems == []
    do_revert(machine)
    assert machine.snapshot() == before
    assert status(system).state == "none"


def test_renamed_module_files_are_found_and_replaced(machine_at: MachineMaker) -> None:
    """Debian has nvidia-current-open.ko, which an install command of modprobe points to."""
    machine = machine_at(renamed=True)
    system, before = machine.system, machine.snapshot()
    for name in NAMES:
        set_loaded(system, name, loaded=True)
    do_install(machine)
    chosen = system.module_file("nvidia")
    assert chosen is not None and chosen.name == "nvidia-current-open.ko"
    assert module_build_id(chosen) == machine.build.modules[0].build_id
    assert not list(machine.root.rglob("nvidia.ko"))
    assert status(system).problems == []
    assert [copy.place for copy in status(system).copies["nvidia"]] == [
        "running",
        "on disk",
        "initramfs",
    ]
    do_revert(machine)
    for name in NAMES:
        set_loaded(system, name, loaded=False)
    assert machine.snapshot() == before


def test_paths_below_the_real_root_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """modprobe -d / prints two slashes, and Path('//lib') is not below Path('/lib')."""
    printed = f"insmod //lib/modules/{KERNEL}/updates/nvidia.ko"
    monkeypatch.setattr(System, "_modprobe_shows", lambda *arguments: printed)
    system = System(Path("/"), KERNEL)
    found = system.module_file("nvidia")
    assert found is not None and found.is_relative_to(system.modules_dir)


def test_revert_twice_does_nothing_more(machine_at: MachineMaker) -> None:
    machine = machine_at()
    before = machine.snapshot()
    do_install(machine)
    do_revert(machine)
    assert do_revert(machine) == ["nothing to revert: no installation is recorded"]
    assert machine.snapshot() == before


def test_dry_runs_change_nothing(machine_at: MachineMaker) -> None:
    machine = machine_at()
    before = machine.snapshot()
    said = "\n".join(do_install(machine, dry_run=True))
    assert f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko" in said
    assert "rebuild /boot/initrd.img" in said
    assert machine.snapshot() == before
    do_install(machine)
    installed = machine.snapshot()
    do_revert(machine, dry_run=True)
    assert machine.snapshot() == installed


@pytest.mark.parametrize("what", ["install", "revert"])
def test_killed_at_every_step(tmp_path: Path, what: str) -> None:
    program = ROOT / "tests/driver/kill_at_every_step.py"
    done = subprocess.run(
        [sys.executable, program, tmp_path, what], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_error_half_way_is_taken_back(
    machine_at: MachineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_at()
    before = machine.snapshot()

    def fail(self: System, image: Path) -> None:
        raise DriverError("rebuilding failed")

    with monkeypatch.context() as patched, pytest.raises(DriverError, match="rebuilding failed"):
        patched.setattr(System, "rebuild_initramfs", fail)
        do_install(machine)
    assert machine.snapshot() == before


def test_module_that_modprobe_would_not_choose_is_taken_back(
    machine_at: MachineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """depmod that does not see the new files must not pass for an installation."""
    machine = machine_at(dkms=False)
    before = machine.snapshot()
    with monkeypatch.context() as patched, pytest.raises(DriverError, match="modprobe would load"):
        patched.setattr(System, "depmod", lambda self: None)
        do_install(machine)
    assert machine.snapshot() == before


def test_initramfs_that_keeps_the_old_copy_is_taken_back(
    machine_at: MachineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_at()
    before = machine.snapshot()
    with monkeypatch.context() as patched, pytest.raises(DriverError, match=r"initrd.* holds"):
        patched.setattr(System, "rebuild_initramfs", lambda self, image: None)
        do_install(machine)
    assert machine.snapshot() == before


def test_initramfs_without_a_copy_is_left_alone(machine_at: MachineMaker) -> None:
    machine = machine_at()
    (image,) = machine.system.initramfs_images()
    image.write_bytes(b"")
    do_install(machine)
    assert image.read_bytes() == b""


def test_second_install_is_refused(machine_at: MachineMaker) -> None:
    machine = machine_at()
    do_install(machine)
    with pytest.raises(RefusedError, match="run 'driver revert' first"):
        do_install(machine)


def test_two_at_once_are_refused(machine_at: MachineMaker) -> None:
    machine = machine_at()
    with (
        install.exclusive(machine.system),
        pytest.raises(RefusedError, match="another install"),
        install.exclusive(machine.system),
    ):
        pass


def test_other_user_space_is_refused(machine_at: MachineMaker) -> None:
    machine = machine_at()
    library = machine.root / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}"
    library.rename(library.with_name("libnvidia-ml.so.580.1.2"))
    with pytest.raises(RefusedError, match=r"user-space driver is 580\.1\.2"):
        do_install(machine)


def test_changed_build_is_refused(machine_at: MachineMaker) -> None:
    machine = machine_at()
    with machine.build.modules[0].path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(RefusedError, match="is not what was built"):
        do_install(machine)


def use_gpu(machine: Machine, pid: int) -> None:
    process = machine.root / f"proc/{pid}"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("trainer\n")
    (process / "fd/5").symlink_to("/dev/nvidia0")


def test_gpu_in_use_is_refused_unless_next_boot(machine_at: MachineMaker) -> None:
    machine = machine_at()
    set_loaded(machine.system, "nvidia", loaded=True)
    stock = machine.system.running_build_id("nvidia")
    use_gpu(machine, 4711)
    with pytest.raises(RefusedError, match=r"4711 \(trainer\)"):
        do_install(machine)
    do_install(machine, next_boot=True)
    assert machine.system.running_build_id("nvidia") == stock
    problems = status(machine.system).problems
    assert problems == ["nvidia that runs is another build; reload it or reboot"]
    with pytest.raises(RefusedError, match="4711"):
        do_revert(machine)
    do_revert(machine, next_boot=True)


def test_loaded_modules_are_reloaded(machine_at: MachineMaker) -> None:
    machine = machine_at()
    for name in NAMES:
        set_loaded(machine.system, name, loaded=True)
    stock = machine.system.running_build_id("nvidia")
    do_install(machine)
    assert machine.system.loaded() == ["nvidia-uvm", "nvidia"]
    assert machine.system.running_build_id("nvidia") == machine.build.modules[0].build_id
    do_revert(machine)
    assert machine.system.loaded() == ["nvidia-uvm", "nvidia"]
    assert machine.system.running_build_id("nvidia") == stock


def test_module_that_does_not_load_is_taken_back(
    machine_at: MachineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_at()
    for name in NAMES:
        set_loaded(machine.system, name, loaded=True)
    stock = machine.system.running_build_id("nvidia")
    on_disk = {k: v for k, v in machine.snapshot().items() if not k.startswith(("proc", "sys"))}
    modprobe = install.reload

    def rejecting(system: System, loaded: list[str]) -> None:
        with monkeypatch.context() as patched:
            patched.setenv("MODPROBE_FAILS", "nvidia")
            modprobe(system, loaded)

    with monkeypatch.context() as patched, pytest.raises(DriverError, match="Key was rejected"):
        patched.setattr(install, "reload", rejecting)
        do_install(machine)
    now = {k: v for k, v in machine.snapshot().items() if not k.startswith(("proc", "sys"))}
    assert now == on_disk
    assert machine.system.loaded() == ["nvidia-uvm", "nvidia"]
    assert machine.system.running_build_id("nvidia") == stock


@pytest.mark.parametrize("enforced", ["sig_enforce", "lockdown"])
def test_unsigned_module_is_refused_where_signatures_count(
    machine_at: MachineMaker, enforced: str
) -> None:
    machine = machine_at()
    if enforced == "sig_enforce":
        file, text = "sys/module/module/parameters/sig_enforce", "Y\n"
    else:
        file, text = "sys/kernel/security/lockdown", "none [integrity] confidentiality\n"
    (machine.root / file).parent.mkdir(parents=True)
    (machine.root / file).write_text(text)
    before = machine.snapshot()
    with pytest.raises(RefusedError, match="is not signed and the kernel demands it"):
        do_install(machine)
    assert machine.snapshot() == before


def test_lockdown_none_takes_unsigned_modules(machine_at: MachineMaker) -> None:
    machine = machine_at()
    file = machine.root / "sys/kernel/security/lockdown"
    file.parent.mkdir(parents=True)
    file.write_text("[none] integrity confidentiality\n")
    do_install(machine)


def test_file_changed_since_is_not_overwritten(machine_at: MachineMaker) -> None:
    machine = machine_at()
    do_install(machine)
    changed = machine.system.modules_dir / "updates/dkms/nvidia.ko"
    make_module(changed, "nvidia", 7777)
    newer = changed.read_bytes()
    problems = status(machine.system).problems
    assert "nvidia on disk is another build than was installed" in problems
    with pytest.raises(RefusedError, match=r"changed by others.*updates/dkms/nvidia\.ko"):
        do_revert(machine)
    do_revert(machine, force=True)
    assert changed.read_bytes() == newer
    assert not Journal(machine.root, machine.system.state_dir).path.exists()


def test_initramfs_with_an_old_copy_is_seen(machine_at: MachineMaker) -> None:
    machine = machine_at()
    (image,) = machine.system.initramfs_images()
    old = image.read_bytes()
    do_install(machine)
    image.write_bytes(old)
    problems = status(machine.system).problems
    assert "nvidia initramfs is another build than was installed" in problems
    copies = status(machine.system).copies["nvidia"]
    assert [(copy.place, copy.identity) for copy in copies] == [
        ("on disk", "A+B"),
        ("initramfs", "as before the installation"),
    ]


def test_damaged_backup_is_said(machine_at: MachineMaker) -> None:
    machine = machine_at()
    do_install(machine)
    backup = next((machine.system.state_dir / "backup").glob("*nvidia.ko"))
    backup.write_bytes(b"damaged")
    with pytest.raises(DriverError, match="is damaged"):
        do_revert(machine)


def test_revert_works_from_another_kernel(machine_at: MachineMaker) -> None:
    machine = machine_at()
    before = machine.snapshot()
    do_install(machine)
    other = System(machine.root, "10.0.0-new")
    assert status(other).problems == [f"installed for kernel {KERNEL}, which is not this one"]
    install.revert(other, force=False, next_boot=False, dry_run=False, say=lambda line: None)
    assert machine.snapshot() == before


def test_dkms_builds_the_patched_source_for_a_new_kernel(
    machine_at: MachineMaker, tmp_path: Path
) -> None:
    """The rehearsal of a kernel update: the real DKMS, on the throw-away root."""
    skip_unless("lab", shutil.which("dkms") is not None, "needs dkms")
    machine = machine_at()
    headers = tmp_path / "headers"
    (headers / "include").mkdir(parents=True)
    (headers / ".config").touch()
    # DKMS itself resolves its source link on the machine it runs on.
    link = machine.root / f"var/lib/dkms/nvidia/{VERSION}/source"
    link.unlink()
    link.symlink_to(machine.root / f"usr/src/nvidia-{VERSION}")

    def text_of_new_build(kernel: str) -> bytes:
        """What a new kernel's autoinstall puts where modprobe looks."""
        (machine.root / "lib/modules" / kernel).mkdir()
        command = ["dkms", "autoinstall", "-k", kernel, "-a", "x86_64", "--no-depmod"]
        command += ["--dkmstree", str(machine.root / "var/lib/dkms")]
        command += ["--sourcetree", str(machine.root / "usr/src")]
        command += ["--installtree", str(machine.root / "lib/modules")]
        command += ["--kernelsourcedir", str(headers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (installed,) = (machine.root / "lib/modules" / kernel).rglob("nvidia.ko")
        return installed.read_bytes()

    assert b"stock" in text_of_new_build("10.0.1-stock")
    do_install(machine)
    assert b"patched" in text_of_new_build("10.0.2-patched")
    do_revert(machine)
    assert b"stock" in text_of_new_build("10.0.3-stock")


def test_dkms_with_a_binary_resource_manager_is_said(machine_at: MachineMaker) -> None:
    machine = machine_at()
    shutil.rmtree(machine.root / f"usr/src/nvidia-{VERSION}/src")
    said = "\n".join(do_install(machine))
    assert "has the resource manager as a binary" in said
    assert not (machine.root / f"usr/src/nvidia-{VERSION}/patches").exists()


def test_dkms_source_that_the_patches_do_not_fit_is_left_alone(machine_at: MachineMaker) -> None:
    machine = machine_at()
    source = machine.root / f"usr/src/nvidia-{VERSION}"
    (source / TURING_FILE).write_text("patched by somebody else\n")
    said = "\n".join(do_install(machine))
    assert "is not what the patches are for" in " ".join(said.split())
    assert not (source / "patches").exists()
    assert "PATCH" not in (source / "dkms.conf").read_text()


def test_command_line(machine_at: MachineMaker, capsys: pytest.CaptureFixture[str]) -> None:
    machine = machine_at(dkms=False)
    where = ["--root", str(machine.root), "--kernel", KERNEL]
    tree = str(machine.build.patched.root)
    before = machine.snapshot()
    assert cli.main(["verify", *where]) == ExitCode.FAILED
    assert cli.main(["install", *where, tree]) == ExitCode.OK
    assert cli.main(["install", *where, tree]) == ExitCode.REFUSED
    capsys.readouterr()
    assert cli.main(["verify", *where, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["arm"] == "ab"
    assert cli.main(["status", *where]) == ExitCode.OK
    text = capsys.readouterr().out
    assert f"{VERSION} with A+B is installed" in text
    assert max(map(len, text.splitlines())) <= 80
    assert cli.main(["revert", *where]) == ExitCode.OK
    assert machine.snapshot() == before


def test_tree_that_is_not_built(
    machine_at: MachineMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = machine_at()
    (machine.build.patched.root / "vmmprof-build.json").unlink()
    where = ["--root", str(machine.root), "--kernel", KERNEL]
    assert cli.main(["install", *where, str(machine.build.patched.root)]) == ExitCode.USAGE
    assert "run 'driver build'" in capsys.readouterr().err


def test_other_kernel_is_refused(machine_at: MachineMaker) -> None:
    machine = machine_at()
    other = Machine(System(machine.root, "10.0.0"), machine.build, machine.series)
    with pytest.raises(RefusedError, match=f"built for kernel {KERNEL}"):
        do_install(other)


def test_signing(machine_at: MachineMaker, tmp_path: Path) -> None:
    """Signed with the key that DKMS's configuration names, once, and installed."""
    found = sorted(Path("/usr/lib").glob("linux-kbuild-*/scripts/sign-file"))
    tools = bool(found) and shutil.which("openssl") is not None
    skip_unless("lab", tools, "needs sign-file of the kernel headers, and openssl")
    machine = machine_at()
    scripts = machine.system.modules_dir / "build/scripts"
    scripts.mkdir(parents=True)
    (scripts / "sign-file").symlink_to(found[-1])
    key, certificate = machine.root / "etc/dkms/my.key", machine.root / "etc/dkms/my.der"
    key.parent.mkdir(parents=True)
    subject = ["-subj", "/CN=vmmprof test key", "-outform", "DER", "-out", str(certificate)]
    request = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes"]
    subprocess.run([*request, "-keyout", key, *subject], check=True, capture_output=True)
    (key.parent / "framework.conf").write_text(
        'mok_signing_key="/etc/dkms/my.key"\nmok_certificate=/etc/dkms/my.der\n'
    )
    enforce = machine.root / "sys/module/module/parameters/sig_enforce"
    enforce.parent.mkdir(parents=True)
    enforce.write_text("Y\n")
    identities = [module.build_id for module in machine.build.modules]
    where = ["--root", str(machine.root), "--kernel", KERNEL, str(machine.build.patched.root)]
    assert cli.main(["sign", *where]) == ExitCode.OK
    signed = install.Build.load(machine.build.patched.root)
    assert [module.build_id for module in signed.modules] == identities
    keys = machine.root / "proc/keys"
    keys.write_text("1 I------ 1 perm 1f030000 0 0 asymmetri Somebody else: 00: X509.rsa\n")
    machine = Machine(machine.system, signed, machine.series)
    with pytest.raises(RefusedError, match="does not know the signer 'vmmprof test key'"):
        do_install(machine)
    keys.write_text("1 I------ 1 perm 1f030000 0 0 asymmetri vmmprof test key: 00: X509.rsa\n")
    do_install(machine)
    content = {module.name: module.path.read_bytes() for module in signed.modules}
    assert cli.main(["sign", *where]) == ExitCode.OK
    assert {m.name: m.path.read_bytes() for m in signed.modules} == content


def test_initramfs_of_this_machine_reads_like_its_lister(tmp_path: Path) -> None:
    """An image that update-initramfs' own packer (cpio) wrote reads back."""
    skip_unless("lab", shutil.which("cpio") is not None, "needs cpio")
    module = tmp_path / "nvidia.ko"
    make_module(module, "nvidia", 1)
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"],
        input=b"nvidia.ko\n",
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    image = tmp_path / "image"
    image.write_bytes(b"\0" * 512 + packed)
    assert modules_in(image, {"nvidia": "nvidia"}) == {"nvidia": module_build_id(module)}


def test_writing_needs_no_initramfs(machine_at: MachineMaker) -> None:
    machine = machine_at()
    for image in machine.system.initramfs_images():
        image.unlink()
    before = machine.snapshot()
    do_install(machine)
    do_revert(machine)
    assert machine.snapshot() == before
    write_initramfs(machine.system)
