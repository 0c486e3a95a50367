# SPDX-License-Identifier: MIT
"""The modelled GPUs: what each one has, and which columns its sources support."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vmmprof.drivers.model.costs import ColumnCost, Work
from vmmprof.drivers.model.parameters import ParameterSet, load
from vmmprof.drivers.model.pma import MemoryDescriptor
from vmmprof.drivers.model.update_loop import NO_UPDATE, Patch, count_update, enters_loop
from vmmprof.placement import Placement
from vmmprof.sizes import GIB, MIB, format_size, mib

TOTAL = "total"


@dataclass(frozen=True)
class ModelledGpu:
    """One GPU of the models.

    columns: the recording's columns that a source supports, by short call name
    or ``total``; all others are not modelled. compressible, noncontiguous: whether
    a source says what such memory (a scattered card included) costs.
    not_modelled: what the user should know to be missing, a sentence each.
    """

    name: str
    domain_count: int
    total_memory_bytes: int
    total_memory_source: str
    headline: str
    columns: Mapping[str, ColumnCost]
    parameters: ParameterSet
    compressible: bool
    noncontiguous: bool
    not_modelled: tuple[str, ...]

    def localizes(self, placement: Placement) -> bool:
        """Whether the memory is localized; a one-domain GPU gives its whole memory instead."""
        return placement.domain is not None and self.domain_count > 1

    def work(self, memory: MemoryDescriptor, placement: Placement, patch: Patch) -> Work:
        """What one pass over this memory makes the driver do."""
        enters = enters_loop(
            localized=self.localizes(placement), compressible=placement.compressible
        )
        return Work(
            size_mib=mib(len(memory.pages) * 2 * MIB),
            page_count=len(memory.pages),
            contiguous=memory.contiguous,
            compressible=placement.compressible,
            update=count_update(memory, patch) if enters else NO_UPDATE,
        )

    def times_us(self, work: Work) -> dict[str, float]:
        """us by column; a column is missing where no source gives it."""
        times = {name: cost.us(work) for name, cost in self.columns.items()}
        return {name: us for name, us in times.items() if us is not None}


def _blackwell_column(
    loop: ParameterSet, parameters: ParameterSet, column: str, passes: int
) -> ColumnCost:
    return ColumnCost(
        base=parameters.curve(f"{column}_base_us"),
        passes=passes,
        update_us=loop.value("update_us"),
        call_us=loop.value("call_us"),
        sync_us=loop.value("sync_us"),
        page_array_us=loop.value("page_array_us"),
    )


_BLACKWELL_GAPS = (
    "compressible, rdma and scattered memory: no source gives their times on this GPU",
    "sizes above 1 GiB: the paper's tables end there",
)


def b300() -> ModelledGpu:
    """Paper table 6: the cycle's total; create and release at 1 GiB, from the paper's text."""
    parameters = load("b300")
    columns = (("create", 1), ("release", 1), (TOTAL, 2))
    return ModelledGpu(
        name="b300",
        domain_count=2,
        # 288 GB of HBM3e a GPU: NVIDIA's HGX B300 specification.
        total_memory_bytes=288 * 10**9,
        total_memory_source="HGX B300 specification, 288 GB a GPU",
        headline=TOTAL,
        columns={
            column: _blackwell_column(parameters, parameters, column, passes)
            for column, passes in columns
        },
        parameters=parameters,
        compressible=False,
        noncontiguous=False,
        not_modelled=(
            "reserve, map, set_access, unmap, free: no source splits the cycle by call",
            "create and release at sizes other than 1 GiB: the paper gives their share there only",
            "patched totals were never measured on this GPU: they are the update loop of the "
            "B200's table 7 on this GPU's base",
            *_BLACKWELL_GAPS,
        ),
    )


def b200() -> ModelledGpu:
    """Paper table 7: cuMemCreate alone, stock and under each patch."""
    parameters = load("b200")
    return ModelledGpu(
        name="b200",
        domain_count=2,
        # 1.44 TB for eight GPUs: NVIDIA's HGX B200 specification.
        total_memory_bytes=180 * 10**9,
        total_memory_source="HGX B200 specification, 1.44 TB for eight GPUs",
        headline="create",
        columns={"create": _blackwell_column(parameters, parameters, "create", 1)},
        parameters=parameters,
        compressible=False,
        noncontiguous=False,
        not_modelled=(
            "the total and the calls other than create: the paper times cuMemCreate alone here",
            "between 256 and 512 MiB plain memory goes from 10 to 119 us for no known reason: "
            "the straight line between them is a guess",
            *_BLACKWELL_GAPS,
        ),
    )


def _h200_column(parameters: ParameterSet, call: str) -> ColumnCost:
    iteration_us = parameters.value(f"{call}_iteration_us")
    sync_share = parameters.value("sync_share")
    return ColumnCost(
        base=parameters.curve(f"{call}_base_us"),
        passes=1,
        call_us=iteration_us * (1 - sync_share),
        sync_us=iteration_us * sync_share,
        page_write_us=parameters.value(f"{call}_page_write_us"),
        page_array_us=parameters.value(f"{call}_page_array_us"),
        compressible_us=parameters.value(f"{call}_compressible_us"),
    )


def h200() -> ModelledGpu:
    """Direct resource-manager allocations on one H200: alloc as create, free as release."""
    parameters = load("h200")
    return ModelledGpu(
        name="h200",
        domain_count=1,
        total_memory_bytes=143771 * MIB,
        total_memory_source="measured on one H200, driver 580.159.04",
        headline="create",
        columns={
            "create": _h200_column(parameters, "alloc"),
            "release": _h200_column(parameters, "free"),
        },
        parameters=parameters,
        compressible=True,
        noncontiguous=True,
        not_modelled=(
            "what CUDA adds around the resource manager, so also the total and the other five "
            "calls: create and release here are direct resource-manager allocations",
            "the search for pages on a scattered card, which dominates there (plain cuMemCreate of "
            "1 GiB took 10 ms on one H200, driver 580.159.04): only the extra over plain is "
            "predicted",
            "rdma: no source gives its times on this GPU",
            f"sizes above {format_size(GIB)}: the measured rows end there",
        ),
    )


GPUS: Mapping[str, Callable[[], ModelledGpu]] = {"b300": b300, "b200": b200, "h200": h200}
