# SPDX-License-Identifier: MIT
"""A driver whose every other batch is traced, so that the tracing's own effect shows."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vmmprof.drivers.protocol import Batch, Driver, LeakError
from vmmprof.kernel.session import Probe
from vmmprof.recording.events import with_facts
from vmmprof.recording.schema import Flag


class TracedDriver:
    """Wraps a driver; everything but :meth:`run` is the wrapped driver's own.

    A batch is a round of the experiment: rounds are traced and not traced in
    turn, beginning with a traced one. Cycles of traced rounds carry Flag.TRACED:
    the times that a report gives are those of the others.
    """

    def __init__(self, driver: Driver, probe: Probe) -> None:
        self._driver = driver
        self._probe = probe
        self._next_is_traced = True
        self._windows: list[tuple[int, int]] = []
        probe.stop()

    @classmethod
    def wrapping(cls, driver: Driver, probe: Probe) -> tuple[Driver, TracedDriver]:
        """The traced driver, as a driver and as itself."""
        traced = cls(driver, probe)
        return cast(Driver, traced), traced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def __enter__(self) -> TracedDriver:
        self._driver.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._driver.__exit__(*exc)

    def run(self, visits: npt.NDArray[np.int32]) -> Batch:
        traced, self._next_is_traced = self._next_is_traced, not self._next_is_traced
        if not traced:
            return self._driver.run(visits)
        self._probe.start()
        start_ns = time.monotonic_ns()
        try:
            return _marked(self._driver.run(visits))
        except LeakError as error:
            _marked(error.batch)
            raise
        finally:
            self._windows.append((start_ns, time.monotonic_ns()))
            self._probe.stop()
            self._probe.poll()

    def events(self) -> pa.Table:
        """What the traced rounds gave; its facts name their (start, end) windows."""
        return with_facts(self._probe.result().events(), {"traced_windows_ns": self._windows})


def _marked(batch: Batch) -> Batch:
    batch.flags[:] |= np.uint16(Flag.TRACED)
    return batch
