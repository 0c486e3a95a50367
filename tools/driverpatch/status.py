# SPDX-License-Identifier: MIT
"""Which build of the driver is loaded, would be loaded, and lies in the initramfs."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

from driverpatch.check import arm_name
from driverpatch.initramfs import modules_in
from driverpatch.journal import INSTALLED, Journal, Manifest
from driverpatch.system import MODULE_NAMES, System

UNKNOWN = "unknown"


WIDTH = 80


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(label + text, WIDTH, subsequent_indent=" " * len(label))


@dataclass(frozen=True)
class Copy:
    """One copy of a module: where it is, its build-id, and what that is known as."""

    place: str
    build_id: str | None
    identity: str


@dataclass
class Status:
    kernel: str
    state: str
    """'none', 'installing' (interrupted) or 'installed'."""
    version: str = ""
    arm: str = ""
    dkms: str = ""
    copies: dict[str, list[Copy]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        lines = [f"kernel {self.kernel}: {self._headline()}"]
        for name, copies in self.copies.items():
            lines.append(f"  {name}")
            for copy in copies:
                short = (copy.build_id or UNKNOWN)[:16]
                lines.append(f"    {copy.place:<10} build-id {short:<16}  {copy.identity}")
        if self.dkms:
            lines.append(_wrapped("  DKMS: ", self.dkms))
        lines += [_wrapped("  PROBLEM: ", problem) for problem in self.problems]
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.state == "none":
            return "no patched driver is installed by this program"
        what = f"{self.version} with {arm_name(self.arm)}"
        if self.state == INSTALLED:
            return f"{what} is installed"
        return f"the installation of {what} was interrupted"


def status(system: System) -> Status:
    """Look at everything; changes nothing."""
    manifest = Journal(system.root, system.state_dir).load()
    result = Status(system.kernel, "none")
    if manifest is not None:
        result.state = manifest.state
        result.version = manifest.facts["version"]
        result.arm = manifest.facts["arm"]
        result.dkms = manifest.facts["dkms"]
    stems = system.file_stems()
    images = {image.name: modules_in(image, stems) for image in system.initramfs_images()}
    for name in MODULE_NAMES:
        copies = list(_copies(name, system, images, manifest))
        if copies:
            result.copies[name] = copies
    result.problems = _problems(result, system, manifest)
    return result


def _copies(
    name: str,
    system: System,
    images: dict[str, dict[str, str | None]],
    manifest: Manifest | None,
) -> list[Copy]:
    found: list[Copy] = []
    if name in system.loaded():
        identity = system.running_build_id(name)
        found.append(Copy("running", identity, _known_as(name, identity, manifest)))
    if system.module_file(name) is not None:
        identity = system.installed_build_id(name)
        found.append(Copy("on disk", identity, _known_as(name, identity, manifest)))
    for held in images.values():
        if name in held:
            found.append(Copy("initramfs", held[name], _known_as(name, held[name], manifest)))
    return found


def _known_as(name: str, identity: str | None, manifest: Manifest | None) -> str:
    """What the manifest knows the build-id as. A build it does not know may be anything."""
    module = manifest.facts["modules"].get(name) if manifest is not None else None
    if identity is None or module is None or manifest is None:
        return UNKNOWN
    if identity == module["build_id"]:
        return arm_name(manifest.facts["arm"])
    if identity == module["replaced_build_id"]:
        return "as before the installation"
    return UNKNOWN


def _problems(result: Status, system: System, manifest: Manifest | None) -> list[str]:
    """What keeps an installation from being what it should be; empty when all is well."""
    if manifest is None:
        return []
    if manifest.state != INSTALLED:
        return ["the installation did not finish; run 'driver revert'"]
    if manifest.facts["kernel"] != system.kernel:
        return [f"installed for kernel {manifest.facts['kernel']}, which is not this one"]
    problems = []
    for name, module in manifest.facts["modules"].items():
        for copy in result.copies.get(name, []):
            if copy.build_id == module["build_id"]:
                continue
            if copy.place == "running":
                problems.append(f"{name} that runs is another build; reload it or reboot")
            else:
                problems.append(f"{name} {copy.place} is another build than was installed")
        if not any(copy.place == "on disk" for copy in result.copies.get(name, [])):
            problems.append(f"modprobe finds no {name}")
    return problems
