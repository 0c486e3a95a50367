# SPDX-License-Identifier: MIT
"""Errors of the resource manager: which step failed, with what, and what usually causes it."""

from __future__ import annotations

import os
from enum import Enum

from vmmprof.errors import VmmprofError
from vmmprof.kernel.rm.status import RmStatus, status_name


class Step(Enum):
    """What was being done; the value is how a message names it."""

    FIND_GPU = "find the GPU"
    OPEN = "open a device file"
    VERSION = "ask for the driver version"
    ALLOC_CLIENT = "allocate a client"
    LIST_GPUS = "list the attached GPUs"
    GPU_IDENTITY = "ask for a GPU's identity"
    ALLOC_DEVICE = "allocate the device"
    ALLOC_SUBDEVICE = "allocate the subdevice"
    FREE = "free"
    STATIC_BAR1 = "ask for the static BAR1 state"
    FB_INFO = "ask for the framebuffer information"
    GPU_INFO = "ask for the GPU information"
    GPU_NAME = "ask for the GPU's name"
    BAR_INFO = "ask for the PCI BARs"
    ALLOC_MEMORY = "allocate video memory"
    EXPORT = "export memory to a file"
    EXPORT_INFO = "ask what an exported file holds"
    IMPORT = "import memory from a file"
    DUPLICATE = "duplicate memory"
    SURFACE_INFO = "ask for the size of memory"
    PHYSICAL = "ask for physical pages"
    MAP = "map memory through BAR1"
    UNMAP = "unmap memory from BAR1"
    MMAP = "mmap the BAR1 mapping"


class RmError(VmmprofError):
    """A resource-manager call failed. ``status`` is NV_STATUS, ``errno`` the system's."""

    def __init__(
        self, step: Step, detail: str, *, status: int | None = None, errno: int | None = None
    ) -> None:
        self.step = step
        self.status = status
        self.errno = errno
        super().__init__(_message(step, detail, status, errno))


_STATUS_CAUSES = {
    (Step.ALLOC_DEVICE, RmStatus.NV_ERR_INVALID_DEVICE): "the GPU's device file is not held open",
    (Step.ALLOC_MEMORY, RmStatus.NV_ERR_NO_MEMORY): (
        "not enough free memory, or none that is contiguous enough"
    ),
    (Step.ALLOC_MEMORY, RmStatus.NV_ERR_NOT_SUPPORTED): (
        "this kind of memory (compressible, localized) cannot be had on this GPU"
    ),
    (Step.EXPORT_INFO, RmStatus.NV_ERR_INVALID_PARAMETER): (
        "the file is no /dev/nvidiactl file, or nothing was exported into it"
    ),
    (Step.IMPORT, RmStatus.NV_ERR_INVALID_PARAMETER): "the file holds no single memory object",
    (Step.IMPORT, RmStatus.NV_ERR_INVALID_OBJECT_PARENT): "the memory belongs to another GPU",
    (Step.MAP, RmStatus.NV_ERR_INVALID_ARGUMENT): "the file is not /dev/nvidiaN of this GPU",
    (Step.MAP, RmStatus.NV_ERR_STATE_IN_USE): (
        "the device file already carries a mapping; open one file for each mapping"
    ),
    (Step.MAP, RmStatus.NV_ERR_INVALID_LIMIT): "the range reaches past the end of the memory",
    (Step.MAP, RmStatus.NV_ERR_NOT_SUPPORTED): (
        "confidential computing, or memory that the CPU reaches by a coherent link"
    ),
    (Step.MAP, RmStatus.NV_ERR_NO_MEMORY): "BAR1 has no room left for another mapping",
    (Step.MAP, RmStatus.NV_ERR_INSUFFICIENT_RESOURCES): "BAR1 has no room left for another mapping",
}

_ANY_STEP_CAUSES = {
    RmStatus.NV_ERR_INSUFFICIENT_PERMISSIONS: "this needs root",
    RmStatus.NV_ERR_INVALID_PARAM_STRUCT: "this driver lays the argument out in another way",
    RmStatus.NV_ERR_GPU_IS_LOST: "the GPU fell off the bus (see dmesg)",
    RmStatus.NV_ERR_RESET_REQUIRED: "the GPU needs a reset (see dmesg)",
}

_ERRNO_CAUSES = {
    (Step.OPEN, "ENOENT"): "no NVIDIA driver is loaded, or its device files were not made",
    (Step.OPEN, "EACCES"): "this user may not read and write the device file",
    (Step.OPEN, "EPERM"): "the container or its device cgroup does not allow this device",
    (Step.OPEN, "ENXIO"): "no NVIDIA driver is loaded, or the GPU is gone",
    (Step.OPEN, "EIO"): "the GPU could not be initialised (see dmesg)",
    (Step.MMAP, "EINVAL"): "the file carries no mapping",
    (Step.MMAP, "ENXIO"): "the length is not that of the mapping",
    (Step.MMAP, "EPERM"): "a security policy forbids it",
}


def _message(step: Step, detail: str, status: int | None, errno: int | None) -> str:
    text = f"resource manager: could not {step.value}"
    if detail:
        text += f" ({detail})"
    cause = None
    if status is not None:
        text += f": {status_name(status)} (0x{status:02X})"
        cause = _cause_of_status(step, status)
    elif errno is not None:
        text += f": {os.strerror(errno)}"
        cause = _ERRNO_CAUSES.get((step, _errno_name(errno)))
    return f"{text}; usually {cause}" if cause else text


def _cause_of_status(step: Step, status: int) -> str | None:
    try:
        known = RmStatus(status)
    except ValueError:
        return None
    return _STATUS_CAUSES.get((step, known)) or _ANY_STEP_CAUSES.get(known)


def _errno_name(errno: int) -> str:
    import errno as names

    return names.errorcode.get(errno, str(errno))
