# SPDX-License-Identifier: MIT
"""Call chains are charged to the update path only where it is among the callers."""

from __future__ import annotations

import pytest

from vmmprof.kernel.attribution import Attribution, Phase, attribute
from vmmprof.kernel.update_path import Direction

ENTRY = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
COMMIT = ["kbusIncreaseStaticBar1Refcount_TU102", "vidmemConstruct_IMPL", *ENTRY]
RELEASE = ["vidmemDestruct_IMPL", *ENTRY]
UPDATE = "_kbusUpdateStaticBar1VAMapping_TU102.isra.0"
MAP = "dmaUpdateVASpace_GF100"


@pytest.mark.parametrize(
    ("chain", "phase"),
    [
        ([], Phase.USER),
        ([UPDATE], Phase.UPDATE_OTHER),
        (["memdescGetPhysAddr", UPDATE], Phase.UPDATE_OTHER),
        ([MAP, UPDATE], Phase.PTE),
        (["mmuWalkMap", "gvaspaceMap_IMPL", MAP, UPDATE], Phase.PTE),
        (["kbusFlush_GM107", MAP, UPDATE], Phase.BARRIER),
        (
            ["osFlushCpuWriteCombineBuffer", "kbusFlush_GM107.constprop.0", MAP, UPDATE],
            Phase.BARRIER,
        ),
        # a deferred barrier is called by the update function itself
        (["kbusFlush_GM107", UPDATE], Phase.BARRIER),
        # a flush that ends a page-table write is not the loop's own
        (["kbusFlush_GM107", "memmgrMemWrite", "mmuWalkMap", MAP, UPDATE], Phase.PAGE_FLUSH),
        (["gvaspaceInvalidateTlb_IMPL", MAP, UPDATE], Phase.TLB),
        (["kgmmuInvalidateTlb_GM107", MAP, UPDATE], Phase.TLB),
        # a flush within the invalidate is part of the invalidate
        (["kbusFlush_GM107", "gvaspaceInvalidateTlb_IMPL", MAP, UPDATE], Phase.TLB),
    ],
)
def test_phases_under_the_update_function(chain: list[str], phase: Phase) -> None:
    whole = [*chain, *COMMIT] if chain else chain
    assert attribute(whole).phase is phase


@pytest.mark.parametrize(
    "chain",
    [
        ["kbusFlush_GM107", "memmgrMemWrite", "vidmemDestruct_IMPL"],
        ["gvaspaceInvalidateTlb_IMPL", "gvaspaceUnmap_IMPL", "nvidia_ioctl"],
        ["kbusFlush_GM107", MAP, *ENTRY],
        ["do_user_addr_fault", "asm_exc_page_fault"],
    ],
)
def test_other_callers_are_never_charged(chain: list[str]) -> None:
    assert attribute(chain) == Attribution(Phase.OUTSIDE)


@pytest.mark.parametrize("chain", [["kbusFlush_GM107"], ["kbusFlush_GM107", MAP], ["unknown"]])
def test_cut_chains_are_unattributed(chain: list[str]) -> None:
    assert attribute(chain) == Attribution(Phase.UNATTRIBUTED)


def test_direction_comes_from_the_nearest_caller_that_tells() -> None:
    assert attribute([MAP, UPDATE, *COMMIT]).direction is Direction.COMMIT
    assert attribute([MAP, UPDATE, *RELEASE]).direction is Direction.RELEASE
    # an allocation that fails is taken down by its own constructor
    taken_down = ["kbusDecreaseStaticBar1Refcount_TU102", "vidmemConstruct_IMPL", *ENTRY]
    assert attribute([MAP, UPDATE, *taken_down]).direction is Direction.RELEASE
    assert attribute([MAP, UPDATE, *ENTRY]).direction is None
