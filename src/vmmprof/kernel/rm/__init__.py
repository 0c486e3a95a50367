# SPDX-License-Identifier: MIT
"""A small typed client for the NVIDIA resource manager, by ioctl; no CUDA, no root.

Layers, each knowing those before it: structs and status (layouts and names),
transport (the system calls), client (objects and controls), queries, memory and
mapping, facts (for `doctor`).
"""

from vmmprof.kernel.rm.client import RmClient, find_gpu
from vmmprof.kernel.rm.errors import RmError, Step
from vmmprof.kernel.rm.facts import Answer, RmFacts, gather
from vmmprof.kernel.rm.holding import held
from vmmprof.kernel.rm.mapping import (
    Bar1Mapping,
    framebuffer_address,
    layout_from_bus_addresses,
    lies_in_static_bar1,
)
from vmmprof.kernel.rm.memory import (
    GENERIC_KIND,
    PAGE_BYTES,
    Memory,
    Physicality,
    PhysicalLayout,
    allocate,
    allocation_params,
    granted_compression,
    import_memory,
)
from vmmprof.kernel.rm.queries import (
    Bar1Region,
    Framebuffer,
    StaticBar1,
    bar1_region,
    framebuffer,
    gpu_name,
    localization_supported,
    static_bar1,
)
from vmmprof.kernel.rm.status import RmStatus, status_name
from vmmprof.kernel.rm.transport import GpuNode, KernelTransport, Transport

__all__ = [
    "GENERIC_KIND",
    "PAGE_BYTES",
    "Answer",
    "Bar1Mapping",
    "Bar1Region",
    "Framebuffer",
    "GpuNode",
    "KernelTransport",
    "Memory",
    "PhysicalLayout",
    "Physicality",
    "RmClient",
    "RmError",
    "RmFacts",
    "RmStatus",
    "StaticBar1",
    "Step",
    "Transport",
    "allocate",
    "allocation_params",
    "bar1_region",
    "find_gpu",
    "framebuffer",
    "framebuffer_address",
    "gather",
    "gpu_name",
    "granted_compression",
    "held",
    "import_memory",
    "layout_from_bus_addresses",
    "lies_in_static_bar1",
    "localization_supported",
    "static_bar1",
    "status_name",
]
