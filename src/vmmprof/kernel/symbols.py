# SPDX-License-Identifier: MIT
"""Kernel symbols: from /proc/kallsyms, by address and by name in a module."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vmmprof.errors import UsageError
from vmmprof.kernel.update_path import DRIVER_MODULE, NAMES, Part

KALLSYMS = Path("/proc/kallsyms")
MODULES = Path("/sys/module")
TEXT_TYPES = frozenset("tT")
# Addresses end somewhere: a sample this far behind the last symbol is in nothing we know.
MAX_FUNCTION_BYTES = 1 << 20


@dataclass(frozen=True)
class Symbol:
    """A function of the kernel; ``module`` is empty for the kernel proper."""

    address: int
    name: str
    module: str

    @property
    def qualified_name(self) -> str:
        """``module:name``, as the kernel's own probe interfaces want it."""
        return f"{self.module}:{self.name}" if self.module else self.name


class SymbolTable:
    """All functions of the running kernel at one moment."""

    def __init__(self, symbols: Iterable[Symbol]) -> None:
        self._symbols = sorted(symbols, key=lambda symbol: symbol.address)
        self._addresses = [symbol.address for symbol in self._symbols]

    def __len__(self) -> int:
        return len(self._symbols)

    @classmethod
    def read(cls, path: Path = KALLSYMS) -> SymbolTable:
        """The kernel's table; addresses are all 0 for users who may not know them."""
        with path.open(encoding="ascii", errors="replace") as lines:
            return cls(_parse(lines))

    @cached_property
    def has_addresses(self) -> bool:
        """Whether addresses are shown to this user (CAP_SYSLOG, kernel.kptr_restrict)."""
        return bool(self._addresses) and self._addresses[-1] != 0

    def at(self, address: int) -> Symbol | None:
        """The function that holds an address."""
        index = bisect_right(self._addresses, address) - 1
        if index < 0 or address - self._addresses[index] > MAX_FUNCTION_BYTES:
            return None
        return self._symbols[index]

    def find(self, name: str, module: str) -> list[Symbol]:
        """Functions called ``name`` or ``name`` with compiler suffixes, in one module.

        Cold parts (``name.cold``) are split off a function and are no entry.
        """
        return [symbol for symbol in self._in_module(module) if _is_function(symbol.name, name)]

    def _in_module(self, module: str) -> list[Symbol]:
        if module not in self._by_module:
            self._by_module[module] = [s for s in self._symbols if s.module == module]
        return self._by_module[module]

    @cached_property
    def _by_module(self) -> dict[str, list[Symbol]]:
        return {}


def _parse(lines: Iterable[str]) -> Iterable[Symbol]:
    for line in lines:
        # "ffffffffc0a01230 t name\t[module]"
        words = line.split()
        if len(words) >= 3 and words[1] in TEXT_TYPES:
            module = words[3].strip("[]") if len(words) > 3 else ""
            yield Symbol(int(words[0], 16), words[2], module)


def _is_function(symbol: str, name: str) -> bool:
    if symbol == name:
        return True
    return symbol.startswith(name + ".") and ".cold" not in symbol


@dataclass(frozen=True)
class ResolvedPath:
    """The update path's functions as the loaded driver has them.

    A part can have several symbols: a compiler may clone a function, and a
    driver holds the flush of each GPU generation.
    """

    module: str
    load_identity: str
    """Changes when the module is unloaded and loaded again."""
    symbols: dict[Part, tuple[Symbol, ...]]


def module_identity(module: str) -> str:
    """A text that changes when the module is reloaded; empty when it is not loaded."""
    folder = MODULES / module
    try:
        created_ns = folder.stat().st_ctime_ns
        build_id = (folder / "notes/.note.gnu.build-id").read_bytes().hex()
    except OSError:
        return str(folder.stat().st_ctime_ns) if folder.is_dir() else ""
    return f"{created_ns}:{build_id}"


def resolve_path(table: SymbolTable, module: str = DRIVER_MODULE) -> ResolvedPath:
    """Find the update path in a loaded module; UsageError when a part is not there."""
    identity = module_identity(module)
    if not identity:
        raise UsageError(f"kernel module {module} is not loaded; load the driver first")
    found: dict[Part, tuple[Symbol, ...]] = {}
    for part, names in NAMES.items():
        symbols = [symbol for name in names for symbol in table.find(name, module)]
        if not symbols:
            raise UsageError(
                f"module {module} has no function {' or '.join(names)}, so that its update path "
                "is not one that this vmmprof knows; load a driver that has one"
            )
        found[part] = tuple(symbols)
    return ResolvedPath(module, identity, found)
