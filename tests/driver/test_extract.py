# SPDX-License-Identifier: MIT
"""Cutting functions out of a tree and judging them, on a small tree of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import EXIT_CANNOT_JUDGE, EXIT_OK, EXIT_WRONG, judge_tree, main
from bench.errors import BenchError
from bench.extract import extracted_source, features
from bench.judge import Verdict
from bench.mutants import mutated
from driverpatch import cli
from driverpatch.check import check
from driverpatch.errors import ExitCode
from driverpatch.series import Series
from driverpatch.tree import Tree
from tests.driver.small_tree import PARAMETERS, SOURCE, make_small_tree

LOOP = """        status = _smallMapPage(pGpu, pKernelBus, pMemDesc, &info, &pages, first, step);
"""


def verdict_on(where: Path, source: str) -> Verdict:
    tree = make_small_tree(where / "source", source)
    return judge_tree(tree, where)[1]


def test_small_tree_behaves_as_stock(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, SOURCE)
    assert verdict.failure is None, f"{verdict.failure}\n{verdict.failure.case}"
    assert verdict.name == "stock"


def test_helpers_and_macros_of_the_file_come_along(tmp_path: Path) -> None:
    path = Tree.at(make_small_tree(tmp_path)).update_path()
    assert path is not None
    assert [helper.name for helper in path.helpers] == ["_smallMapPage"]
    text = extracted_source(path, PARAMETERS.split(", "))
    assert "#define SMALL_FLAGS" in text
    assert features(path).localized and features(path).references


def test_coalescing_with_whole_page_arrays(tmp_path: Path) -> None:
    """Another way to write A: an array of 4 KiB entries for each run, as the driver has them."""
    source = mutated(
        SOURCE,
        (
            ("    NvU64 offset;\n", "    static NvU64 entries[4096 * 512];\n    NvU64 offset;\n"),
            (
                LOOP,
                """\
        step = pageSize;
        while (offset + step < memdescGetSize(pMemDesc) &&
               memdescGetPhysAddr(pMemDesc, AT_GPU, offset + step) == physAddr + step)
        {
            step += pageSize;
        }
        for (NvU64 i = 0; i < step / 4096; i++)
        {
            entries[i] = memdescGetPhysAddr(pMemDesc, AT_GPU, offset + i * 4096);
        }
        pages.pData = entries;
        pages.count = step / 4096;
"""
                + LOOP,
            ),
        ),
    )
    verdict = verdict_on(tmp_path, source)
    assert verdict.failure is None, f"{verdict.failure}\n{verdict.failure.case}"
    assert verdict.name == "A"


def test_page_array_of_the_wrong_granularity(tmp_path: Path) -> None:
    source = mutated(SOURCE, ((LOOP, "        pages.count = 2;\n" + LOOP),))
    verdict = verdict_on(tmp_path, source)
    assert verdict.failure is not None and verdict.failure.prop == "memory-safe"


def test_deferring_all_calls_but_the_last(tmp_path: Path) -> None:
    """Another way to write B: the last call syncs for all of them."""
    source = mutated(
        SOURCE,
        (
            ("NvU64 first, NvU64 length\n", "NvU64 first, NvU64 length, NvU32 defer\n"),
            ("        DMA_TLB_INVALIDATE, NV_FALSE,", "        defer, NV_FALSE,"),
            (
                "    NV_STATUS status = NV_OK;\n    COMPR",
                "    NV_STATUS call, status = 0;\n    COMPR",
            ),
            (
                LOOP,
                """\
        call = _smallMapPage(pGpu, pKernelBus, pMemDesc, &info, &pages, first, step,
            offset + step < memdescGetSize(pMemDesc) ? DMA_DEFER_TLB_INVALIDATE
                                                     : DMA_TLB_INVALIDATE);
        if (status == NV_OK)
        {
            status = call;
        }
""",
            ),
        ),
    )
    verdict = verdict_on(tmp_path, source)
    assert verdict.failure is None, f"{verdict.failure}\n{verdict.failure.case}"
    assert verdict.name == "B"


def test_wrong_body_fails_with_its_property(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = mutated(SOURCE, ((" + pKernelBus->bar1[0].staticBar1.startOffset", ""),))
    tree = make_small_tree(tmp_path, source)
    assert main(["--driver-src", str(tree)]) == EXIT_WRONG
    text = capsys.readouterr().out
    assert "verdict: wrong, held against stock" in text
    assert "property page-table" in text
    assert max(map(len, text.splitlines())) <= 80


def test_behaviour_decides_about_an_unknown_text(tmp_path: Path) -> None:
    """Stock behaviour in an unknown text is an unknown body, not a patchable one."""
    result = check(Tree.at(make_small_tree(tmp_path)), Series.load())
    assert (result.code, result.bench) == (ExitCode.UNKNOWN_BODY, "stock")
    assert cli.main(["check", "--src", str(tmp_path)]) == ExitCode.UNKNOWN_BODY


def test_update_once_is_recognised(tmp_path: Path) -> None:
    source = mutated(
        SOURCE,
        (
            (
                "    if (kind != pKernelBus->staticBar1DefaultKind ||\n        memdesc",
                "    if (pMemDesc->staticBar1MappingRefCount == 0 &&\n"
                "        (kind != pKernelBus->staticBar1DefaultKind ||\n        memdesc",
            ),
            (
                "ALLOC_AS_LOCALIZED))\n    {\n        status = _kbus",
                "ALLOC_AS_LOCALIZED)))\n    {\n        status = _kbus",
            ),
        ),
    )
    tree = make_small_tree(tmp_path / "source", source)
    assert judge_tree(tree, tmp_path)[1].name == "C"
    assert main(["--driver-src", str(tree), "--json"]) == EXIT_OK


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (PARAMETERS + ", surprise", r"unknown \['surprise'\], missing none"),
        (PARAMETERS.replace("deferInvalidate, ", ""), r"missing \['deferInvalidate'\]"),
    ],
)
def test_other_mapping_call_cannot_be_judged(tmp_path: Path, parameters: str, said: str) -> None:
    tree = make_small_tree(tmp_path / "source", parameters=parameters)
    with pytest.raises(BenchError, match=said):
        judge_tree(tree, tmp_path)


def test_tree_without_the_function_cannot_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_small_tree(tmp_path, "int other;\n")
    assert main(["--driver-src", str(tree)]) == EXIT_CANNOT_JUDGE
    assert "no static BAR1 update function" in capsys.readouterr().err
