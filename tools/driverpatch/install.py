# SPDX-License-Identifier: MIT
"""Install and revert as transactions; see journal.py for how they survive a kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverpatch.building import Build, sha256_of
from driverpatch.check import arm_name
from driverpatch.dkms import DkmsTree, find_dkms
from driverpatch.elf import is_signed
from driverpatch.errors import DriverError, RefusedError
from driverpatch.initramfs import modules_in
from driverpatch.journal import INSTALLED, INSTALLING, Journal, Manifest
from driverpatch.patching import apply_patches
from driverpatch.series import Patch, Series
from driverpatch.system import System, run, stem_of
from driverpatch.tree import TURING_FILE

Say = Callable[[str], None]


@dataclass(frozen=True)
class Replacement:
    """One file of the plan: target becomes a copy of source; None removes it."""

    target: Path
    source: Path | None


@dataclass(frozen=True)
class Plan:
    replacements: tuple[Replacement, ...]
    dkms: DkmsTree | None
    dkms_note: str
    initramfs: tuple[Path, ...]
    """Images that hold a copy and have to be rebuilt."""

    def text(self, root: Path) -> str:
        lines = []
        for replacement in self.replacements:
            path = "/" + str(replacement.target.relative_to(root))
            verb = "remove " if replacement.source is None else "write  "
            lines.append(f"  {verb} {path}")
        lines.append("  run     depmod")
        lines += [f"  rebuild /{image.relative_to(root)}" for image in self.initramfs]
        label = "  DKMS:   "
        lines.append(textwrap.fill(label + self.dkms_note, 80, subsequent_indent=" " * len(label)))
        return "\n".join(lines)


@contextmanager
def exclusive(system: System) -> Iterator[None]:
    """Hold the one lock of install and revert; the kernel drops it when the process dies."""
    directory = system.state_dir.parent
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RefusedError("another install or revert is at work; wait for it to end") from None
    finally:
        os.close(descriptor)


def check_may_install(build: Build, system: System, *, next_boot: bool) -> None:
    """Raise RefusedError for anything that makes installing this build now a mistake."""
    if build.kernel != system.kernel:
        raise RefusedError(
            f"built for kernel {build.kernel}, not {system.kernel}; build it for this kernel"
        )
    for module in build.modules:
        if not module.path.is_file() or sha256_of(module.path) != module.sha256:
            raise RefusedError(f"{module.path}: is not what was built; run 'driver build' again")
    installed = system.user_space_versions()
    if installed and build.patched.version not in installed:
        raise RefusedError(
            f"the user-space driver is {', '.join(sorted(installed))}, the modules are "
            f"{build.patched.version}; both have to be the same version"
        )
    _check_signatures(build, system)
    users = system.gpu_users()
    if users and not next_boot:
        shown = ", ".join(f"{pid} ({command})" for pid, command in users.items())
        raise RefusedError(f"the GPU is in use by {shown}; end them, or use --next-boot")


def _check_signatures(build: Build, system: System) -> None:
    why = system.enforces_signatures()
    if not why:
        return
    for module in build.modules:
        if not is_signed(module.path):
            raise RefusedError(
                f"{module.path.name} is not signed and the kernel demands it ({why}); "
                "run 'driver sign' first"
            )
        signer = run(["modinfo", "-F", "signer", str(module.path)], what="modinfo").strip()
        if system.trusts_signer(signer) is False:
            raise RefusedError(
                f"the kernel does not know the signer '{signer}' of {module.path.name}; "
                "enrol its certificate with mokutil --import and reboot"
            )


def plan_install(build: Build, system: System, series: Series, scratch: Path) -> Plan:
    """What will be written where; changes nothing. scratch: for files that the plan makes."""
    replacements: list[Replacement] = []
    for module in build.modules:
        replacements += _module_replacements(system, module.name, module.path)
    dkms = find_dkms(system, build.patched.version)
    note = "does not manage this driver; a new kernel will not get the patch by itself"
    if dkms is not None and not dkms.is_full_source:
        note = (
            f"{dkms.name}/{dkms.version} has the resource manager as a binary; a new kernel "
            "will get stock modules, run build and install for it again"
        )
    elif dkms is not None and not _patches_fit(dkms, series.patches_of(build.patched.arm), scratch):
        note = (
            f"the source of {dkms.name}/{dkms.version} is not what the patches are for; a new "
            "kernel will get modules built from it as it is"
        )
    elif dkms is not None:
        note = f"{dkms.name}/{dkms.version} gets the patches, so that a new kernel has them"
        replacements += _dkms_replacements(dkms, build, system, series, scratch)
    return Plan(tuple(replacements), dkms, note, tuple(_images_with_copies(system)))


def _patches_fit(dkms: DkmsTree, patches: list[Patch], scratch: Path) -> bool:
    """Whether the patches apply to DKMS's own source: tried on a copy of the one file."""
    copy = scratch / "dkms" / TURING_FILE
    copy.parent.mkdir(parents=True)
    shutil.copy2(dkms.source / TURING_FILE, copy)
    try:
        apply_patches(patches, scratch / "dkms")
    except DriverError:
        return False
    return True


def _module_replacements(system: System, name: str, built: Path) -> list[Replacement]:
    """Where depmod looks first: over the module that is chosen now, else updates/."""
    updates = system.modules_dir / "updates"
    chosen = system.module_file(name)
    if chosen is None or not chosen.is_relative_to(updates):
        stem = stem_of(chosen) if chosen is not None else name
        return [Replacement(updates / f"{stem}.ko", built)]
    target = chosen.parent / (chosen.name.split(".ko", 1)[0] + ".ko")
    if chosen.name == target.name:
        return [Replacement(target, built)]
    # A compressed sibling of the same name would leave it open which one is loaded.
    return [Replacement(target, built), Replacement(chosen, None)]


def _dkms_replacements(
    dkms: DkmsTree, build: Build, system: System, series: Series, scratch: Path
) -> list[Replacement]:
    patches = series.patches_of(build.patched.arm)
    conf = scratch / "dkms.conf"
    conf.write_text(dkms.conf_with(patches))
    conf.chmod(0o644)
    replacements = [
        Replacement(dkms.source / "patches" / patch.file.name, patch.file) for patch in patches
    ]
    replacements.append(Replacement(dkms.conf, conf))
    for module in build.modules:
        chosen = system.module_file(module.name)
        kept = dkms.built.get(stem_of(chosen)) if chosen is not None else None
        if kept is None:
            continue
        target = kept.parent / (kept.name.split(".ko", 1)[0] + ".ko")
        replacements.append(Replacement(target, module.path))
        if kept.name != target.name:
            replacements.append(Replacement(kept, None))
    return replacements


def _images_with_copies(system: System) -> list[Path]:
    images = system.initramfs_images()
    stems = system.file_stems() if images else {}
    return [image for image in images if modules_in(image, stems)]


def install(
    build: Build, system: System, series: Series, *, next_boot: bool, dry_run: bool, say: Say
) -> None:
    """Install the build, or change nothing. Raises RefusedError or DriverError."""
    journal = Journal(system.root, system.state_dir)
    existing = journal.load()
    if existing is not None:
        done = "an installation" if existing.state == INSTALLED else "an interrupted installation"
        raise RefusedError(f"{done} is recorded in {journal.path}; run 'driver revert' first")
    check_may_install(build, system, next_boot=next_boot)
    loaded = system.loaded()
    with tempfile.TemporaryDirectory(prefix="vmmprof-install-") as scratch:
        plan = plan_install(build, system, series, Path(scratch))
        say(plan.text(system.root))
        if dry_run:
            return
        manifest = Manifest(INSTALLING, _facts(build, system, plan))
        journal.save(manifest)
        try:
            _carry_out(plan, journal, manifest, build, system)
            if loaded and not next_boot:
                reload(system, loaded)
                _check_running(build, system)
        except BaseException as error:
            say(f"taking it back: {error or type(error).__name__}")
            revert(system, force=False, dry_run=False, next_boot=next_boot, say=say)
            if not next_boot:
                _load_again(system, loaded)
            raise
        manifest.state = INSTALLED
        journal.save(manifest)


def _facts(build: Build, system: System, plan: Plan) -> dict[str, object]:
    signer = {
        module.name: "signed" if is_signed(module.path) else "unsigned" for module in build.modules
    }
    return {
        "version": build.patched.version,
        "arm": build.patched.arm,
        "update_class": build.patched.update_class,
        "kernel": system.kernel,
        "modules": {
            module.name: {
                "build_id": module.build_id,
                "sha256": module.sha256,
                "signature": signer[module.name],
                "replaced_build_id": system.installed_build_id(module.name),
            }
            for module in build.modules
        },
        "dkms": plan.dkms_note,
        "initramfs": ["/" + str(image.relative_to(system.root)) for image in plan.initramfs],
    }


def _carry_out(
    plan: Plan, journal: Journal, manifest: Manifest, build: Build, system: System
) -> None:
    for replacement in plan.replacements:
        journal.replace(manifest, replacement.target, replacement.source)
    system.depmod()
    for module in build.modules:
        found = system.installed_build_id(module.name)
        if found != module.build_id:
            raise DriverError(
                f"modprobe would load {system.module_file(module.name)} for {module.name} "
                f"(build-id {found}), not what was built ({module.build_id})"
            )
    for image in plan.initramfs:
        system.rebuild_initramfs(image)
        check_image(image, system, {module.name: module.build_id for module in build.modules})


def check_image(image: Path, system: System, wanted: Mapping[str, str | None]) -> None:
    """Raise DriverError when the image holds another build of one of the modules."""
    for name, identity in modules_in(image, system.file_stems()).items():
        if identity != wanted.get(name, identity):
            raise DriverError(
                f"{image.name} holds {name} with build-id {identity}, not {wanted[name]}"
            )


def reload(system: System, loaded: list[str]) -> None:
    """Unload what was loaded and load it again, as the disk has it now."""
    for name in system.loaded():
        run(["modprobe", "-r", name], what=f"unloading {name}")
    for name in reversed(loaded):
        run(["modprobe", name], what=f"loading {name}")


def _load_again(system: System, loaded: list[str]) -> None:
    """After a reload that failed half way: load what is missing, from the restored files."""
    present = system.loaded()
    for name in reversed(loaded):
        if name not in present:
            run(["modprobe", name], what=f"loading {name} again")


def _check_running(build: Build, system: System) -> None:
    for module in build.modules:
        running = system.running_build_id(module.name)
        if running not in (None, module.build_id):
            raise DriverError(
                f"{module.name} runs with build-id {running} after the reload, "
                f"not {module.build_id}"
            )


def revert(system: System, *, force: bool, dry_run: bool, next_boot: bool, say: Say) -> bool:
    """Restore every file of the manifest; False when there is none, so nothing to do.

    Can be repeated after it was interrupted. Raises RefusedError when a file
    was changed by someone else since, unless force: then that file is kept.
    """
    journal = Journal(system.root, system.state_dir)
    manifest = journal.load()
    if manifest is None:
        if not dry_run:
            journal.forget()  # what an installation left that died before its manifest
        say("nothing to revert: no installation is recorded")
        return False
    system = System(system.root, manifest.facts["kernel"])
    foreign = journal.foreign(manifest)
    if foreign and not force:
        raise RefusedError(
            f"changed by others since the installation: {', '.join(foreign)}; "
            "with --force these are left as they are and the rest is restored"
        )
    if dry_run:
        for change in reversed(manifest.changes):
            say(f"  restore {change.path}" if change.backup else f"  remove  {change.path}")
        return True
    users = system.gpu_users()
    was_installed = manifest.state == INSTALLED
    if users and was_installed and not next_boot:
        shown = ", ".join(f"{pid} ({command})" for pid, command in users.items())
        raise RefusedError(f"the GPU is in use by {shown}; end them, or use --next-boot")
    loaded = system.loaded()
    for path in journal.restore(manifest, keep=set(foreign)):
        say(f"  restored {path}")
    _refresh_indexes(manifest, system)
    if loaded and not next_boot and _runs_ours(manifest, system):
        reload(system, loaded)
    journal.forget()
    say(f"reverted {arm_name(manifest.facts['arm'])} of {manifest.facts['version']}")
    return True


def _refresh_indexes(manifest: Manifest, system: System) -> None:
    """Bring depmod's indexes and the initramfs in line with the files restored."""
    if system.modules_dir.is_dir():
        system.depmod()
    for path in manifest.facts["initramfs"]:
        image = system.root / path.lstrip("/")
        if not image.is_file():
            continue
        wanted = {name: system.installed_build_id(name) for name in manifest.facts["modules"]}
        held = modules_in(image, system.file_stems())
        if any(wanted.get(name, found) != found for name, found in held.items()):
            system.rebuild_initramfs(image)
            check_image(image, system, wanted)


def _runs_ours(manifest: Manifest, system: System) -> bool:
    return any(
        system.running_build_id(name) == module["build_id"]
        for name, module in manifest.facts["modules"].items()
    )
