# SPDX-License-Identifier: MIT
"""Symbols resolve through compiler suffixes, in their module, and never to cold parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmmprof.errors import UsageError
from vmmprof.kernel import symbols
from vmmprof.kernel.symbols import SymbolTable, resolve_path
from vmmprof.kernel.update_path import Part

KALLSYMS = """\
ffffffff81000000 T _text
ffffffff81000100 T kbusFlush_GM107
ffffffffc0100000 t _kbusUpdateStaticBar1VAMapping_TU102.isra.0\t[nvidia]
ffffffffc0100400 t _kbusUpdateStaticBar1VAMapping_TU102.isra.0.cold\t[nvidia]
ffffffffc0101000 T dmaUpdateVASpace_GF100\t[nvidia]
ffffffffc0101f00 T dmaUpdateVASpace_GF100_other\t[nvidia]
ffffffffc0102000 T kbusFlush_GM107\t[nvidia]
ffffffffc0102100 T kbusFlush_GB10B\t[nvidia]
ffffffffc0103000 T gvaspaceInvalidateTlb_IMPL.constprop.0.isra.0\t[nvidia]
ffffffffc0104000 d some_data\t[nvidia]
ffffffffc0200000 T dmaUpdateVASpace_GF100\t[other]
"""


@pytest.fixture
def table(tmp_path: Path) -> SymbolTable:
    listing = tmp_path / "kallsyms"
    listing.write_text(KALLSYMS)
    return SymbolTable.read(listing)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nvidia").mkdir()
    monkeypatch.setattr(symbols, "MODULES", tmp_path)
    return tmp_path


def test_the_path_resolves(table: SymbolTable, loaded: Path) -> None:
    path = resolve_path(table)
    names = {part: [symbol.name for symbol in found] for part, found in path.symbols.items()}
    assert names == {
        Part.UPDATE: ["_kbusUpdateStaticBar1VAMapping_TU102.isra.0"],
        Part.MAP: ["dmaUpdateVASpace_GF100"],
        Part.FLUSH: ["kbusFlush_GB10B", "kbusFlush_GM107"],
        Part.INVALIDATE: ["gvaspaceInvalidateTlb_IMPL.constprop.0.isra.0"],
    }
    assert path.symbols[Part.FLUSH][1].address == 0xFFFFFFFFC0102000
    assert path.symbols[Part.MAP][0].qualified_name == "nvidia:dmaUpdateVASpace_GF100"


def test_a_missing_part_is_named(loaded: Path) -> None:
    with pytest.raises(UsageError, match="_kbusUpdateStaticBar1VAMapping_TU102 or"):
        resolve_path(SymbolTable([]))


def test_a_driver_that_is_not_loaded_is_said(table: SymbolTable, loaded: Path) -> None:
    with pytest.raises(UsageError, match="module absent is not loaded"):
        resolve_path(table, "absent")


def test_addresses(table: SymbolTable) -> None:
    found = table.at(0xFFFFFFFFC0101010)
    assert found is not None
    assert (found.name, found.module) == ("dmaUpdateVASpace_GF100", "nvidia")
    assert table.at(0x1000) is None
    assert table.at(0xFFFFFFFFF0000000) is None
    assert table.has_addresses


def test_hidden_addresses_are_noticed(tmp_path: Path) -> None:
    listing = tmp_path / "kallsyms"
    listing.write_text("0000000000000000 T _text\n0000000000000000 t f\t[nvidia]\n")
    assert not SymbolTable.read(listing).has_addresses
