# SPDX-License-Identifier: MIT
"""A tree's update path as a C file that compiles on the bench."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.errors import BenchError
from driverpatch.functions import Function, normalise
from driverpatch.tree import UpdatePath

_DMA_TYPES = {
    "pGpu": "OBJGPU *",
    "pDma": "VirtMemAllocator *",
    "pVAS": "OBJVASPACE *",
    "pMemDesc": "MEMORY_DESCRIPTOR *",
    "tgtPteMem": "NvU8 *",
    "vAddr": "NvU64 ",
    "vAddrLimit": "NvU64 ",
    "flags": "NvU32 ",
    "pPageArray": "DMA_PAGE_ARRAY *",
    "overmapPteMod": "NvU32 ",
    "pComprInfo": "COMPR_INFO *",
    "surfaceOffset": "NvU64 ",
    "valid": "NvU32 ",
    "aperture": "NvU32 ",
    "isVolatile": "NvBool ",
    "peer": "NvU32 ",
    "fabricAddr": "NvU64 ",
    "deferInvalidate": "NvU32 ",
    "bSparse": "NvBool ",
    "pageSize": "NvU64 ",
}
_USED = (
    "pMemDesc",
    "tgtPteMem",
    "vAddr",
    "vAddrLimit",
    "flags",
    "pPageArray",
    "pComprInfo",
    "valid",
    "deferInvalidate",
    "pageSize",
)


@dataclass(frozen=True)
class Features:
    """What a body does at all: what it does not promise is not asked of it."""

    localized: bool = True
    """Commits localized memory as localized and restores it."""
    start_offset: bool = True
    """The driver's static BAR1 has a start offset, which has to be added."""
    unaliases: bool = True
    """Turns a mapping call's NOT_SUPPORTED into INVALID_STATE."""
    references: bool = True
    """Has the reference counting functions."""
    map_flags: bool = True
    """References are compared by their map flags too."""


def features(path: UpdatePath) -> Features:
    bodies = [path.update, *path.helpers]
    text = " ".join(body.normalised for body in bodies)
    counting = path.increase.normalised if path.increase is not None else ""
    return Features(
        # 580.94.02 to 580.95.05 put the localized bit into the address itself,
        # and so into the BAR1 address too: that mapping is outside BAR1.
        localized="ALLOC_AS_LOCALIZED" in text + counting and "memdescGetPtePhysAddr" not in text,
        start_offset=path.has_start_offset,
        unaliases="NV_ERR_NOT_SUPPORTED" in text,
        references=path.increase is not None and path.decrease is not None,
        map_flags="busMapFlags" in counting,
    )


def _parameters(function: Function) -> list[str]:
    head = function.text.split("{", 1)[0]
    listed = normalise(head[head.index("(") + 1 : head.rindex(")")])
    return [parameter.split()[-1] for parameter in listed.split(",")]


def _call_macro(name: str, arguments: tuple[str, ...], function: Function) -> str:
    """#define NAME(arguments) calling the function by its parameters' names."""
    known = {argument: f"({argument})" for argument in arguments}
    passed = [known.get(parameter, "0") for parameter in _parameters(function)]
    return f"#define {name}({', '.join(arguments)}) {function.name}({', '.join(passed)})\n"


def _dma_update(parameters: list[str]) -> str:
    unknown = [name for name in parameters if name not in _DMA_TYPES]
    missing = [name for name in _USED if name not in parameters]
    if unknown or missing:
        raise BenchError(
            f"dmaUpdateVASpace_HAL has parameters the bench does not know: unknown "
            f"{unknown or 'none'}, missing {missing or 'none'}"
        )
    declared = ", ".join(f"{_DMA_TYPES[name]}{name}" for name in parameters)
    voids = " ".join(f"(void){name};" for name in parameters if name not in _USED)
    return (
        f"static inline NV_STATUS dmaUpdateVASpace_HAL({declared})\n"
        f"{{ {voids} return shim_map({', '.join(_USED)}); }}\n"
        f"#define dmaUpdateVASpace(...) dmaUpdateVASpace_HAL(__VA_ARGS__)\n"
    )


def _used_macros(source: str, text: str) -> str:
    """Macros of the file itself that the functions use."""
    defines = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*\n)", source, re.M)
    return "".join(
        f"#define {name}{rest}" for name, rest in defines if re.search(rf"\b{name}\b", text)
    )


def extracted_source(path: UpdatePath, dma_parameters: list[str]) -> str:
    """The C text that sim/subject_rm.c includes as EXTRACTED_SOURCE."""
    functions = [*path.helpers, path.update]
    calls = _call_macro("TREE_UPDATE", ("pGpu", "pKernelBus", "pMemDesc", "bRelease"), path.update)
    if path.increase is not None and path.decrease is not None:
        functions += [path.increase, path.decrease]
        calls += _call_macro(
            "TREE_INCREASE", ("pGpu", "pKernelBus", "pMemDesc", "busMapFlags"), path.increase
        )
        calls += _call_macro(
            "TREE_DECREASE", ("pGpu", "pKernelBus", "pMemDesc", "pMemArea"), path.decrease
        )
    text = "\n".join(function.text for function in functions)
    return f"{_dma_update(dma_parameters)}{_used_macros(path.source, text)}\n{text}\n{calls}"
