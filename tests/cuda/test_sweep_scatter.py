# SPDX-License-Identifier: MIT
"""``vmmprof sweep --scatter`` on the stub: the card is filled, halved and given back."""

from __future__ import annotations

import pytest

from tests.cuda.conftest import Ended, Run, assert_clean
from vmmprof.drivers.cuda.scatter import HEADROOM_BYTES, PIECE_BYTES

MEMORY_BYTES = 512 << 20
PIECES = (MEMORY_BYTES - HEADROOM_BYTES) // PIECE_BYTES
# 2 and 4 MiB, plain and two domains, 3 rounds and 1 of warm-up, in each state of the card.
ROWS_A_STATE = 24


def states(ended: Ended) -> tuple[int, int]:
    """Rows of the card as it is, and of the scattered card; the first attempt only."""
    scattered = ended.recording.samples.query("attempt == 1")["scattered"]
    return int((~scattered).sum()), int(scattered.sum())


def test_half_of_the_card_is_held_while_scattered(sweep: Run) -> None:
    ended = sweep("--scatter", memory=MEMORY_BYTES)
    assert_clean(ended)
    assert (ended.returncode, ended.errors) == (0, [])
    blocks = ended.recording.samples.groupby((~ended.recording.samples["scattered"]).cumsum())
    assert len(blocks) > 1  # the two states alternate
    rows = len(ended.recording.samples)
    # Every scattered block fills the card once; the peak leaves the head-room free.
    filled, remainder = divmod(ended.ledger.calls["cuMemCreate"] - rows, PIECES)
    assert filled > 0 and remainder == 0
    assert ended.ledger.peak_allocated_bytes == PIECES * PIECE_BYTES
    plain, scattered = states(ended)
    assert plain >= ROWS_A_STATE and scattered >= ROWS_A_STATE


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"other_pids": "17,4"}, "others use it: PID 4, 17"),
        ({"other_bytes": 2 << 30}, "2048 MiB of it are in use"),
        ({"nvml": 0}, "NVML cannot tell"),
    ],
)
def test_a_card_that_others_use_is_not_filled(
    sweep: Run, settings: dict[str, object], reason: str
) -> None:
    ended = sweep("--scatter", **settings)
    assert_clean(ended)
    assert ended.returncode == 3
    (line,) = ended.errors
    assert reason in line
    assert ended.ledger.calls["cuMemCreate"] == 0


def test_what_does_not_fit_beside_the_pieces_is_refused_in_that_state_only(sweep: Run) -> None:
    # 4 MiB stay free as head-room and half of the rest as pieces: 322 MiB.
    ended = sweep("--scatter", "--sizes", "2M,400M", "--placement", "device", memory=640 << 20)
    assert_clean(ended)
    assert ended.returncode == 4
    assert any("322 MiB stay free, but 400 MiB are needed" in line for line in ended.errors)
    plain, scattered = states(ended)
    assert plain >= 8 and scattered == 0


def test_a_card_that_fills_up_early_is_scattered_all_the_same(sweep: Run) -> None:
    ended = sweep("--scatter", memory=MEMORY_BYTES, fail="cuMemCreate:100:CUDA_ERROR_OUT_OF_MEMORY")
    assert_clean(ended)
    assert ended.returncode == 0


def test_an_error_while_filling_costs_the_scattered_state_only(sweep: Run) -> None:
    ended = sweep("--scatter", memory=MEMORY_BYTES, fail="cuMemCreate:100:CUDA_ERROR_NOT_PERMITTED")
    assert_clean(ended)
    assert ended.returncode == 4
    assert any("cuMemCreate failed: CUDA_ERROR_NOT_PERMITTED" in line for line in ended.errors)
    plain, scattered = states(ended)
    assert plain >= ROWS_A_STATE and scattered == 0


# Cycles come first: 24 of them at most before the card is filled. The 100th
# release is one of the pieces that are let go, the 300th one of those held.
@pytest.mark.parametrize("release", [100, 300])
def test_a_release_that_fails_once_is_tried_again(sweep: Run, release: int) -> None:
    ended = sweep(
        "--scatter", memory=MEMORY_BYTES, fail=f"cuMemRelease:{release}:CUDA_ERROR_UNKNOWN"
    )
    assert ended.ledger.faults == 1
    assert_clean(ended)
    assert ended.returncode == 0


def test_pieces_that_stay_end_the_run_and_the_rest_is_saved(sweep: Run) -> None:
    ended = sweep(
        "--scatter", memory=MEMORY_BYTES, fail="cuMemRelease:100+:CUDA_ERROR_INVALID_VALUE"
    )
    assert ended.returncode == 4
    assert "Traceback" not in ended.stderr
    assert any(
        line.startswith("ended early: ") and "cuMemRelease failed: CUDA_ERROR_INVALID_VALUE" in line
        for line in ended.errors
    )
    # Each piece was tried, although the first try failed already.
    assert ended.ledger.calls["cuMemRelease"] > PIECES
    plain, scattered = states(ended)
    assert plain > 0 and scattered == 0


@pytest.mark.parametrize(
    ("call", "name"),
    [("cuMemCreate:150", "SIGINT"), ("cuMemRelease:100", "SIGTERM"), ("cuMemMap:20", "SIGTERM")],
    ids=["filling", "letting go", "measuring"],
)
def test_an_interrupt_gives_all_pieces_back(sweep: Run, call: str, name: str) -> None:
    ended = sweep("--scatter", memory=MEMORY_BYTES, signal=f"{call}:{name}")
    assert_clean(ended)
    assert ended.returncode == 130
    assert any(f"interrupted by {name}" in line for line in ended.errors)
    assert len(ended.recording.samples) > 0
    if call.startswith("cuMemCreate"):
        assert ended.ledger.calls["cuMemCreate"] == 150  # filling stops at once
