# SPDX-License-Identifier: MIT
"""What runs under the call: symbols, probes, sampling, attribution."""
