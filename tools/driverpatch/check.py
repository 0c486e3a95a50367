# SPDX-License-Identifier: MIT
"""Can this tree be patched? The answer goes by the functions' text, then by the bench."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driverpatch.errors import DriverError, ExitCode
from driverpatch.functions import find_functions
from driverpatch.series import NO_ARM, Known, Series
from driverpatch.tree import Tree, UpdatePath

BENCH = Path(__file__).parent.parent.parent / "kernel_module_tests" / "run-bench"
MAPPING_CALL_FILE = "src/nvidia/src/kernel/gpu/mem_mgr/arch/maxwell/virt_mem_allocator_gm107.c"

# What the series relies on in the mapping call itself: without the deferral flag
# it flushes both memories and invalidates, with it it does neither.
_MAPPING_CALL_SYNC = (
    "DMA_TLB_INVALIDATE == deferInvalidate ) { kbusFlush_HAL ( pGpu , pKernelBus , "
    "BUS_FLUSH_VIDEO_MEMORY | BUS_FLUSH_SYSTEM_MEMORY ) ; "
    "gvaspaceInvalidateTlb ( pGVAS , pGpu , update_type ) ; }"
)

# Statements of the update function by which an unknown body is described.
LANDMARKS: Mapping[str, str] = {
    "asserts the GPU lock": r"rmDeviceGpuLockIsOwner",
    "one step a page, or all when contiguous": r"mapGranularity = memdescGetContiguity",
    "loops over the memory": r"for \( offset = 0 ; offset < mapSize ; offset \+= \w+ \)",
    "reads one physical address a step": r"physAddr = memdescGet(Pte)?PhysAddr \(",
    "BAR1 address is physical plus start offset": r"vaLo = physAddr \+ .{0,60}startOffset",
    "one page array entry": r"pageArray \. count = 1 ;",
    "sets the localized bit": r"bLocalized = NV_TRUE",
    "restores the default kind": r"comprInfo \. kind = pKernelBus -> staticBar1DefaultKind",
    "maps with dmaUpdateVASpace": r"status = dmaUpdateVASpace_HAL \(",
    "invalidates in each call": r"\bDMA_TLB_INVALIDATE\b",
    "defers the invalidate": r"\bDMA_DEFER_TLB_INVALIDATE\b",
    "invalidates itself": r"vaspaceInvalidateTlb",
    "hides NOT_SUPPORTED": r"status == NV_ERR_NOT_SUPPORTED",
}


@dataclass(frozen=True)
class CheckResult:
    """code: one of OK (patchable), ALREADY_PATCHED, NOT_AFFECTED, UNKNOWN_BODY."""

    code: ExitCode
    message: str
    version: str
    update_class: str = ""
    references_class: str = ""
    arm: str = ""
    file: str = ""
    digest: str = ""
    landmarks: Mapping[str, bool] | None = None
    bench: str = ""

    def data(self) -> dict[str, Any]:
        return asdict(self) | {"code": int(self.code), "answer": self.code.name.lower()}

    def text(self) -> str:
        lines = [f"driver {self.version}: {self.message}"]
        if self.digest:
            lines.append(f"  function in {self.file}")
            lines.append(f"  digest {self.digest}")
        if self.bench:
            lines.append(f"  on the bench it behaves as: {self.bench}")
        for name, present in (self.landmarks or {}).items():
            lines.append(f"  {'has  ' if present else 'LACKS'}  {name}")
        return "\n".join(lines)


def arm_name(arm: str) -> str:
    """'ab' as 'A+B'."""
    return arm if arm == NO_ARM else "+".join(arm.upper())


def landmarks(path: UpdatePath) -> dict[str, bool]:
    text = path.update.normalised
    return {name: re.search(pattern, text) is not None for name, pattern in LANDMARKS.items()}


def mapping_call_syncs(tree: Tree) -> bool:
    """Whether dmaUpdateVASpace still syncs exactly when it is not told to defer."""
    file = tree.root / MAPPING_CALL_FILE
    if not file.is_file():
        return False
    source = file.read_text(encoding="utf-8", errors="surrogateescape")
    function = find_functions(source).get("dmaUpdateVASpace_GF100")
    return function is not None and _MAPPING_CALL_SYNC in function.normalised


def bench_verdict(tree: Tree) -> str:
    """'stock', 'A', ..., 'wrong: PROPERTY', or 'cannot judge: WHY'."""
    done = subprocess.run(
        [sys.executable, str(BENCH), "--driver-src", str(tree.root), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        why = done.stderr.strip().splitlines()
        return f"cannot judge: {why[-1].removeprefix('run-bench: ') if why else 'no output'}"
    verdict = json.loads(done.stdout)
    if verdict["failure"] is not None:
        return f"wrong: {verdict['failure']['property']}"
    return str(verdict["verdict"])


def check(tree: Tree, series: Series) -> CheckResult:
    """Classify the tree; changes nothing."""
    version = tree.version
    path = tree.update_path()
    if path is None:
        return CheckResult(
            ExitCode.NOT_AFFECTED, "not affected: it has no static BAR1 update function", version
        )
    if not path.has_page_loop:
        return CheckResult(
            ExitCode.NOT_AFFECTED,
            "not affected: its update function maps without a loop",
            version,
            file=str(path.file),
            digest=path.update.digest,
        )
    known = series.recognise(path)
    if known is None:
        return _check_unknown(tree, path)
    return _check_known(tree, path, known)


def _check_known(tree: Tree, path: UpdatePath, known: Known) -> CheckResult:
    def result(code: ExitCode, message: str) -> CheckResult:
        return CheckResult(
            code,
            message,
            tree.version,
            update_class=known.update.id,
            references_class=known.references.id if known.references else "",
            arm=known.arm,
            file=str(path.file),
            digest=path.update.digest,
            landmarks=landmarks(path) if code is ExitCode.UNKNOWN_BODY else None,
        )

    if known.arm != NO_ARM:
        return result(
            ExitCode.ALREADY_PATCHED,
            f"already patched with {arm_name(known.arm)} (class {known.update.id})",
        )
    if not known.update.patchable:
        return result(
            ExitCode.UNKNOWN_BODY,
            f"older body (class {known.update.id}) that the series has no patches for",
        )
    if known.references is None:
        return result(
            ExitCode.UNKNOWN_BODY,
            f"class {known.update.id}, but with unknown reference counting functions",
        )
    if not mapping_call_syncs(tree):
        return result(
            ExitCode.UNKNOWN_BODY,
            f"class {known.update.id}, but dmaUpdateVASpace no longer syncs as the series assumes",
        )
    return result(ExitCode.OK, f"patchable (class {known.update.id}, {known.references.id})")


def _check_unknown(tree: Tree, path: UpdatePath) -> CheckResult:
    try:
        behaves = bench_verdict(tree)
    except DriverError as error:
        behaves = f"cannot judge: {error}"
    fixed = re.fullmatch(r"[ABC](\+[ABC])*", behaves) is not None
    message = (
        f"fixed already: its own code behaves as {behaves}"
        if fixed
        else "unknown body: nothing was touched"
    )
    return CheckResult(
        ExitCode.ALREADY_PATCHED if fixed else ExitCode.UNKNOWN_BODY,
        message,
        tree.version,
        file=str(path.file),
        digest=path.update.digest,
        landmarks=None if fixed else landmarks(path),
        bench=behaves,
    )
