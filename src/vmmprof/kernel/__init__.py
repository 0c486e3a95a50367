# SPDX-License-Identifier: MIT
"""What runs under the call: the resource manager, symbols, probes, sampling, attribution."""
