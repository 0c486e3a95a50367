# SPDX-License-Identifier: MIT
"""In which order conditions are visited.

Interleaved: every round visits every condition once, freshly shuffled, so that
the machine's drift meets all conditions alike. The order follows from the seed
alone. Sequential: all visits of one condition come before the next one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Rounds of a state of the card that are kept together; entering a state costs
# seconds, and four blocks of each state in ABBA order cancel a linear drift.
BLOCKS_PER_STATE = 4


@dataclass(frozen=True)
class Visits:
    """Visits to run in one go: condition indices with the round each belongs to."""

    condition: npt.NDArray[np.int32]
    round: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]


def interleaved(
    conditions: Sequence[int], rounds: range, seed: int, attempt: int
) -> Iterator[Visits]:
    """One Visits a round, each a permutation of the condition indices."""
    indices = np.asarray(conditions, np.int32)
    for number in rounds:
        shuffled = np.random.default_rng([seed, attempt, number]).permutation(indices)
        yield Visits(
            shuffled,
            np.full(len(indices), number, np.int32),
            np.arange(len(indices), dtype=np.int32),
        )


def sequential(conditions: Sequence[int], rounds: range) -> Iterator[Visits]:
    """One Visits a condition, holding all its rounds."""
    numbers = np.arange(rounds.start, rounds.stop, dtype=np.int32)
    for order, condition in enumerate(conditions):
        yield Visits(
            np.full(len(numbers), condition, np.int32),
            numbers,
            np.full(len(numbers), order, np.int32),
        )


def state_blocks(rounds: int, states: Sequence[bool]) -> list[tuple[bool, int]]:
    """Split ``rounds`` of each card state into blocks: (scattered, rounds of the block).

    One state is one block; two states alternate ABBA, each getting ``rounds``.
    """
    if len(states) == 1:
        return [(states[0], rounds)]
    blocks = min(BLOCKS_PER_STATE, rounds)
    base, extra = divmod(rounds, blocks)
    result = []
    for i in range(blocks):
        size = base + (i < extra)
        pair = states if i % 2 == 0 else states[::-1]
        result += [(state, size) for state in pair]
    return result
