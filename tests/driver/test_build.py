# SPDX-License-Identifier: MIT
"""Headers, commands and records of a build; no compiler runs here."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from driverpatch import building, cli
from driverpatch.elf import build_id, build_id_of_notes
from driverpatch.errors import DriverError, DriverUsageError, ExitCode
from driverpatch.patching import Patched
from driverpatch.system import System

KERNEL = "6.1.0-57-amd64"


@pytest.fixture
def patched(tmp_path: Path) -> Patched:
    root = tmp_path / "tree"
    (root / "kernel-open").mkdir(parents=True)
    tree = Patched(root, "595.45.04", "ab", "c6", "0" * 16)
    tree.save()
    return tree


def headers(where: Path, text: str) -> Path:
    where.mkdir(parents=True)
    (where / "Makefile").write_text(text)
    return where


def test_split_headers_of_debian(tmp_path: Path) -> None:
    common = tmp_path / "usr/src/linux-headers-6.1.0-57-common"
    common.mkdir(parents=True)
    output = headers(tmp_path / f"usr/src/linux-headers-{KERNEL}", f"include {common}/Makefile\n")
    build = tmp_path / f"lib/modules/{KERNEL}/build"
    build.parent.mkdir(parents=True)
    build.symlink_to(output)
    found = building.find_headers(System(tmp_path, KERNEL), None)
    assert (found.source, found.output) == (common, output)


def test_split_headers_unpacked_elsewhere(tmp_path: Path) -> None:
    common = tmp_path / "linux-headers-6.1.0-57-common"
    common.mkdir()
    text = f"include /usr/src/{common.name}-not-here/Makefile\n".replace("-not-here", "")
    output = headers(tmp_path / f"linux-headers-{KERNEL}", text)
    found = building.find_headers(System(tmp_path, KERNEL), output)
    assert found.output == output
    assert found.source.name == common.name


def test_headers_in_one_piece(tmp_path: Path) -> None:
    """A whole kernel Makefile includes others too, by a variable."""
    output = headers(tmp_path / "headers", "include $(srctree)/arch/$(SRCARCH)/Makefile\n")
    found = building.find_headers(System(tmp_path, KERNEL), output)
    assert (found.source, found.output) == (output, output)


def test_half_of_split_headers_is_an_error(tmp_path: Path) -> None:
    output = headers(tmp_path / "headers", "include /nowhere/linux-common/Makefile\n")
    with pytest.raises(DriverError, match="linux-common, which is missing"):
        building.find_headers(System(tmp_path, KERNEL), output)


def test_no_headers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=f"install those of {KERNEL}"):
        building.find_headers(System(tmp_path, KERNEL), None)


def test_commands(patched: Patched, tmp_path: Path) -> None:
    found = building.Headers(tmp_path / "common", tmp_path / "output")
    command = building.modules_command(patched, System(tmp_path, KERNEL), found, 3)
    assert command[-5:] == [
        "-j3",
        f"KERNEL_UNAME={KERNEL}",
        f"SYSSRC={tmp_path}/common",
        f"SYSOUT={tmp_path}/output",
        "modules",
    ]
    release = building.object_command(patched, "x86_64", debug=False)
    asserting = building.object_command(patched, "x86_64", debug=True)
    assert "DEBUG=1" in asserting and "DEBUG=1" not in release
    # Objects of different kinds must not be taken for each other.
    assert release[-1] != asserting[-1]


def test_missing_cross_compiler_is_said(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    with pytest.raises(DriverError, match="install gcc-aarch64-linux-gnu"):
        building.compile_object(patched, "aarch64", debug=False)


def elf_with_notes(notes: bytes) -> bytes:
    """The least of an ELF64 file: a header, and one section, of notes."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HH", header, 0x3A, 64, 1)
    section = struct.pack("<IIQQQQIIQQ", 0, 7, 0, 0, 128, len(notes), 0, 0, 4, 0)
    return bytes(header) + section + notes


def note(kind: int, name: bytes, content: bytes) -> bytes:
    def padded(data: bytes) -> bytes:
        return data + b"\0" * (-len(data) % 4)

    return struct.pack("<III", len(name), len(content), kind) + padded(name) + padded(content)


def test_build_id_is_found_behind_other_notes() -> None:
    notes = note(1, b"Linux\0", b"abc") + note(3, b"GNU\0", b"\x12\x34")
    assert build_id_of_notes(notes) == "1234"
    assert build_id(elf_with_notes(notes)) == "1234"
    assert build_id(elf_with_notes(note(5, b"GNU\0", b"\x12"))) is None
    assert build_id(b"no ELF at all") is None


def test_record(patched: Patched) -> None:
    module = patched.root / "kernel-open/nvidia.ko"
    module.write_bytes(elf_with_notes(note(3, b"GNU\0", b"\xab\xcd")))
    building.record_build(patched, KERNEL)
    loaded = building.Build.load(patched.root)
    assert loaded.kernel == KERNEL and loaded.patched == patched
    assert [(m.name, m.build_id) for m in loaded.modules] == [("nvidia", "abcd")]


def test_module_without_a_build_id_is_refused(patched: Patched) -> None:
    (patched.root / "kernel-open/nvidia.ko").write_bytes(elf_with_notes(b""))
    with pytest.raises(DriverError, match="has no GNU build-id"):
        building.record_build(patched, KERNEL)


def test_tree_that_was_not_patched_is_not_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", str(tmp_path)]) == ExitCode.USAGE
    assert "not a tree that 'driver patch --into' made" in capsys.readouterr().err
    with pytest.raises(DriverUsageError):
        building.Build.load(tmp_path)


def test_dry_run_prints_the_commands(
    patched: Patched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = headers(tmp_path / "headers", "")
    command = ["build", str(patched.root), "--dry-run", "--headers", str(output), "--json"]
    assert cli.main(command) == ExitCode.OK
    one_object, modules = json.loads(capsys.readouterr().out)["commands"]
    assert one_object.endswith("kern_bus_tu102.o")
    assert modules.endswith("modules")
