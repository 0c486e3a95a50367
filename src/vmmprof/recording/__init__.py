# SPDX-License-Identifier: MIT
"""What was measured and where: a folder with samples, events and environment."""
