# SPDX-License-Identifier: MIT
"""How src/vmmprof/verify/fill.ptx is made from fill.cu: `python tests/verify/fill_ptx.py`.

nvcc writes a header for the newest drivers; the code needs nothing newer than
PTX 6.4 on sm_70, which every driver that has VMM takes, so the header says that.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

VERIFY = Path(__file__).parents[2] / "src" / "vmmprof" / "verify"
SOURCE = VERIFY / "fill.cu"
PTX = VERIFY / "fill.ptx"

_HEADER = """// SPDX-License-Identifier: MIT
// Generated from fill.cu by tests/verify/fill_ptx.py.
.version 6.4
.target sm_70
"""


def generate(nvcc: str) -> str:
    """The PTX text that belongs to fill.cu."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "fill.ptx"
        subprocess.run(
            [nvcc, "-ptx", "-arch=compute_75", "-o", str(output), str(SOURCE)], check=True
        )
        text = output.read_text()
    _, _, body = text.partition(".address_size 64")
    # Comments carry the compiler's build, which says nothing about the code.
    body = re.sub(r"^\s*//.*\n", "", body, flags=re.MULTILINE)
    return f"{_HEADER}.address_size 64{body}"


if __name__ == "__main__":
    PTX.write_text(generate("nvcc"))
