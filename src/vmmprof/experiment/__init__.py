# SPDX-License-Identifier: MIT
"""How conditions are measured: what is visited when, when to stop, what is kept apart."""
