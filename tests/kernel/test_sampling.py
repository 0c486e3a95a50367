# SPDX-License-Identifier: MIT
"""Samples of this very process, where the machine allows them."""

from __future__ import annotations

import os
import time

import pytest

from vmmprof.errors import NothingMeasuredError
from vmmprof.kernel.attribution import Phase
from vmmprof.kernel.sampling import Sampler
from vmmprof.recording.events import SAMPLE, event_facts


def test_samples_carry_time_thread_and_whole_chains() -> None:
    started_ns = time.monotonic_ns()
    try:
        with Sampler(os.getpid(), period_ns=100_000) as sampler:
            sampler.start()
            end_ns = time.monotonic_ns() + 300_000_000
            while time.monotonic_ns() < end_ns:
                os.stat("/")  # noqa: PTH116
            sampler.stop()
            sampler.poll()
            result = sampler.result()
    except NothingMeasuredError as error:
        pytest.skip(str(error))
    ended_ns = time.monotonic_ns()
    assert len(result.time_ns) > 50
    assert all(started_ns < moment < ended_ns for moment in result.time_ns)
    assert set(result.pid) == {os.getpid()}
    phases = {result.attributions[index].phase for index in result.stack}
    assert Phase.OUTSIDE in phases
    assert phases <= {Phase.USER, Phase.OUTSIDE, Phase.UNATTRIBUTED}
    kernel = {names[-1] for names in result.stacks if names}
    assert "entry_SYSCALL_64_after_hwframe" in kernel
    events = result.events()
    assert set(events["kind"].to_pylist()) == {SAMPLE}
    assert events["iterations"].null_count == len(events)
    assert event_facts(events)["period_ns"] == 100_000


def test_a_process_that_is_gone_is_said() -> None:
    with pytest.raises(NothingMeasuredError, match=r"gone|kallsyms"), Sampler(4_000_000):
        pass
