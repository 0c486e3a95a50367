# SPDX-License-Identifier: MIT
"""check, patch and the series, on small trees of our own; test_tree.py has the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driverpatch import cli
from driverpatch.check import check
from driverpatch.errors import DriverError, DriverUsageError, ExitCode
from driverpatch.patching import apply_patches
from driverpatch.series import Series
from driverpatch.support import DOCUMENTS, stale_documents, support_table, with_table
from driverpatch.system import System
from driverpatch.tree import TURING_FILE, Tree

UNKNOWN_BODY = """
static NV_STATUS _kbusUpdateStaticBar1VAMapping_TU102(OBJGPU *pGpu, NvBool bRelease)
{
    for (offset = 0; offset < mapSize; offset += step)
        status = dmaUpdateVASpace_HAL(pGpu, DMA_TLB_INVALIDATE);
    return status;
}
"""
NO_LOOP = UNKNOWN_BODY.replace("for (offset = 0; offset < mapSize; offset += step)", "")


@pytest.fixture
def series() -> Series:
    return Series.load()


def make_tree(where: Path, source: str) -> Path:
    file = where / TURING_FILE
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (where / "version.mk").write_text("NVIDIA_VERSION = 999.1\n")
    return where


def test_tree_without_the_function_is_not_affected(tmp_path: Path, series: Series) -> None:
    tree = Tree.at(make_tree(tmp_path, "int other(void) { return 0; }\n"))
    result = check(tree, series)
    assert result.code is ExitCode.NOT_AFFECTED
    assert result.version == "999.1"


def test_function_without_a_loop_is_not_affected(tmp_path: Path, series: Series) -> None:
    result = check(Tree.at(make_tree(tmp_path, NO_LOOP)), series)
    assert result.code is ExitCode.NOT_AFFECTED


def test_unknown_body_names_its_hash_and_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_tree(tmp_path, UNKNOWN_BODY)
    assert cli.main(["check", "--src", str(tree)]) == ExitCode.UNKNOWN_BODY
    text = capsys.readouterr().out
    assert "unknown body: nothing was touched" in text
    assert Tree.at(tree).update_path().update.digest in text  # type: ignore[union-attr]
    assert "has    loops over the memory" in text
    assert "LACKS  hides NOT_SUPPORTED" in text
    assert "cannot judge" in text


def test_two_update_functions_are_an_error(tmp_path: Path, series: Series) -> None:
    tree = make_tree(tmp_path, UNKNOWN_BODY)
    other = tree / TURING_FILE.parent.parent / "hopper/kern_bus_gh100.c"
    other.parent.mkdir()
    other.write_text(UNKNOWN_BODY.replace("TU102", "GH100"))
    with pytest.raises(DriverError, match="more than one update function"):
        check(Tree.at(tree), series)


def test_binary_only_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DriverUsageError, match="it holds something else"):
        Tree.at(tmp_path)
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia/nv-kernel.o_binary").touch()
    with pytest.raises(DriverUsageError, match="resource manager as a binary"):
        Tree.at(tmp_path)


def test_unknown_body_is_not_patched(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", UNKNOWN_BODY)
    into = tmp_path / "into"
    command = ["patch", "--src", str(tree), "--into", str(into)]
    assert cli.main(command) == ExitCode.UNKNOWN_BODY
    assert not into.exists()


def test_patch_that_does_not_fit_is_refused_without_fuzz(tmp_path: Path, series: Series) -> None:
    tree = make_tree(tmp_path, UNKNOWN_BODY)
    with pytest.raises(DriverError, match=r"a-coalesce-runs\.patch does not apply"):
        apply_patches(series.patches_of("a"), tree)
    assert (tree / TURING_FILE).read_text() == UNKNOWN_BODY


def test_series_is_whole(series: Series) -> None:
    """Every patch is there with its header; every patchable class has every arm's digest."""
    for patch in series.patches:
        text = patch.file.read_text()
        for part in ("Why", "What changes", "What does not change", "Tested", "Not tested"):
            assert f"\n{part}\n" in text, f"{patch.file.name} lacks '{part}'"
        assert max(map(len, text.split("\n---\n")[0].splitlines())) <= 80
    for known in series.updates:
        assert (set(known.patched) == {"a", "b", "ab"}) == known.patchable
        assert bool(known.verified_on) == known.patchable
    digests = [known.digest for known in series.updates]
    digests += [digest for known in series.updates for digest in known.patched.values()]
    assert len(set(digests)) == len(digests)


def test_support_table_in_the_docs_is_not_stale(series: Series) -> None:
    assert stale_documents(series) == []
    written = [document for document in DOCUMENTS if document.is_file()]
    assert any(support_table(series) in document.read_text() for document in written)


def test_table_is_replaced_between_its_markers() -> None:
    from driverpatch.support import BEGIN, END

    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(document, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_source_is_found_when_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVER_SRC", raising=False)
    system = System(tmp_path, "9.9")
    with pytest.raises(DriverUsageError, match="no driver source"):
        cli.default_source(system)
    for version in ("1.0", "2.0"):
        (tmp_path / f"usr/src/nvidia-{version}/src/nvidia").mkdir(parents=True)
    with pytest.raises(DriverUsageError, match="several driver sources"):
        cli.default_source(system)
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("2.0\n")
    assert cli.default_source(system).name == "nvidia-2.0"
    monkeypatch.setenv("DRIVER_SRC", "/elsewhere")
    assert cli.default_source(system) == Path("/elsewhere")


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path, NO_LOOP)
    assert cli.main(["check", "--src", str(tree), "--json"]) == ExitCode.NOT_AFFECTED
    data = json.loads(capsys.readouterr().out)
    assert (data["code"], data["answer"]) == (4, "not_affected")
