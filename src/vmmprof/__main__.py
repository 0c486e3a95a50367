# SPDX-License-Identifier: MIT
"""``python -m vmmprof``."""

from vmmprof.cli.main import run

if __name__ == "__main__":
    run()
