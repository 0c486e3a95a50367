# SPDX-License-Identifier: MIT
"""The system calls, on files that every machine has."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vmmprof.kernel.rm import GpuNode, KernelTransport
from vmmprof.kernel.rm import transport as module
from vmmprof.kernel.rm.structs import AllocParameters
from vmmprof.kernel.rm.transport import ioctl_request

SIZE = 2 * mmap.PAGESIZE


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file of known words, opened as the transport opens a device."""
    path = tmp_path / "memory"
    path.write_bytes(np.arange(SIZE // 8, dtype="<u8").tobytes())
    transport = KernelTransport()
    fd = transport.open(str(path))
    yield fd
    transport.close(fd)


def test_requests_are_numbered_as_the_driver_does() -> None:
    # _IOWR('F', 0x2B, 32), as strace shows it.
    assert ioctl_request(0x2B, 32) == 0xC020462B


def test_files_do_not_survive_an_exec(fd: int) -> None:
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def test_a_mapping_reads_words_and_unaligned_words(fd: int) -> None:
    reading = KernelTransport().map_readable(fd, SIZE)
    assert reading.words(np.array([0, 8, SIZE - 8], np.int64)).tolist() == [0, 1, SIZE // 8 - 1]
    assert reading.word(9) == 2 << 56
    reading.close()


def test_a_mapping_cannot_be_written(fd: int) -> None:
    reading: Any = KernelTransport().map_readable(fd, SIZE)
    assert not reading._words.flags.writeable
    with pytest.raises(TypeError, match="modify a readonly memory map"):
        reading._map[0] = 1
    reading.close()


def test_a_mapping_follows_what_is_written_elsewhere(fd: int) -> None:
    """It is shared: a private copy would show old data for ever."""
    reading = KernelTransport().map_readable(fd, SIZE)
    os.pwrite(fd, (77).to_bytes(8, "little"), 16)
    assert reading.word(16) == 77
    reading.close()


def test_a_closed_mapping_is_unmapped(fd: int) -> None:
    before = Path("/proc/self/maps").read_text().count("/memory")
    reading = KernelTransport().map_readable(fd, SIZE)
    assert Path("/proc/self/maps").read_text().count("/memory") == before + 1
    reading.close()
    assert Path("/proc/self/maps").read_text().count("/memory") == before


def test_a_file_shorter_than_the_mapping_is_refused(fd: int) -> None:
    with pytest.raises((OSError, ValueError)):
        KernelTransport().map_readable(fd, 100 * SIZE)


def test_an_empty_ioctl_changes_nothing(fd: int) -> None:
    arguments = AllocParameters(hRoot=1, status=2)
    KernelTransport().empty_ioctl(fd, arguments)
    assert (arguments.hRoot, arguments.status) == (1, 2)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_call_to_be_repeated_is_repeated(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [BlockingIOError(11, "again"), InterruptedError(4, "interrupted"), None]
    asked: list[int] = []

    def ioctl(fd: int, request: int, argument: ctypes.Structure) -> None:
        asked.append(request)
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(module.fcntl, "ioctl", ioctl)
    KernelTransport().ioctl(fd, 0x2A, AllocParameters())
    assert asked == [ioctl_request(0x2A, 32)] * 3


INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 42
GPU UUID: \t GPU-00000000-0000-0000-0000-000000000000
Bus Type: \t PCIe
Device Minor: \t {minor}
GPU Excluded:\t No
"""


def test_gpus_are_listed_with_minor_and_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, minor in (("0000:5d:00.0", 3), ("0000:1B:00.0", 0)):
        folder = tmp_path / address
        folder.mkdir()
        (folder / "information").write_text(INFORMATION.format(minor=minor))
    monkeypatch.setattr(module, "_PROC_GPUS", tmp_path)
    assert KernelTransport().gpus() == [GpuNode(0, "0000:1b:00.0"), GpuNode(3, "0000:5d:00.0")]


def test_a_hidden_list_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROC_GPUS", tmp_path / "nothing")
    assert KernelTransport().gpus() == []
