# SPDX-License-Identifier: MIT
"""Things that can run a cycle, behind one small protocol (protocol.py)."""
