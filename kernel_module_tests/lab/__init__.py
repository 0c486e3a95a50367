# SPDX-License-Identifier: MIT
"""The kernel lab's modules and what builds them."""
