# SPDX-License-Identifier: MIT
"""Functions as text: find them in a C file, normalise them, compare them.

The driver's update function is recognised by what it says, never by a version
number. The text that is compared has no comments and single spaces, so that
what a reader would call the same code has the same hash.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function definition inside a C file."""

    name: str
    text: str
    start: int
    end: int
    is_static: bool

    @property
    def normalised(self) -> str:
        return normalise(self.text)

    @property
    def digest(self) -> str:
        """SHA-256 of the normalised text, first 16 hex digits."""
        return hashlib.sha256(self.normalised.encode()).hexdigest()[:16]


_COMMENT_OR_LITERAL = re.compile(
    r"/\*.*?\*/|//(?:\\\n|[^\n])*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\w+|"
    r"->|\+\+|--|<<=|>>=|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\S"
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", re.MULTILINE)
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def _blanked(text: str, *, literals: bool) -> str:
    """The text with comments (and literals) overwritten by spaces, offsets kept."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if not literals and found[0] in "\"'":
            return found
        return re.sub(r"[^\n]", " ", found)

    return _COMMENT_OR_LITERAL.sub(blank, text)


def normalise(text: str) -> str:
    """C text as tokens between single spaces, without comments."""
    return " ".join(_TOKEN.findall(_blanked(text, literals=False)))


def _closing(text: str, opening: int) -> int | None:
    """Offset of the bracket that closes the one at `opening`; None if none does."""
    pairs = {"(": ")", "{": "}"}
    close = pairs[text[opening]]
    depth = 0
    for offset in range(opening, len(text)):
        if text[offset] == text[opening]:
            depth += 1
        elif text[offset] == close:
            depth -= 1
            if depth == 0:
                return offset
    return None


def _definition_start(text: str, name_offset: int) -> int:
    """Where the definition begins whose name stands at `name_offset`."""
    start = max(text.rfind(mark, 0, name_offset) for mark in (";", "}")) + 1
    directives_end = 0
    # A preprocessor line ends at its newline, not at a semicolon.
    for directive in _DIRECTIVE.finditer(text[start:name_offset]):
        directives_end = directive.end()
    start += directives_end
    return start + len(text[start:name_offset]) - len(text[start:name_offset].lstrip())


def find_functions(source: str) -> dict[str, Function]:
    """Every function that a C file defines, by name."""
    text = _blanked(source, literals=True)
    found: dict[str, Function] = {}
    position = 0
    while (match := _CALL.search(text, position)) is not None:
        parameters_end = _closing(text, match.end() - 1)
        if parameters_end is None:
            break
        body = re.compile(r"\s*\{").match(text, parameters_end + 1)
        if body is None:
            position = match.end()
            continue
        body_end = _closing(text, body.end() - 1)
        if body_end is None:
            break
        start = _definition_start(text, match.start())
        head = text[start : match.start()]
        # `if (...) {` at file level can only be inside a macro: no return type.
        if head.strip() and match.group(1) not in {"if", "for", "while", "switch"}:
            found[match.group(1)] = Function(
                name=match.group(1),
                text=source[start : body_end + 1] + "\n",
                start=start,
                end=body_end + 1,
                is_static=re.search(r"\bstatic\b", head) is not None,
            )
        position = body_end + 1
    return found


def called_names(function: Function) -> set[str]:
    """Names that the function's body calls (macros included)."""
    body = _blanked(function.text, literals=True).split("{", 1)[1]
    return {match.group(1) for match in _CALL.finditer(body)}
