# SPDX-License-Identifier: MIT
"""How a cycle differs from the usual one: chunks, peers, a busy GPU, a pool, a green context."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmmprof.errors import UsageError
from vmmprof.sizes import KIB, MIB, parse_size

_HINT = (
    "variants are chunks:SIZE, peers:N, peers:N:calls, busy, pool:cold, pool:warm, green:N, "
    "green:domainN and green:domains, joined by +"
)
POOLS = ("cold", "warm")


@dataclass(frozen=True, order=True)
class Variant:
    """What is done otherwise in a cycle; all defaults are the usual cycle.

    ``chunk_bytes``: memory of one address range comes in chunks of this size,
    0 for one chunk. ``peers``: access is granted to this many devices, 0 for
    the own one alone; ``call_a_peer``: with a call for each. ``busy``: a long
    kernel is in flight. ``pool``: ``cold`` or ``warm`` for memory of such a
    pool. ``green``: in a green context of that many SMs, of the SMs of
    ``domainN``, or (``domains``) thread by thread of one domain after the other.
    """

    chunk_bytes: int = 0
    peers: int = 0
    call_a_peer: bool = False
    busy: bool = False
    pool: str = ""
    green: str = ""

    @property
    def needs_burst(self) -> bool:
        """Whether it takes a thread of its own, or something that is started for many cycles."""
        return self.busy or bool(self.green)

    def __str__(self) -> str:
        parts = []
        if self.chunk_bytes:
            parts.append(f"chunks:{_size_text(self.chunk_bytes)}")
        if self.peers:
            parts.append(f"peers:{self.peers}{':calls' if self.call_a_peer else ''}")
        if self.busy:
            parts.append("busy")
        if self.pool:
            parts.append(f"pool:{self.pool}")
        if self.green:
            parts.append(f"green:{self.green}")
        return "+".join(parts)


STANDARD = Variant()


def _size_text(size_bytes: int) -> str:
    if size_bytes % MIB == 0:
        return f"{size_bytes // MIB}M"
    return f"{size_bytes // KIB}K"


def parse_variant(text: str) -> Variant:
    """The variant that ``text`` names, ``""`` being the usual cycle; UsageError for no variant."""
    values: dict[str, int | bool | str] = {}
    for word in text.split("+") if text else ():
        found = _parse_word(word)
        if found is None:
            raise UsageError(f"variant {word!r} in {text!r} is unknown; {_HINT}")
        twice = values.keys() & found.keys()
        if twice:
            raise UsageError(f"variant {text!r} says {word.partition(':')[0]} twice")
        values |= found
    return Variant(**values)  # type: ignore[arg-type]


def _parse_word(word: str) -> dict[str, int | bool | str] | None:
    kind, _, rest = word.partition(":")
    if word == "busy":
        return {"busy": True}
    if kind == "chunks" and rest:
        return {"chunk_bytes": parse_size(rest)}
    if kind == "pool" and rest in POOLS:
        return {"pool": rest}
    if kind == "green" and re.fullmatch(r"[1-9]\d*|domain\d+|domains", rest):
        return {"green": rest}
    peers = re.fullmatch(r"([1-9]\d*)(:calls)?", rest)
    if kind == "peers" and peers is not None:
        return {"peers": int(peers[1]), "call_a_peer": peers[2] is not None}
    return None
