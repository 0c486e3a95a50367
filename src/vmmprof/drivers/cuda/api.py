# SPDX-License-Identifier: MIT
"""cuda.bindings with errors as exceptions; the only module that calls it outside timed cycles."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda
from cuda.pathfinder import DynamicLibNotFoundError

from vmmprof.errors import NothingMeasuredError

# Nothing can be run in a process any more once one of these was returned.
_STICKY = {
    "CUDA_ERROR_DEINITIALIZED",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "CUDA_ERROR_UNKNOWN",
}


class CudaError(NothingMeasuredError):
    """A CUDA call outside the timed cycle failed; ``status`` is its CUresult."""

    def __init__(self, function: str, status: int) -> None:
        self.status = status
        super().__init__(f"{function} failed: {status_name(status)}")


def status_name(status: int) -> str:
    """``CUDA_ERROR_OUT_OF_MEMORY`` for 2; the number where the bindings do not know it."""
    try:
        return str(cuda.CUresult(status).name)
    except ValueError:
        return f"CUDA error {status}"


def is_sticky(status: int) -> bool:
    """Whether this error ends all work in the process."""
    return status_name(status) in _STICKY


def call(function: str, *arguments: Any) -> Any:
    """The results of a driver function; CudaError when it does not return CUDA_SUCCESS.

    A single result comes alone, several as a tuple, none as None.
    """
    try:
        status, *results = getattr(cuda, function)(*arguments)
    except DynamicLibNotFoundError:
        raise NothingMeasuredError(
            "libcuda.so.1 was not found; CUDA needs the NVIDIA driver's user-space libraries"
        ) from None
    except RuntimeError as error:
        # The bindings raise what dlopen or a missing symbol says, over several lines.
        raise NothingMeasuredError(f"{function}: {' '.join(str(error).split())}") from None
    if int(status) != 0:
        raise CudaError(function, int(status))
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def device_count() -> int:
    """Number of CUDA devices; NothingMeasuredError with the reason where no driver is usable."""
    call("cuInit", 0)
    return int(call("cuDeviceGetCount"))


def attribute(device: Any, name: str) -> int | None:
    """A device attribute by its short name; None when this driver does not know it."""
    key = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    try:
        return int(call("cuDeviceGetAttribute", key, device))
    except CudaError as error:
        if status_name(error.status) == "CUDA_ERROR_INVALID_VALUE":
            return None
        raise
