# SPDX-License-Identifier: MIT
"""The documentation leads somewhere: links, pages and commands that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vmmprof.cli.main import COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def links(page: Path) -> list[str]:
    """Targets of a page's links and pictures within the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.split("#")[0] for target in targets if "://" not in target]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_page_is_linked_from_the_readme(page: Path) -> None:
    assert str(page.relative_to(ROOT)) in links(ROOT / "README.md")


@pytest.mark.parametrize("command", [module.__name__.rpartition(".")[2] for module in COMMANDS])
def test_every_command_is_in_the_readme_or_a_page_that_it_links(command: str) -> None:
    pages = [README, *(page.read_text(encoding="utf-8") for page in PAGES)]
    assert any(f"vmmprof {command}" in page for page in pages)


def test_options_that_the_readme_names_are_there() -> None:
    known = _options()
    used = set(re.findall(r"(?<=\s)--[a-z-]+", " ".join(re.findall(r"`vmmprof [^`]*`", README))))
    assert used and used <= known


def _options() -> set[str]:
    parser = build_parser()
    (commands,) = (
        action for action in parser._actions if hasattr(action, "choices") and action.choices
    )
    return {
        option
        for command in commands.choices.values()
        for action in command._actions
        for option in action.option_strings
    }
