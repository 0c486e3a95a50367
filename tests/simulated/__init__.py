# SPDX-License-Identifier: MIT
"""A simulated GPU behind the product's own seams: the RM's ioctls, BAR1, CUDA."""
