# SPDX-License-Identifier: MIT
"""Direct resource-manager allocations by ioctl, with no CUDA: ``--driver rm``."""

from vmmprof.drivers.rm.driver import RmDriver

__all__ = ["RmDriver"]
