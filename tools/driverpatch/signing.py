# SPDX-License-Identifier: MIT
"""Sign built modules with the key that DKMS or the user names."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from driverpatch.building import Build, record_build
from driverpatch.elf import is_signed
from driverpatch.errors import DriverError
from driverpatch.system import System, run

# What DKMS uses when its configuration names no key.
_DKMS_KEY = "var/lib/dkms/mok.key"
_DKMS_CERTIFICATE = "var/lib/dkms/mok.pub"


@dataclass(frozen=True)
class SigningKey:
    key: Path
    certificate: Path


def find_key(system: System, key: Path | None, certificate: Path | None) -> SigningKey:
    """The key named, else the one of DKMS. Raises DriverError when there is none."""
    if (key is None) != (certificate is None):
        raise DriverError("a key needs its certificate: give both --key and --certificate")
    if key is not None and certificate is not None:
        found = SigningKey(key, certificate)
    else:
        found = _dkms_key(system)
    for path in (found.key, found.certificate):
        if not path.is_file():
            raise DriverError(f"{path}: no such file; name a key with --key and --certificate")
    return found


def _dkms_key(system: System) -> SigningKey:
    named = {"mok_signing_key": _DKMS_KEY, "mok_certificate": _DKMS_CERTIFICATE}
    files = [system.root / "etc/dkms/framework.conf"]
    files += sorted((system.root / "etc/dkms/framework.conf.d").glob("*.conf"))
    for file in files:
        if not file.is_file():
            continue
        for name, value in re.findall(r"^\s*(\w+)=[\"']?([^\"'\n]*)", file.read_text(), re.M):
            if name in named and value:
                named[name] = value.lstrip("/")
    return SigningKey(
        system.root / named["mok_signing_key"], system.root / named["mok_certificate"]
    )


def sign_file_program(system: System) -> str:
    """The kernel's sign-file, or Ubuntu's kmodsign."""
    places = [system.modules_dir / "build/scripts/sign-file"]
    version = re.match(r"\d+\.\d+", system.kernel)
    if version is not None:
        places.append(system.root / f"usr/lib/linux-kbuild-{version.group()}/scripts/sign-file")
    for place in places:
        if place.is_file():
            return str(place)
    found = shutil.which("kmodsign")
    if found is None:
        raise DriverError(f"no sign-file for {system.kernel}; install the kernel's headers")
    return found


def sign(build: Build, system: System, key: SigningKey) -> Build:
    """Sign the modules that are not signed yet; the build's new record."""
    program = sign_file_program(system)
    for module in build.modules:
        if not is_signed(module.path):
            command = [program, "sha256", str(key.key), str(key.certificate), str(module.path)]
            run(command, what=f"signing {module.path.name}")
    return record_build(build.patched, build.kernel)
