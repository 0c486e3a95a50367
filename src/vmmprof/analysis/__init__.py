# SPDX-License-Identifier: MIT
"""Pure functions on recordings: quantiles, intervals, pairs, thresholds (docs/method.md).

Nothing here touches a device, prints, or reads anything but its arguments.
"""
