# SPDX-License-Identifier: MIT
"""The identity of a kernel module: its GNU build-id, from files of every kind.

srcversion cannot tell a patched module from a stock one: it never covers the
resource manager's objects. The build-id covers all of the link.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
from pathlib import Path

from driverpatch.errors import DriverError

SIGNATURE_MAGIC = b"~Module signature appended~\n"
_NT_GNU_BUILD_ID = 3
_SHT_NOTE = 7


def _zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        raise DriverError("no 'zstd' program to read a compressed module; install zstd")
    return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout


def decompressed(data: bytes) -> bytes:
    """The content of a gzip, xz or zstd stream; anything else as it is."""
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\xfd7zXZ\x00"):
        return lzma.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(data)
    return data


def build_id_of_notes(notes: bytes) -> str | None:
    """The build-id in the bytes of a note section, as hex; None when there is none."""
    offset = 0
    while offset + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, offset)
        name_start = offset + 12
        start = name_start + (name_size + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and notes[name_start : name_start + 4] == b"GNU\0":
            return notes[start : start + size].hex()
        offset = start + (size + 3) // 4 * 4
    return None


def build_id(data: bytes) -> str | None:
    """The build-id of a (compressed) little-endian ELF64 file; None when it has none."""
    data = decompressed(data)
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    for index in range(count):
        header = section_offset + index * entry_size
        if header + 64 > len(data):
            return None
        (kind,) = struct.unpack_from("<I", data, header + 4)
        offset, size = struct.unpack_from("<QQ", data, header + 24)
        if kind == _SHT_NOTE:
            found = build_id_of_notes(data[offset : offset + size])
            if found is not None:
                return found
    return None


def module_build_id(path: Path) -> str | None:
    try:
        return build_id(path.read_bytes())
    except OSError as error:
        raise DriverError(f"{path}: cannot be read: {error.strerror}") from error


def is_signed(path: Path) -> bool:
    return decompressed(path.read_bytes()).endswith(SIGNATURE_MAGIC)
