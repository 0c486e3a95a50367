# SPDX-License-Identifier: MIT
"""The size grammar: ``2M``, ``1K,4K,2M``, ``30M:66M:2M``, ``2M:1G:x2``.

Units are binary: K, M, G and T are KiB, MiB, GiB and TiB (a trailing ``iB`` is
accepted); a bare number is bytes. Ranges include both ends; a step adds, a
factor ``xN`` multiplies.
"""

from __future__ import annotations

import re

from vmmprof.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

MIN_SIZE_BYTES = KIB
# Half of what 64-bit processors with five levels of page tables can address.
MAX_SIZE_BYTES = 1 << 56
# A sweep longer than this is a typo (1K:1G:1K), not a plan.
MAX_SIZES = 4096

_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"(\d{1,20})(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)
_FACTOR = re.compile(r"x(\d+)", re.IGNORECASE)
_HINT = "sizes look like 2M, 1K,4K,2M, 30M:66M:2M or 2M:1G:x2"


def parse_size(text: str) -> int:
    """Bytes of one size such as ``64M``; UsageError when it is none or cannot be."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"size {text.strip()!r} is not a size; {_HINT}")
    size_bytes = int(match[1]) * _UNITS[(match[2] or "").upper()]
    if size_bytes < MIN_SIZE_BYTES:
        raise UsageError(f"size {text.strip()!r} is {size_bytes} bytes; the smallest is 1K (1 KiB)")
    if size_bytes > MAX_SIZE_BYTES:
        raise UsageError(f"size {text.strip()!r} is too large; the largest is 65536T")
    return size_bytes


def _parse_range(text: str) -> list[int]:
    parts = text.split(":")
    if len(parts) != 3:
        raise UsageError(f"range {text!r} needs three parts, FIRST:LAST:STEP; {_HINT}")
    first, last = parse_size(parts[0]), parse_size(parts[1])
    if last < first:
        raise UsageError(f"range {text!r} goes down; write the smaller size first")
    factor_match = _FACTOR.fullmatch(parts[2].strip())
    if factor_match is not None and int(factor_match[1]) < 2:
        raise UsageError(f"range {text!r} has factor {factor_match[1]}; the smallest is x2")
    sizes: list[int] = []
    size = first
    step = 0 if factor_match else parse_size(parts[2])
    while size <= last:
        if len(sizes) == MAX_SIZES:
            raise UsageError(f"range {text!r} has more than {MAX_SIZES} sizes; use a larger step")
        sizes.append(size)
        size = size * int(factor_match[1]) if factor_match else size + step
    return sizes


def parse_sizes(text: str) -> tuple[int, ...]:
    """All sizes of a ``--sizes`` argument in bytes, ascending, each once."""
    sizes: set[int] = set()
    for part in text.split(","):
        if not part.strip():
            raise UsageError(f"--sizes {text!r} has an empty part; {_HINT}")
        sizes.update(_parse_range(part) if ":" in part else [parse_size(part)])
    if len(sizes) > MAX_SIZES:
        raise UsageError(f"--sizes {text!r} has {len(sizes)} sizes; the most is {MAX_SIZES}")
    return tuple(sorted(sizes))


def round_up(size_bytes: int, granularity_bytes: int) -> int:
    """The smallest multiple of the granularity that holds the size."""
    return -(-size_bytes // granularity_bytes) * granularity_bytes


def format_size(size_bytes: int) -> str:
    """``2097152`` as ``2 MiB``: the largest unit that divides it, or bytes."""
    for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def mib(size_bytes: int) -> float:
    """Bytes as MiB, whole numbers staying whole in print."""
    return size_bytes / MIB
