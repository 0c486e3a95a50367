# SPDX-License-Identifier: MIT
"""What the profiler itself costs: its timing core against a C twin and a Python loop.

All run the same cycle of plain memory in one process and one context, in
blocks of 20 cycles whose order is shuffled anew every round. Each round gives
the ratio of a contestant's median to the twin's of the same round; what is
printed is the median of these ratios with its 95 % interval. The twin runs
twice in every round: the second one against the first is the control, which
shows what this machine's noise alone makes of a ratio of one.

    python benchmarks/profiler_cost.py --sizes 2M --rounds 200 --within 2%

With ``--within`` the exit code is 1 unless the interval of the total's ratio
of the core to the twin lies within that distance of 1. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cuda

from vmmprof.analysis.intervals import Estimate, median
from vmmprof.cli.arguments import percentage, whole_number
from vmmprof.drivers.cuda.driver import CudaDriver
from vmmprof.errors import NothingMeasuredError, VmmprofError
from vmmprof.experiment.lock import measurement_lock
from vmmprof.experiment.pinning import cpus_to_pin, pinned
from vmmprof.operations import VMM_CYCLE
from vmmprof.placement import PLAIN, Condition
from vmmprof.sizes import format_size, parse_sizes

CYCLES_A_BLOCK = 20
WARMUP_ROUNDS = 5
TWIN, TWIN_AGAIN, CORE, PYTHON = "twin", "twin again", "core", "Python"
CONTESTANTS = (TWIN, TWIN_AGAIN, CORE, PYTHON)
COLUMNS = (*VMM_CYCLE.calls, "total")

# (cycles, calls) ns of one block of one contestant.
Block = npt.NDArray[np.int64]
RunBlock = Callable[[], Block]


def cuda_include() -> Path:
    """Folder of the cuda.h that vmmprof is built against."""
    spec = importlib.util.find_spec("nvidia.cu13")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(root) / "include" / "cuda.h").is_file():
            return Path(root) / "include"
    raise NothingMeasuredError(
        "cuda.h of CUDA 13.4 was not found; pip install 'nvidia-cuda-runtime==13.4.*', "
        "or name its folder with --cuda-include"
    )


def build_twin(include: Path, folder: Path) -> ctypes.CDLL:
    """Compile the twin as the core is compiled (-O2) and load it.

    The loader binds its calls to the libcuda that is loaded already, as it
    would bind those of a program that was linked with -lcuda.
    """
    library = folder / "cycle_twin.so"
    flags = ["-std=c11", "-O2", "-Wall", "-shared", "-fPIC", f"-isystem{include}"]
    source = Path(__file__).with_name("cycle_twin.c")
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    twin = ctypes.CDLL(str(library))
    twin.twin_cycles.argtypes = [
        ctypes.c_int,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        np.ctypeslib.ndpointer(np.int64, ndim=2, flags="C_CONTIGUOUS"),
    ]
    return twin


def twin_block(twin: ctypes.CDLL, driver: CudaDriver, size_bytes: int) -> RunBlock:
    knows_domains = driver.domain_count is not None

    def run() -> Block:
        calls_ns = np.zeros((CYCLES_A_BLOCK, len(VMM_CYCLE.calls)), np.int64)
        status = twin.twin_cycles(
            driver.device, size_bytes, CYCLES_A_BLOCK, knows_domains, calls_ns
        )
        if status != 0:
            raise NothingMeasuredError(f"the C twin failed: {driver.status_name(status)}")
        return calls_ns

    return run


def core_block(driver: CudaDriver) -> RunBlock:
    """The profiler's own path: a driver that was prepared with one condition."""
    visits = np.zeros(CYCLES_A_BLOCK, np.int32)

    def run() -> Block:
        batch = driver.run(visits)
        if batch.status[-1] != 0:
            raise NothingMeasuredError(
                f"the core failed: {driver.status_name(int(batch.status[-1]))}"
            )
        return batch.calls_ns

    return run


def _must(answer: tuple[Any, ...]) -> Any:
    if answer[0] != cuda.CUresult.CUDA_SUCCESS:
        raise NothingMeasuredError(f"the Python loop failed: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None


def python_block(driver: CudaDriver, size: int) -> RunBlock:
    """What a user of cuda.bindings would write, with results checked after the clock is read."""
    prop = cuda.CUmemAllocationProp()
    prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = driver.device
    access = cuda.CUmemAccessDesc()
    access.location.type = prop.location.type
    access.location.id = driver.device
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ordinal = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
    knows_domains = driver.domain_count is not None
    now = perf_counter_ns

    def cycle() -> list[int]:
        t0 = now()
        reserved = cuda.cuMemAddressReserve(size, 0, 0, 0)
        t1 = now()
        address = _must(reserved)
        t2 = now()
        created = cuda.cuMemCreate(size, prop, 0)
        t3 = now()
        handle = _must(created)
        t4 = now()
        mapped = cuda.cuMemMap(address, size, 0, handle, 0)
        t5 = now()
        _must(mapped)
        t6 = now()
        accessible = cuda.cuMemSetAccess(address, size, [access], 1)
        t7 = now()
        _must(accessible)
        _must(cuda.cuMemGetAllocationPropertiesFromHandle(handle))
        if knows_domains:
            _must(cuda.cuPointerGetAttribute(ordinal, address))
        t8 = now()
        unmapped = cuda.cuMemUnmap(address, size)
        t9 = now()
        _must(unmapped)
        t10 = now()
        released = cuda.cuMemRelease(handle)
        t11 = now()
        _must(released)
        t12 = now()
        freed = cuda.cuMemAddressFree(address, size)
        t13 = now()
        _must(freed)
        return [t1 - t0, t3 - t2, t5 - t4, t7 - t6, t9 - t8, t11 - t10, t13 - t12]

    return lambda: np.array([cycle() for _ in range(CYCLES_A_BLOCK)], np.int64)


def block_medians(block: Block) -> npt.NDArray[np.float64]:
    """Medians in ns over a block's cycles: one a call, then that of their sum."""
    with_total = np.column_stack([block, block.sum(axis=1)])
    return np.asarray(np.median(with_total, axis=0), np.float64)


def run_rounds(
    run_block: dict[str, RunBlock], rounds: int, shuffle: random.Random
) -> dict[str, npt.NDArray[np.float64]]:
    """Block medians in ns by contestant, shape (rounds, 8); warm-up rounds are left out."""
    medians: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in run_block}
    for _ in range(WARMUP_ROUNDS + rounds):
        for name in shuffle.sample(list(run_block), len(run_block)):
            medians[name].append(block_medians(run_block[name]()))
    return {name: np.array(rows[WARMUP_ROUNDS:]) for name, rows in medians.items()}


def ratios(medians: dict[str, npt.NDArray[np.float64]], name: str) -> dict[str, Estimate]:
    """By column, the ratio of a contestant to the twin, paired by round."""
    paired = medians[name] / medians[TWIN]
    return {column: median(paired[:, i]) for i, column in enumerate(COLUMNS)}


def print_size(size_bytes: int, medians: dict[str, npt.NDArray[np.float64]]) -> None:
    print(f"\nplain {format_size(size_bytes)}, {len(medians[TWIN])} rounds: ns, ratio to the twin")
    header = "".join(f"{name:>23}" for name in CONTESTANTS[1:])
    print(f"{'':<10} {'twin':>7}{header}")
    by_name = {name: ratios(medians, name) for name in CONTESTANTS[1:]}
    for i, column in enumerate(COLUMNS):
        cells = "".join(f"{_ratio(by_name[name][column]):>23}" for name in CONTESTANTS[1:])
        print(f"{column:<10} {np.median(medians[TWIN][:, i]):>7.0f}{cells}")


def _ratio(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.lo:.3f}, {estimate.hi:.3f}]"


def as_json(size_bytes: int, medians: dict[str, npt.NDArray[np.float64]]) -> dict[str, object]:
    return {
        "size_bytes": size_bytes,
        "rounds": len(medians[TWIN]),
        "cycles_a_block": CYCLES_A_BLOCK,
        "median_ns": {
            name: dict(zip(COLUMNS, np.median(rows, axis=0).tolist(), strict=True))
            for name, rows in medians.items()
        },
        "ratio_to_twin": {
            name: {
                column: {"value": estimate.value, "lo": estimate.lo, "hi": estimate.hi}
                for column, estimate in ratios(medians, name).items()
            }
            for name in CONTESTANTS[1:]
        },
    }


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("2M,64M"))
    parser.add_argument("--rounds", type=whole_number("--rounds", 6), default=200, metavar="N")
    parser.add_argument("--device", type=whole_number("--device", 0), default=0, metavar="N")
    parser.add_argument("--seed", type=whole_number("--seed", 0), default=0, metavar="N")
    parser.add_argument("--within", type=percentage, metavar="P%", help="fail outside of 1 +- P%%")
    parser.add_argument("--cuda-include", type=Path, metavar="DIR", help="folder of cuda.h")
    parser.add_argument(
        "--no-lock", action="store_true", help="measure although another vmmprof does"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(argv)


def measure(arguments: argparse.Namespace) -> dict[int, dict[str, npt.NDArray[np.float64]]]:
    """Block medians by size and contestant."""
    shuffle = random.Random(arguments.seed)
    results = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        nullcontext() if arguments.no_lock else measurement_lock(),
        CudaDriver(arguments.device) as driver,
        pinned(cpus_to_pin("auto", driver.pci_bus_id)[0]),
    ):
        twin = build_twin(arguments.cuda_include or cuda_include(), Path(folder))
        for size_bytes in arguments.sizes:
            driver.prepare([Condition(PLAIN, size_bytes)])
            run_twin = twin_block(twin, driver, size_bytes)
            run_block = {
                TWIN: run_twin,
                TWIN_AGAIN: run_twin,
                CORE: core_block(driver),
                PYTHON: python_block(driver, size_bytes),
            }
            results[size_bytes] = run_rounds(run_block, arguments.rounds, shuffle)
    return results


def outside(results: dict[int, dict[str, npt.NDArray[np.float64]]], within: float) -> list[str]:
    """Sizes whose total's ratio of core to twin is not within the bounds, as texts."""
    failures = []
    for size_bytes, medians in results.items():
        total = ratios(medians, CORE)["total"]
        if not (1 - within <= total.lo and total.hi <= 1 + within):
            failures.append(
                f"{format_size(size_bytes)}: total of core to twin {_ratio(total)} is not within "
                f"{1 - within:.2f}..{1 + within:.2f}"
            )
    return failures


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    try:
        results = measure(arguments)
    except VmmprofError as error:
        print(f"profiler_cost: error: {error}", file=sys.stderr)
        return int(error.exit_code)
    if arguments.json:
        print(json.dumps([as_json(*item) for item in results.items()], indent=1))
    else:
        for size_bytes, medians in results.items():
            print_size(size_bytes, medians)
    failures = [] if arguments.within is None else outside(results, arguments.within)
    for failure in failures:
        print(f"profiler_cost: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
