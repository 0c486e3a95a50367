# SPDX-License-Identifier: MIT
"""Which kernel modules an initramfs holds: a module there is loaded before any on disk.

An initramfs is one or more cpio archives (format newc), one after the other,
the last of them usually compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from driverpatch.elf import build_id, decompressed
from driverpatch.errors import DriverError
from driverpatch.system import stem_of

_MAGICS = (b"070701", b"070702")
_HEADER_SIZE = 110


def _aligned(offset: int) -> int:
    return (offset + 3) // 4 * 4


def _archive(data: bytes, offset: int) -> Iterator[tuple[str, bytes, int]]:
    """Name, content and end offset of each entry of the archive at `offset`."""
    while data[offset : offset + 6] in _MAGICS:
        fields = [int(data[offset + 6 + 8 * i : offset + 14 + 8 * i], 16) for i in range(13)]
        size, name_size = fields[6], fields[11]
        name = data[offset + _HEADER_SIZE : offset + _HEADER_SIZE + name_size - 1].decode(
            errors="surrogateescape"
        )
        start = _aligned(offset + _HEADER_SIZE + name_size)
        end = _aligned(start + size)
        yield name, data[start : start + size], end
        if name == "TRAILER!!!":
            return
        offset = end


def entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every file of all the archives in an initramfs image."""
    offset = 0
    while offset < len(data):
        if data[offset] == 0:  # padding between archives
            offset += 1
            continue
        rest = data[offset:]
        if rest[:6] not in _MAGICS:
            unpacked = decompressed(rest)
            if unpacked is rest or unpacked[:6] not in _MAGICS:
                raise DriverError("the initramfs is in a format that cannot be read here")
            yield from entries(unpacked)
            return
        for name, content, end in _archive(data, offset):
            offset = end
            if name != "TRAILER!!!":
                yield name, content


def modules_in(image: Path, stems: Mapping[str, str]) -> dict[str, str | None]:
    """Build-id of each module that the image holds; stems: file name to module name."""
    found: dict[str, str | None] = {}
    for path, content in entries(image.read_bytes()):
        name = stems.get(stem_of(Path(path)))
        if ".ko" in Path(path).name and name is not None and content:
            found[name] = build_id(content)
    return found
