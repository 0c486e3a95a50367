# SPDX-License-Identifier: MIT
"""Phase times after calibration, on a clock that counts instructions and so repeats exactly."""

from __future__ import annotations

import pytest

from .mock import Request, loaded
from .probes import attached

REQUEST = Request(512, pte_ns=2000, barrier_ns=7500, tlb_ns=7500)


@pytest.mark.parametrize(("method", "pads"), [("kprobe", "padded"), ("module", "padless")])
def test_phases_within_two_percent(method: str, pads: str) -> None:
    with loaded(pads, "stock") as mock:
        mock.run(REQUEST)
        truth = mock.truth()
        with attached(method, mock) as probe:
            mock.run(REQUEST)
            probe.poll()
            result = probe.result()
        (call,) = result.calls
        corrected = result.calibration.corrected(call)
    print(result.calibration, corrected, truth)
    assert corrected["barrier_ns"] == pytest.approx(truth["barrier_ns"], rel=0.02)
    assert corrected["tlb_ns"] == pytest.approx(truth["tlb_ns"], rel=0.02)
    assert corrected["duration_ns"] == pytest.approx(truth["update_ns"], rel=0.02)
