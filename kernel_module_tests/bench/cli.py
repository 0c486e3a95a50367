# SPDX-License-Identifier: MIT
"""The bench's command line: judge a tree, or this project's own function."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError
from bench.extract import Features, extracted_source, features
from bench.judge import Verdict, judge
from bench.mutants import MUTANTS, Mutant, mutated
from bench.report import MutantResult, mutants_text, verdict_data, verdict_text
from bench.subject import UPDATE_PATH, Subject, build_extracted, build_own
from driverpatch.errors import DriverError
from driverpatch.tree import Tree, UpdatePath

EXIT_OK, EXIT_WRONG, EXIT_CANNOT_JUDGE = 0, 1, 2
OWN_FLAVOURS = ("", "a", "b", "ab", "abc")


def _path_of(root: Path) -> tuple[UpdatePath, str]:
    """The tree's update path, and its text for the bench."""
    tree = Tree.at(root)
    path = tree.update_path()
    if path is None:
        raise BenchError(f"{root}: has no static BAR1 update function; nothing to judge")
    return path, extracted_source(path, tree.dma_update_parameters())


def judge_tree(root: Path, scratch: Path) -> tuple[UpdatePath, Verdict]:
    """Cut the update path out of the tree at `root` and hold it against the corpus."""
    path, text = _path_of(root)
    source = scratch / "extracted.c"
    source.write_text(text, encoding="utf-8", errors="surrogateescape")
    build_extracted(scratch / "tree", source)
    with Subject(scratch / "tree") as subject:
        return path, judge(subject, features(path))


def judge_own(flavour: str, scratch: Path) -> Verdict:
    build_own(scratch / f"own-{flavour}", flavour)
    with Subject(scratch / f"own-{flavour}") as subject:
        return judge(subject, Features())


def _judge_mutant(mutant: Mutant, scratch: Path, tree: tuple[UpdatePath, str] | None) -> str:
    source, program = scratch / "mutant.c", scratch / "mutant"
    if tree is None:
        asked = Features()
        source.write_text(mutated(UPDATE_PATH.read_text(), mutant.own))
        build_own(program, "abc", source)
    else:
        path, text = tree
        asked = features(path)
        if mutant.needs_localized and not asked.localized:
            return "n/a"
        source.write_text(mutated(text, mutant.driver), errors="surrogateescape")
        build_extracted(program, source)
    with Subject(program) as subject:
        verdict = judge(subject, asked)
    return verdict.failure.prop if verdict.failure is not None else ""


def judge_mutants(scratch: Path, root: Path | None = None) -> list[MutantResult]:
    """Judge every mutant of the own function, or of a tree that has A+B+C applied."""
    tree = None if root is None else _path_of(root)
    return [
        MutantResult(mutant.name, mutant.mistake, _judge_mutant(mutant, scratch, tree))
        for mutant in MUTANTS
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run-bench",
        description="Judge a static BAR1 update function on a simulated MMU: does it behave "
        "as stock, as A (coalesced runs), B (deferred sync), C (update once), a mix of them, "
        "or is it wrong, and by which property first.",
        epilog="Exit: 0 behaves as one of them, 1 wrong (or a mutant survived), 2 cannot judge.",
    )
    parser.add_argument(
        "--driver-src", type=Path, metavar="DIR", help="source tree; without: our own function"
    )
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="judge wrong versions instead; a tree must have A+B+C applied",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _report_mutants(options: argparse.Namespace, scratch: Path) -> int:
    results = judge_mutants(scratch, options.driver_src)
    if options.json:
        print(json.dumps([vars(result) for result in results], indent=2))
    else:
        print(mutants_text(results))
    return EXIT_WRONG if any(result.survived for result in results) else EXIT_OK


def _report_tree(options: argparse.Namespace, scratch: Path) -> int:
    path, verdict = judge_tree(options.driver_src, scratch)
    title = f"{Tree.at(options.driver_src).version}: {path.update.name} ({path.update.digest})"
    if options.json:
        print(json.dumps(verdict_data(verdict), indent=2))
    else:
        print(verdict_text(title, verdict))
    return EXIT_OK if verdict.failure is None else EXIT_WRONG


def _report_own(options: argparse.Namespace, scratch: Path) -> int:
    verdicts = {flavour: judge_own(flavour, scratch) for flavour in OWN_FLAVOURS}
    if options.json:
        print(json.dumps({k or "stock": verdict_data(v) for k, v in verdicts.items()}, indent=2))
    else:
        texts = [
            verdict_text(f"own function, flavour {flavour or 'stock'}", verdict)
            for flavour, verdict in verdicts.items()
        ]
        print("\n\n".join(texts))
    # Each flavour has to be seen as what it is, not merely as something.
    wanted = {"": "stock", "a": "A", "b": "B", "ab": "A+B", "abc": "A+B+C"}
    right = all(verdict.name == wanted[flavour] for flavour, verdict in verdicts.items())
    return EXIT_OK if right else EXIT_WRONG


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="vmmprof-bench-") as scratch:
            if options.mutants:
                return _report_mutants(options, Path(scratch))
            if options.driver_src is not None:
                return _report_tree(options, Path(scratch))
            return _report_own(options, Path(scratch))
    except (BenchError, DriverError) as error:
        print(f"run-bench: {error}", file=sys.stderr)
        return EXIT_CANNOT_JUDGE
    except KeyboardInterrupt:
        return 130
