# SPDX-License-Identifier: MIT
"""What the resource manager says about a GPU: static BAR1, framebuffer, localization."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmmprof.kernel.rm.client import RmClient
from vmmprof.kernel.rm.errors import RmError, Step
from vmmprof.kernel.rm.status import RmStatus
from vmmprof.kernel.rm.structs import (
    FbInfo57,
    FbInfo128,
    GetPciBarInfoParams,
    GpuInfo65,
    GpuInfo66,
    GpuInfo70,
    GpuNameAscii,
    GpuNameUnion,
    StaticBar1Info,
    StaticBar1InfoNoOffset,
)
from vmmprof.sizes import KIB

CMD_STATIC_BAR1 = 0x20801354
CMD_FB_INFO_V2 = 0x20801303
CMD_GPU_INFO_V2 = 0x20800102
CMD_GPU_NAME = 0x20800110
CMD_PCI_BARS = 0x20801803

FB_BAR1_SIZE_KIB = 0x05
FB_HEAP_FREE_KIB = 0x16
FB_BAR1_AVAILABLE_KIB = 0x1D
FB_USABLE_KIB = 0x20
GPU_LOCALIZATION_SUPPORTED = 0x41

# A driver that does not know the field leaves what it was given.
_NOT_WRITTEN = 0xFF

_STATIC_BAR1_LAYOUTS = (StaticBar1Info, StaticBar1InfoNoOffset)
_FB_LAYOUTS = (FbInfo128, FbInfo57)
_GPU_LAYOUTS = (GpuInfo70, GpuInfo66, GpuInfo65)
_NAME_LAYOUTS = (GpuNameAscii, GpuNameUnion)

T = TypeVar("T")


@dataclass(frozen=True)
class StaticBar1:
    """The part of BAR1 that shows all of the framebuffer at fixed addresses.

    ``write_combined`` is None on a driver that does not report it.
    """

    enabled: bool
    write_combined: bool | None
    start_offset: int
    size_bytes: int


@dataclass(frozen=True)
class Framebuffer:
    """Sizes in bytes."""

    usable_bytes: int
    free_bytes: int
    bar1_bytes: int
    bar1_free_bytes: int


@dataclass(frozen=True)
class Bar1Region:
    """Where the bus sees BAR1."""

    base: int
    size_bytes: int


def static_bar1(client: RmClient) -> StaticBar1:
    """Whether static BAR1 is on and where it lies. Needs no root."""

    def ask(layout: type[ctypes.Structure]) -> StaticBar1:
        params = layout()
        if isinstance(params, StaticBar1Info):
            params.bStaticBar1WriteCombined = _NOT_WRITTEN
        client.control(client.subdevice, CMD_STATIC_BAR1, params, Step.STATIC_BAR1)
        if isinstance(params, StaticBar1Info):
            combined = params.bStaticBar1WriteCombined
            return StaticBar1(
                bool(params.bStaticBar1Enabled),
                None if combined == _NOT_WRITTEN else bool(combined),
                params.staticBar1StartOffset,
                params.staticBar1Size,
            )
        assert isinstance(params, StaticBar1InfoNoOffset)
        return StaticBar1(bool(params.bStaticBar1Enabled), None, 0, params.staticBar1Size)

    return _first_accepted(_STATIC_BAR1_LAYOUTS, ask)


def framebuffer(client: RmClient) -> Framebuffer:
    """Usable and free framebuffer and BAR1."""
    usable, free, bar1, bar1_free = fb_info(
        client, (FB_USABLE_KIB, FB_HEAP_FREE_KIB, FB_BAR1_SIZE_KIB, FB_BAR1_AVAILABLE_KIB)
    )
    return Framebuffer(usable * KIB, free * KIB, bar1 * KIB, bar1_free * KIB)


def fb_info(client: RmClient, indices: Sequence[int]) -> list[int]:
    """Data of NV2080_CTRL_FB_INFO indices, in their own units."""

    def ask(layout: type[ctypes.Structure]) -> list[int]:
        params = layout(fbInfoListSize=len(indices))
        entries = params.fbInfoList
        for entry, index in zip(entries, indices, strict=False):
            entry.index = index
        client.control(client.subdevice, CMD_FB_INFO_V2, params, Step.FB_INFO)
        return [entries[i].data for i in range(len(indices))]

    return _first_accepted(_FB_LAYOUTS, ask)


def localization_supported(client: RmClient) -> bool | None:
    """Whether the GPU has locality domains; None when this driver does not know the question."""

    def ask(layout: type[ctypes.Structure]) -> bool:
        params = layout(gpuInfoListSize=1)
        params.gpuInfoList[0].index = GPU_LOCALIZATION_SUPPORTED
        client.control(client.subdevice, CMD_GPU_INFO_V2, params, Step.GPU_INFO)
        return bool(params.gpuInfoList[0].data)

    try:
        return _first_accepted(_GPU_LAYOUTS, ask)
    except RmError as error:
        if error.status in (RmStatus.NV_ERR_INVALID_ARGUMENT, RmStatus.NV_ERR_INVALID_INDEX):
            return None
        raise


def gpu_name(client: RmClient) -> str:
    """Product name, such as ``NVIDIA H200``."""

    def ask(layout: type[ctypes.Structure]) -> str:
        params = layout()
        client.control(client.subdevice, CMD_GPU_NAME, params, Step.GPU_NAME)
        return bytes(params.ascii).decode(errors="replace")

    return _first_accepted(_NAME_LAYOUTS, ask)


def bar1_region(client: RmClient) -> Bar1Region:
    """Bus address and size of BAR1."""
    params = GetPciBarInfoParams()
    client.control(client.subdevice, CMD_PCI_BARS, params, Step.BAR_INFO)
    if params.pciBarCount < 2:
        raise RmError(Step.BAR_INFO, f"the driver lists {params.pciBarCount} BAR(s), no BAR1")
    return Bar1Region(params.pciBarInfo[1].barOffset, params.pciBarInfo[1].barSizeBytes)


# What a driver says to parameters of another size than its own: its RM API front end checks the
# size first and gives the second, the object behind it the first.
_WRONG_SIZE = (RmStatus.NV_ERR_INVALID_PARAM_STRUCT, RmStatus.NV_ERR_INVALID_ARGUMENT)


def _first_accepted(
    layouts: Sequence[type[ctypes.Structure]], ask: Callable[[type[ctypes.Structure]], T]
) -> T:
    """The answer by the first layout that this driver takes: ask it, not its version."""
    for layout in layouts[:-1]:
        try:
            return ask(layout)
        except RmError as error:
            if error.status not in _WRONG_SIZE:
                raise
    return ask(layouts[-1])
