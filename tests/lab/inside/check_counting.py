# SPDX-License-Identifier: MIT
"""Counts of every counting method are exact, whatever the driver and its callers do."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmmprof.kernel.counting import CountingProbe, UpdateCall

from .mock import HAS_REAL, Mock, Request, loaded
from .probes import attached, compiled_once

# Iterations and synchronisations of one update of 512 pages in runs of 16.
ARMS = {"stock": (512, 512), "a": (32, 32), "b": (512, 1), "ab": (32, 1)}
ALL = [
    *(("module", "padless", flavour) for flavour in ARMS),
    ("kprobe", "padded", "stock"),
    *(("module", "real", flavour) for flavour in ARMS if HAS_REAL),
]
ITERATIONS = (1, 23, 512, 4096)


class Attached:
    """A mock with a probe on it."""

    def __init__(
        self, mock: Mock, probe: CountingProbe, flavour: str, stranger: subprocess.Popen[bytes]
    ) -> None:
        self.mock = mock
        self.stranger = stranger
        self.probe = probe
        self.flavour = flavour
        self._seen = 0

    def calls(self) -> list[UpdateCall]:
        """Calls since the last look; nothing may have been lost."""
        self.probe.poll()
        result = self.probe.result()
        assert result.losses.total == 0, result.losses
        found = list(result.calls[self._seen :])
        self._seen = len(result.calls)
        return found


Kinds = dict[str, Callable[..., CountingProbe]]


@pytest.fixture(scope="module")
def kinds() -> Iterator[Kinds]:
    with compiled_once() as shared:
        yield shared


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def on(request: pytest.FixtureRequest, kinds: Kinds) -> Iterator[Attached]:
    method, core, flavour = request.param
    with loaded(core, flavour) as mock:
        # Started before the probe, so that it is no child of what is watched.
        stranger = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with stranger, attached(method, mock, kinds) as probe:
            yield Attached(mock, probe, flavour, stranger)
            assert stranger.stdin is not None
            stranger.stdin.close()


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_iterations(on: Attached, iterations: int) -> None:
    on.mock.reset()
    on.mock.run(Request(iterations, run_pages=1, outside_calls=300))
    (call,) = on.calls()
    truth = on.mock.truth()
    assert truth["outside_flushes"] == 300
    syncs = 1 if "b" in on.flavour else iterations
    assert (call.maps, call.barriers, call.invalidates) == (iterations, syncs, syncs)
    assert call.page_flushes == truth["page_flushes"] == iterations
    assert call.bytes == iterations << 21


@pytest.mark.parametrize("localized", [0, 1], ids=["compressible", "localized"])
def test_arms(on: Attached, localized: int) -> None:
    on.mock.reset()
    on.mock.run(Request(512, run_pages=16, localized=localized))
    (call,) = on.calls()
    assert (call.maps, call.barriers) == ARMS[on.flavour]
    assert (call.runs, call.bytes, call.invalidates) == (32, 1 << 30, ARMS[on.flavour][1])
    truth = on.mock.truth()
    for name in ("maps", "runs", "bytes", "barriers", "invalidates", "page_flushes", "status"):
        assert getattr(call, name) == truth[name], name


def test_contiguous_memory(on: Attached) -> None:
    on.mock.run(Request(16, contiguous=1))
    (call,) = on.calls()
    assert (call.maps, call.runs, call.bytes) == (1, 1, 32 << 20)
    assert (call.barriers, call.invalidates) == (1, 1)


def test_direction(on: Attached) -> None:
    on.mock.run(Request(2))
    on.mock.run(Request(2, release=1))
    calls = on.calls()
    directions = on.probe.result().directions
    assert [directions[call.caller] for call in calls] == ["commit", "release"]


def test_other_processes_are_left_out(on: Attached, tmp_path: Path) -> None:
    request = tmp_path / "request"
    request.write_bytes(Request(3).packed())
    on.mock.reset()
    assert on.stranger.stdin is not None and on.stranger.stdout is not None
    command = f"cat {request} > /sys/kernel/debug/{on.mock.name}/run; echo done\n"
    on.stranger.stdin.write(command.encode())
    on.stranger.stdin.flush()
    assert on.stranger.stdout.readline() == b"done\n"
    assert on.mock.truth()["maps"] == 3
    assert on.calls() == []


def test_many_threads_inside(on: Attached) -> None:
    request = Request(4, sleep_us=3000)
    threads = [threading.Thread(target=on.mock.run, args=(request,)) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = on.calls()
    assert len(calls) == 32 == len({call.tid for call in calls})
    syncs = 1 if "b" in on.flavour else 4
    assert {(call.maps, call.barriers, call.invalidates) for call in calls} == {(4, syncs, syncs)}


def _run_moved_about(mock: Mock, request: Request) -> set[str]:
    """Run it in a thread that is sent from CPU to CPU meanwhile; the CPUs it was seen on."""
    seen = set()
    tid = []

    def work() -> None:
        tid.append(threading.get_native_id())
        mock.run(request)

    thread = threading.Thread(target=work)
    thread.start()
    turn = 0
    while thread.is_alive():
        if tid:
            try:
                os.sched_setaffinity(tid[0], {turn % 2})
                stat = Path(f"/proc/{tid[0]}/stat").read_text()
            except (ProcessLookupError, FileNotFoundError):
                break
            # Field 39 is the CPU; counting begins behind the name in parentheses.
            seen.add(stat.rsplit(")", 1)[1].split()[36])
            turn += 1
        time.sleep(0.002)
    thread.join()
    return seen


def test_migration(on: Attached) -> None:
    if "b" in on.flavour:
        pytest.skip("sleeps once only, at its end")
    # On a loaded machine a call may be over before it could be moved: then another is made.
    for _ in range(50):
        seen = _run_moved_about(on.mock, Request(64, sleep_us=500))
        (call,) = on.calls()
        assert (call.maps, call.barriers) == (64, 64)
        if seen == {"0", "1"}:
            break
    assert seen == {"0", "1"}
