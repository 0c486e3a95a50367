# SPDX-License-Identifier: MIT
"""What the documents point at exists: files, headings, commands and their options."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from vmmprof.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "patches").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def anchors(document: Path) -> set[str]:
    """Headings of a document as GitHub makes links of them."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        there = document.parent / file if file else document
        assert there.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{name} links to {target}"


def options_of() -> dict[str, set[str]]:
    """Long options of every command, those of its own commands included."""
    (commands,) = (
        action
        for action in build_parser()._actions  # argparse has no other way
        if isinstance(action, argparse._SubParsersAction)
    )
    return {name: _options(parser) for name, parser in commands.choices.items()}


def _options(parser: argparse.ArgumentParser) -> set[str]:
    found = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for sub in action.choices.values() for option in _options(sub)}
    return found


def code(document: Path) -> list[str]:
    """Lines of a document's blocks, and its code spans."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```.*?\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^ {4,}(.*)$", text, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+)`", text)
    return [line.strip() for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_line_uses_what_there_is(name: str) -> None:
    options = options_of()
    for line in code(ROOT / name):
        called = re.match(r"(?:sudo )?(?:\.venv/bin/)?vmmprof ([a-z]+)(.*)", line)
        if called is None:
            continue
        command, rest = called.groups()
        assert command in options, f"{name}: vmmprof {command}"
        own = re.split(r" -- |[|#;&]", rest)[0]
        for option in re.findall(r"(?<=\s)(--[a-z][a-z-]*)", own):
            assert option in options[command], f"{name}: vmmprof {command} {option}"


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("docs/")])
def test_every_page_is_linked_from_the_readme(name: str) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert name in targets


@pytest.mark.parametrize("command", sorted(options_of()))
def test_every_command_is_at_work_in_some_document(command: str) -> None:
    assert any(f"vmmprof {command}" in path.read_text(encoding="utf-8") for path in DOCUMENTS)
