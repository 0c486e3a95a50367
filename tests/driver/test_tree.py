# SPDX-License-Identifier: MIT
"""The real driver: needs a stock source tree, named by DRIVER_SRC."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from bench.cases import KIND_DEFAULT, Case, fresh
from bench.cli import judge_mutants, judge_tree
from bench.extract import extracted_source, features
from bench.properties import check_case
from bench.reference import Arm
from bench.report import mutants_text
from bench.subject import Subject, build_extracted
from driverpatch import cli
from driverpatch.check import MAPPING_CALL_FILE, check
from driverpatch.errors import DriverError, ExitCode
from driverpatch.patching import CannotPatchError, Patched, patch_tree
from driverpatch.series import Series
from driverpatch.tree import Tree
from tests.driver.strategies import cases

ARMS = {
    "stock": Arm(),
    "a": Arm(coalesce=True),
    "b": Arm(defer=True),
    "ab": Arm(coalesce=True, defer=True),
    "abc": Arm(coalesce=True, defer=True, once=True),
}
NEEDED = (
    "version.mk",
    "src/nvidia/generated/g_virt_mem_allocator_nvoc.h",
    "src/nvidia/generated/g_kern_bus_nvoc.h",
    MAPPING_CALL_FILE,
)


@pytest.fixture(scope="module")
def slim(driver_src: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The few files of the tree that recognition and the bench read."""
    where = tmp_path_factory.mktemp("slim")
    path = Tree.at(driver_src).update_path()
    assert path is not None, f"{driver_src} has no update function"
    for name in (*NEEDED, str(path.file)):
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(driver_src / name, where / name)
    return where


@pytest.fixture(scope="module")
def trees(slim: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stock tree and one for each arm of the series."""
    where = tmp_path_factory.mktemp("arms")
    series = Series.load()
    found = {"stock": slim}
    for arm in series.arms:
        patch_tree(Tree.at(slim), where / arm, arm, series, dry_run=False)
        found[arm] = where / arm
    return found


@pytest.fixture(scope="module")
def subjects(
    trees: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Subject]]:
    where = tmp_path_factory.mktemp("subjects")
    found = {}
    for arm, root in trees.items():
        tree = Tree.at(root)
        path = tree.update_path()
        assert path is not None
        source = where / f"{arm}.c"
        source.write_text(
            extracted_source(path, tree.dma_update_parameters()), errors="surrogateescape"
        )
        build_extracted(where / arm, source)
        found[arm] = Subject(where / arm)
    yield found
    for subject in found.values():
        subject.close()


def test_stock_tree_is_patchable(slim: Path) -> None:
    result = check(Tree.at(slim), Series.load())
    assert result.code is ExitCode.OK, result.text()


def test_patched_trees_are_recognised_and_not_patched_again(trees: dict[str, Path]) -> None:
    series = Series.load()
    for arm in series.arms:
        result = check(Tree.at(trees[arm]), series)
        assert (result.code, result.arm) == (ExitCode.ALREADY_PATCHED, arm)
        assert Patched.load(trees[arm]).arm == arm
        with pytest.raises(CannotPatchError, match="already patched"):
            patch_tree(Tree.at(trees[arm]), trees[arm] / "../again", "ab", series, dry_run=False)


@pytest.mark.parametrize("arm", ARMS)
def test_arm_behaves_as_itself(trees: dict[str, Path], arm: str, tmp_path: Path) -> None:
    _, verdict = judge_tree(trees[arm], tmp_path)
    assert verdict.failure is None, f"{verdict.failure}\n{verdict.failure.case}"
    assert verdict.arm == ARMS[arm]


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("faults", [False, True], ids=["sound", "failing"])
def test_properties(
    subjects: dict[str, Subject], trees: dict[str, Path], arm: str, faults: bool
) -> None:
    path = Tree.at(trees[arm]).update_path()
    assert path is not None
    asked = features(path)

    @settings(max_examples=200)
    @given(case=cases(asked, faults=faults))
    def hold(case: Case) -> None:
        failure = check_case(subjects[arm], case, ARMS[arm], asked)
        assert failure is None, f"{failure}\n{case}"

    hold()


@pytest.mark.parametrize(
    ("arm", "counts"),
    [
        ("stock", (512, 512, 512)),
        ("a", (32, 32, 32)),
        ("b", (512, 1, 1)),
        ("ab", (32, 1, 1)),
        ("abc", (32, 1, 1)),
    ],
)
def test_one_gib(
    subjects: dict[str, Subject], trees: dict[str, Path], arm: str, counts: tuple[int, int, int]
) -> None:
    path = Tree.at(trees[arm]).update_path()
    assert path is not None
    case = Case(fresh(512), "cr")
    if features(path).localized:
        case = Case(fresh(512), "cr", kind=KIND_DEFAULT, localized=True)
    for outcome in subjects[arm].run(case):
        assert (outcome.maps, outcome.flushes, outcome.invalidates) == counts


def test_all_mutants_are_killed(trees: dict[str, Path], tmp_path: Path) -> None:
    results = judge_mutants(tmp_path, trees["abc"])
    assert not [result for result in results if result.survived], mutants_text(results)


def test_fix_of_another_hand_is_recognised_by_its_behaviour(
    trees: dict[str, Path], tmp_path: Path
) -> None:
    """A body that no digest knows, and that behaves as A+B, counts as fixed."""
    tree = Tree.at(trees["ab"])
    path = tree.update_path()
    assert path is not None
    shutil.copytree(trees["ab"], tmp_path / "other")
    file = tmp_path / "other" / path.file
    file.write_text(path.source.replace("firstStatus", "keptStatus"), errors="surrogateescape")
    result = check(Tree.at(tmp_path / "other"), Series.load())
    assert (result.code, result.bench) == (ExitCode.ALREADY_PATCHED, "A+B")


def test_wrong_fix_is_an_unknown_body(trees: dict[str, Path], tmp_path: Path) -> None:
    path = Tree.at(trees["ab"]).update_path()
    assert path is not None
    shutil.copytree(trees["ab"], tmp_path / "other")
    file = tmp_path / "other" / path.file
    wrong = path.source.replace("(offset + runSize < mapSize) &&", "")
    assert wrong != path.source
    file.write_text(wrong, errors="surrogateescape")
    result = check(Tree.at(tmp_path / "other"), Series.load())
    assert (result.code, result.bench) == (ExitCode.UNKNOWN_BODY, "wrong: memory-safe")


def test_mapping_call_that_changed_is_seen(slim: Path, tmp_path: Path) -> None:
    shutil.copytree(slim, tmp_path / "other")
    file = tmp_path / "other" / MAPPING_CALL_FILE
    text = file.read_text(errors="surrogateescape")
    file.write_text(
        text.replace("DMA_TLB_INVALIDATE == deferInvalidate", "NV_TRUE"), errors="surrogateescape"
    )
    result = check(Tree.at(tmp_path / "other"), Series.load())
    assert result.code is ExitCode.UNKNOWN_BODY
    assert "no longer syncs as the series assumes" in result.message


def test_dry_run_leaves_nothing(slim: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    patch_tree(Tree.at(slim), into, "abc", Series.load(), dry_run=True)
    assert not into.exists()


def test_target_inside_the_source_is_refused(slim: Path) -> None:
    with pytest.raises(DriverError, match="inside the source tree"):
        patch_tree(Tree.at(slim), slim / "into", "ab", Series.load(), dry_run=False)


def test_source_tree_is_not_touched(slim: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in slim.rglob("*") if path.is_file()}
    assert cli.main(["patch", "--src", str(slim), "--into", str(tmp_path / "into")]) == ExitCode.OK
    assert before == {path: path.read_bytes() for path in slim.rglob("*") if path.is_file()}


@pytest.mark.parametrize("debug", [False, True], ids=["release", "assertions"])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_one_object_compiles(driver_src: Path, tmp_path: Path, arch: str, debug: bool) -> None:
    needed = "gcc" if arch == "x86_64" else "aarch64-linux-gnu-gcc"
    if shutil.which(needed) is None:
        pytest.skip(f"needs {needed}")
    into = tmp_path / "tree"
    patch_tree(Tree.at(driver_src), into, "abc", Series.load(), dry_run=False)
    command = ["build", str(into), "--object-only", "--arch", arch]
    assert cli.main([*command, *(["--debug"] if debug else [])]) == ExitCode.OK
    shutil.rmtree(into)
