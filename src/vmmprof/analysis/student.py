# SPDX-License-Identifier: MIT
"""Student's t for the few recordings that make an arm."""

from __future__ import annotations

from statistics import NormalDist

# 97.5 % quantiles for 1 to 10 degrees of freedom (any table of the distribution).
_TABLE = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def two_sided_95(degrees_of_freedom: int) -> float:
    """Half-width of a 95 % interval in standard errors; at least one degree of freedom.

    From eleven on by the Cornish-Fisher expansion, which is then right to three digits.
    """
    if degrees_of_freedom <= len(_TABLE):
        return _TABLE[degrees_of_freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    df = float(degrees_of_freedom)
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
    )
