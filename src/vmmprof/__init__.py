# SPDX-License-Identifier: MIT
"""Time the life of a CUDA VMM allocation and see where the driver spends it."""

__version__ = "0.1.0"
