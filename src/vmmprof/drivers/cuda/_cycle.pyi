# SPDX-License-Identifier: MIT
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

NOT_READ_BACK: int
MAX_WORKERS: int
HAS_NVTX: bool
VICTIM_KINDS: tuple[str, ...]
BURST_CONTROL_BYTES: int

CoreCondition = tuple[int, int, int, bool, bool, int, Sequence[int], bool, int]

class MissingSymbolError(Exception): ...

def empty_interval_cost_ns(repeats: int = ...) -> float: ...
def reset_burst(memory: memoryview) -> None: ...
def halt_burst(memory: memoryview) -> None: ...
def worker_trace(memory: memoryview, worker: int) -> tuple[int, int]: ...

class VictimThread:
    def __init__(
        self,
        kind: str,
        context: int,
        device: int,
        *,
        memory_bytes: int,
        function: int = 0,
        stream: int = 0,
        pause_ns: int,
    ) -> None: ...
    def start(self, control: memoryview, workers: int, operations: int) -> None: ...
    def finish(self) -> tuple[npt.NDArray[np.int64], int]: ...

class CycleCore:
    def __init__(
        self, *, knows_locality_domains: bool, pools: bool = ..., nvtx: bool = ...
    ) -> None: ...
    def granularity(
        self, device: int, domain: int, compressible: bool, rdma: bool
    ) -> tuple[int, int]: ...
    def prepare(self, conditions: Iterable[CoreCondition]) -> None: ...
    def request_stop(self) -> None: ...
    def run(
        self, visits: npt.NDArray[np.int32]
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int32],
        npt.NDArray[np.int8],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        bool,
    ]: ...
    def run_burst(
        self,
        workers: Sequence[tuple[int, int]],
        control: memoryview,
        first_worker: int,
        worker_count: int,
        samples: int,
        spacing_ns: int = ...,
    ) -> list[tuple[npt.NDArray[np.int64], int, bool]]: ...
