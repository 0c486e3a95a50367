# SPDX-License-Identifier: MIT
"""Proofs on a live, unmodified driver that BAR1 shows what CUDA wrote. Reads only, never prints."""
