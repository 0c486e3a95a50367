# SPDX-License-Identifier: MIT
"""One table of exit codes: the enum, docs/exit-codes.md and the help say the same."""

from __future__ import annotations

import re
from pathlib import Path

from vmmprof.cli.main import build_parser
from vmmprof.errors import ExitCode

DOCS = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_the_documentation_has_every_code_and_no_other() -> None:
    rows = re.findall(r"^\| (\d+) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(code) for code in rows] == [int(code) for code in ExitCode]


def test_the_help_has_every_code_and_no_other() -> None:
    epilog = str(build_parser().epilog)
    codes = re.findall(r"(?:^|; |;\n|: )(\d+) ", epilog)
    assert [int(code) for code in codes] == [int(code) for code in ExitCode]
