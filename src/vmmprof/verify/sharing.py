# SPDX-License-Identifier: MIT
"""verify sharing: what each export, import, map and duplicate costs, and whether it runs the loop.

On a stock driver every import, map and duplicate of compressible or localized
memory runs the update loop again; a driver that updates once does not. The loop
shows as time over the ordinary memory of the same size and state, measured in
turns; scattered memory makes it one iteration a page.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from enum import Enum
from typing import TypeVar

from vmmprof.errors import VmmprofError
from vmmprof.kernel.rm import PAGE_BYTES, Bar1Mapping, Memory, import_memory
from vmmprof.placement import PLAIN, Condition, Placement
from vmmprof.sizes import format_size
from vmmprof.verify.gpu import Allocation
from vmmprof.verify.pattern import WORD_BYTES
from vmmprof.verify.session import CannotAllocateError, Session, Wish, unavailable

CALLS = (
    "create",
    "map",
    "export",
    "import",
    "bar1_map",
    "bar1_unmap",
    "duplicate",
    "free_duplicate",
    "free_import",
    "unmap",
    "release",
)
"""In the order in which they are made."""

INCREMENTS = ("export", "import", "bar1_map", "duplicate")
"""Calls that raise the BAR1 use of memory that is in use already."""

# Calls that run the loop on every driver. What one of them takes is the yardstick: a call that
# takes this much of it runs the loop, one that takes this little does not, and in between nobody
# can tell.
_ALWAYS = ("create", "release")
_RERUNS_SHARE = 0.5
_DOES_NOT_SHARE = 0.1


class Expect(str, Enum):
    """What a driver is expected to do at each further use: ``--expect``."""

    RERUN = "rerun"
    """Run the loop again, as stock drivers do."""
    ONCE = "once"
    """Not run it again, as a driver that updates once does."""


T = TypeVar("T")
Times = dict[str, list[int]]


class _Stopwatch:
    """Times calls in ns, by name."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.times_ns: dict[str, int] = {}
        self._clock_ns = clock_ns

    def __call__(self, name: str, function: Callable[[], T]) -> T:
        start_ns = self._clock_ns()
        result = function()
        self.times_ns[name] = self._clock_ns() - start_ns
        return result


def check(
    session: Session,
    placements: Sequence[Placement],
    size_bytes: int,
    repeats: int,
    *,
    scattered: bool,
    asked: bool,
    expect: Expect | None = None,
) -> None:
    """Time all placements in turns on the card as it is, or scattered.

    Whether a call runs the loop again is a finding; with ``expect`` it is a check.
    """
    state = "scattered" if scattered else "as it comes"
    case = f"sharing {format_size(size_bytes)}, {state}"
    usable = []
    for placement in placements:
        if placement.noncontiguous:
            # Not CUDA's to create: the scattered card stands for it here.
            continue
        reason = unavailable(session.gpu, Wish(Condition(placement, size_bytes), asked))
        if reason is None:
            usable.append(placement)
        else:
            session.report.cannot(f"{case}, {placement}", "allocate", reason, asked=asked)
    reason = session.gpu.others() if scattered else None
    if reason is not None:
        session.report.cannot(case, "scatter the card", reason, asked=asked)
        return
    try:
        with (
            _compression_in_use(session),
            session.gpu.scattered(size_bytes) if scattered else nullcontext(),
        ):
            times, runs = _measure(session, usable, size_bytes, repeats)
    except CannotAllocateError as error:
        session.report.cannot(case, "allocate", str(error), asked=asked)
        return
    except ContentsError as error:
        session.report.check(case, "every view shows the same bytes", False, str(error))
        return
    except VmmprofError as error:
        session.report.check(case, "every call succeeds", False, str(error))
        return
    session.report.check(case, "every call succeeds", True, f"{repeats} rounds")
    session.report.check(case, "every view shows the same bytes", True, f"{repeats} rounds")
    session.report.facts_of(case).update(_facts(times, runs, size_bytes))
    if expect is not None:
        for placement in usable:
            if placement != PLAIN:
                _check_expected(session, case, times, placement, expect)


@contextmanager
def _compression_in_use(session: Session) -> Iterator[None]:
    """Keep a compressible page alive meanwhile.

    The first compressible memory of a card costs a call to the GPU's system
    processor, and so does freeing the last; that is not this path's cost, and it
    would hide the loop's.
    """
    if not session.gpu.compression_supported:
        yield
        return
    with ExitStack() as undo:
        undo.callback(session.create(Placement(compressible=True), PAGE_BYTES).release)
        yield


def _check_expected(
    session: Session,
    case: str,
    times: dict[Placement, Times],
    placement: Placement,
    expect: Expect,
) -> None:
    wanted = "yes" if expect is Expect.RERUN else "no"
    for call in INCREMENTS:
        name = f"{placement}: {call} runs the update loop again: expected {wanted}"
        found = reruns(times, placement, call)
        extra_us = _extra_ns(times, placement, call) / 1000
        detail = f"found {found}, {extra_us:.1f} us over ordinary memory"
        if found == "unknown":
            session.report.cannot(case, name, detail, asked=True)
        else:
            session.report.check(case, name, found == wanted, detail)


class ContentsError(VmmprofError):
    """A view of shared memory does not show what CUDA wrote."""


def reruns(times: dict[Placement, Times], placement: Placement, call: str) -> str:
    """``yes``, ``no`` or ``unknown``: whether a call runs the update loop again."""
    loop_ns = _loop_ns(times, placement)
    if loop_ns is None:
        return "unknown"
    share = _extra_ns(times, placement, call) / loop_ns
    if share >= _RERUNS_SHARE:
        return "yes"
    return "no" if share <= _DOES_NOT_SHARE else "unknown"


def _loop_ns(times: dict[Placement, Times], placement: Placement) -> float | None:
    """The loop's time, from the call in which it stands out more; None where it does in neither.

    On a scattered card creation searches for pages, and that varies by milliseconds.
    """
    found = []
    for call in _ALWAYS:
        extras = _extras_ns(times, placement, call)
        middle = statistics.median(extras)
        spread = statistics.median(abs(value - middle) for value in extras)
        if middle > 3 * spread:
            found.append((spread / middle, middle))
    return min(found)[1] if found else None


def _extra_ns(times: dict[Placement, Times], placement: Placement, call: str) -> float:
    """Median over rounds of the time beyond ordinary memory in the same round."""
    return statistics.median(_extras_ns(times, placement, call))


def _extras_ns(times: dict[Placement, Times], placement: Placement, call: str) -> list[int]:
    pairs = zip(times[placement][call], times[PLAIN][call], strict=True)
    return [mine - plain for mine, plain in pairs]


def _measure(
    session: Session, placements: Sequence[Placement], size_bytes: int, repeats: int
) -> tuple[dict[Placement, Times], dict[Placement, int]]:
    """Times by placement and call, a list over rounds; and physical runs by placement."""
    times: dict[Placement, Times] = {p: {call: [] for call in CALLS} for p in placements}
    runs: dict[Placement, int] = {}
    order = list(placements)
    # The first round warms up and learns how the memory lies.
    for number in range(repeats + 1):
        session.random.shuffle(order)
        for placement in order:
            watch = _Stopwatch(session.clock_ns)
            runs_seen = _cycle(session, placement, size_bytes, watch, look=number == 0)
            if number == 0:
                runs[placement] = runs_seen
                continue
            for call, value in watch.times_ns.items():
                times[placement][call].append(value)
    return times, runs


def _cycle(
    session: Session, placement: Placement, size_bytes: int, watch: _Stopwatch, *, look: bool
) -> int:
    """One life of shared memory; the number of physical runs if ``look``, else 0."""
    runs = 0
    with ExitStack() as undo:
        allocation = watch("create", lambda: session.create(placement, size_bytes))
        undo.callback(lambda: watch("release", allocation.release))
        watch("map", allocation.map)
        undo.callback(lambda: watch("unmap", allocation.unmap))
        fd = watch("export", allocation.export)
        undo.callback(session.gpu.close_file, fd)
        memory = watch("import", lambda: import_memory(session.client, fd))
        undo.callback(lambda: watch("free_import", memory.free))
        mapping = watch("bar1_map", lambda: Bar1Mapping(memory, readable=False))
        watch("bar1_unmap", mapping.close)
        duplicate = watch("duplicate", memory.duplicate)
        undo.callback(lambda: watch("free_duplicate", duplicate.free))
        _compare_ends(session, allocation, duplicate)
        if look:
            with Bar1Mapping(memory) as view:
                runs = len(session.layout(memory, view)[0].runs)
    return runs


def _compare_ends(session: Session, allocation: Allocation, memory: Memory) -> None:
    """One word in the first, the middle and the last page, written by CUDA, seen by the CPU."""
    middle = memory.size_bytes // PAGE_BYTES // 2 * PAGE_BYTES
    offsets = (0, middle + PAGE_BYTES // 2, memory.size_bytes - WORD_BYTES)
    with Bar1Mapping(memory) as view:
        for offset in offsets:
            value = int(session.random.integers(1, 1 << 63))
            allocation.put(offset, value)
            seen = view.word(offset)
            if seen != value:
                raise ContentsError(f"0x{seen:016X} at 0x{offset:X}, CUDA wrote 0x{value:016X}")


def _facts(
    times: dict[Placement, Times], runs: dict[Placement, int], size_bytes: int
) -> dict[str, object]:
    placements: dict[str, object] = {}
    for placement, calls in times.items():
        facts: dict[str, object] = {
            "physical_runs": runs[placement],
            "p50_us": {call: statistics.median(values) / 1000 for call, values in calls.items()},
        }
        if placement != PLAIN and PLAIN in times:
            facts["extra_us"] = {call: _extra_ns(times, placement, call) / 1000 for call in calls}
            facts["loop_reruns"] = {call: reruns(times, placement, call) for call in INCREMENTS}
        placements[str(placement)] = facts
    return {"pages": size_bytes // PAGE_BYTES, "placements": placements}
