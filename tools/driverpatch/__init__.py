# SPDX-License-Identifier: MIT
"""Recognise, patch, build, install and revert NVIDIA's open kernel modules.

Standard library only: the program has to run on the bare system Python of the
machine whose driver it changes.
"""
