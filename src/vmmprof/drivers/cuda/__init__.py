# SPDX-License-Identifier: MIT
"""The CUDA driver: cycles on a real GPU (or on a stub libcuda in tests)."""
