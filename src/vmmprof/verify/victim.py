# SPDX-License-Identifier: MIT
"""A process to be killed: `python -m vmmprof.verify.victim DEVICE SIZE_BYTES STEP`.

Goes through the life of shared memory up to STEP, says so on its standard
output, and then waits for its end, or for its parent's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from vmmprof.errors import ExitCode, VmmprofError
from vmmprof.kernel.rm import Bar1Mapping, RmClient, find_gpu, import_memory
from vmmprof.placement import Placement

STEPS = ("created", "mapped", "exported", "imported", "seen", "duplicated")
READY = "at"


def life(device: int, size_bytes: int) -> Iterator[str]:
    """The steps, each yielded when it is done; what they made lives until the end."""
    from vmmprof.verify.cuda import CudaGpu

    with CudaGpu(device) as gpu, RmClient(find_gpu(pci_address=gpu.pci_address)) as client:
        allocation = gpu.create(Placement(compressible=gpu.compression_supported), size_bytes)
        yield "created"
        allocation.map()
        yield "mapped"
        fd = allocation.export()
        yield "exported"
        memory = import_memory(client, fd)
        yield "imported"
        view = Bar1Mapping(memory)
        view.word(0)
        yield "seen"
        memory.duplicate()
        yield "duplicated"


def main(arguments: list[str]) -> ExitCode:
    device, size_bytes, last = int(arguments[0]), int(arguments[1]), arguments[2]
    try:
        for step in life(device, size_bytes):
            if step == last:
                print(READY, step, flush=True)
                # The parent never writes: this returns when it is gone.
                sys.stdin.read()
                break
    except VmmprofError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
