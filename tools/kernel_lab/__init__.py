# SPDX-License-Identifier: MIT
"""Boots a distribution kernel under emulation, with this machine's root, to run one command."""
