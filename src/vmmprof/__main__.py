# SPDX-License-Identifier: MIT
"""``python -m vmmprof`` and the installed program: import the command line, then run it."""

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the program; Ctrl-C while it is still being imported ends it as cleanly as later."""
    try:
        from vmmprof.cli import main
    except KeyboardInterrupt:
        print("vmmprof: interrupted by SIGINT", file=sys.stderr)
        sys.exit(130)
    main.run()


if __name__ == "__main__":
    run()
