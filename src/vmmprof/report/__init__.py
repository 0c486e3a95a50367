# SPDX-License-Identifier: MIT
"""Shows recordings: terminal, JSON, figures. Reads, never measures."""
