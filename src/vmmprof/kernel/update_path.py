# SPDX-License-Identifier: MIT
"""The driver functions of the update path and the parts they play.

Names are those of NVIDIA/open-gpu-kernel-modules. Compilers add suffixes such
as ``.isra.0`` (symbols.py resolves them), and older releases used other names,
so that every part lists all that are known.
"""

from __future__ import annotations

from enum import Enum, IntEnum

DRIVER_MODULE = "nvidia"


class Part(IntEnum):
    """What a probed function is on the update path. The numbers are known to the probes."""

    UPDATE = 0
    """Maps one memory descriptor into static BAR1: the function this is all about."""
    MAP = 1
    """Writes page-table entries for one range; one call an iteration."""
    FLUSH = 2
    """The memory barrier; also ends every single page-table write."""
    INVALIDATE = 3
    """The TLB invalidate."""


NAMES: dict[Part, tuple[str, ...]] = {
    Part.UPDATE: (
        "_kbusUpdateStaticBar1VAMapping_TU102",
        "kbusUpdateStaticBar1VAMapping_TU102",
        "_kbusUpdateStaticBar1VAMapping_GH100",
        "kbusUpdateStaticBar1VAMapping_GH100",
    ),
    Part.MAP: ("dmaUpdateVASpace_GF100",),
    Part.FLUSH: ("kbusFlush_GB10B", "kbusFlush_GM107"),
    Part.INVALIDATE: ("gvaspaceInvalidateTlb_IMPL",),
}

# The flags that the loop's own barrier is called with (BUS_FLUSH_VIDEO_MEMORY |
# BUS_FLUSH_SYSTEM_MEMORY); a single page-table write flushes with the first alone.
BARRIER_FLAGS = 3


class Direction(str, Enum):
    """Which way an update goes, told from its caller."""

    COMMIT = "commit"
    RELEASE = "release"


# The reference counting around the update function; either may be inlined into the other, so
# that callers are looked at from the innermost out and the first that decides is taken.
COMMIT_CALLERS = ("kbusIncreaseStaticBar1Refcount", "vidmemConstruct", "vidmemDup", "memdescMap")
RELEASE_CALLERS = (
    "kbusDecreaseStaticBar1Refcount",
    "vidmemDestruct",
    "memdescUnmap",
    "memdescFree",
)

# Frames above the update function on every way into it. A call chain that reaches one of them
# without the update function was outside it; one that reaches none was cut short.
ROOTS = (
    "entry_SYSCALL_64_after_hwframe",
    "do_syscall_64",
    "x64_sys_call",
    "__x64_sys_ioctl",
    "ret_from_fork",
    "ret_from_fork_asm",
    "nvidia_unlocked_ioctl",
    "nvidia_ioctl",
    "rm_ioctl",
    "vidmemConstruct_IMPL",
    "vidmemDestruct_IMPL",
)
# Outermost frames of what interrupts user space: such a chain is whole as well.
ENTRY_PREFIXES = ("asm_exc_", "asm_sysvec_", "asm_common_interrupt", "asm_fred_")


def base_name(symbol: str) -> str:
    """A function's name as in the source: ``f.isra.0.cold`` is ``f``."""
    return symbol.split(".", 1)[0]


def direction_of(callers: list[str] | tuple[str, ...]) -> Direction | None:
    """Direction from caller names, innermost first; None when none of them tells."""
    for name in callers:
        if name.startswith(COMMIT_CALLERS):
            return Direction.COMMIT
        if name.startswith(RELEASE_CALLERS):
            return Direction.RELEASE
    return None
