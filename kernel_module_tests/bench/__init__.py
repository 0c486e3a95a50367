# SPDX-License-Identifier: MIT
"""The bench: a static BAR1 update function run on a simulated MMU and judged."""
