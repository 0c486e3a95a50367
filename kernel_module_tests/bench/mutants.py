# SPDX-License-Identifier: MIT
"""Wrong versions of the patched functions, each a small edit of their text.

Every mutant exists for this project's own update path and for the driver's
functions with A+B+C applied; the bench must call each of them wrong, or say
that it no longer shows the arm it was made from.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.errors import BenchError

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mutant:
    """One mistake. own and driver: pairs of text to find, exactly once, and its replacement."""

    name: str
    mistake: str
    own: Edits
    driver: Edits
    needs_localized: bool = False
    """Only bodies that map localized memory can make this mistake."""


def mutated(text: str, edits: Edits) -> str:
    """The text with the edits made. Raises BenchError when one does not fit exactly once."""
    for old, new in edits:
        if text.count(old) != 1:
            raise BenchError(f"mutant text found {text.count(old)} times, expected once: {old!r}")
        text = text.replace(old, new)
    return text


_OWN_BOUND = "offset + run < memory->size_bytes"
_OWN_ADJACENT = "up_host_phys_addr(memory, offset + run) == phys_addr + run"
_OWN_VA_HI = "mapping.va_lo + run - 1"
_OWN_MAP = "        call_status = up_host_map("
_OWN_FLUSH = "        up_host_flush(bar1, UP_FLUSH_VIDEO_MEMORY | UP_FLUSH_SYSTEM_MEMORY);\n"
_OWN_INVALIDATE = "        up_host_invalidate(bar1, UP_PTE_DOWNGRADE);\n"
_OWN_FIRST = "        if (status == UP_OK)\n            status = call_status;"
_OWN_STOP = "        if (call_status != UP_OK && !release)\n            break;"
_OWN_COUNT = "    if (status == UP_OK) {\n        memory->mapping_kind"

_BOUND = "(offset + runSize < mapSize)"
_ADJACENT = """(memdescGetPhysAddr(pMemDesc, addressTranslation, offset + runSize) ==
                physAddr + runSize)"""
_VA_HI = "vaLo + runSize - 1;"
_MAP = "        status = dmaUpdateVASpace_HAL("
_FLUSH = """    kbusFlush_HAL(pGpu, pKernelBus, BUS_FLUSH_VIDEO_MEMORY |
                                    BUS_FLUSH_SYSTEM_MEMORY);
"""
_INVALIDATE = "    vaspaceInvalidateTlb(pVAS, pGpu, PTE_DOWNGRADE);\n"
_STOP = """            if (!bRelease)
            {
                break;"""
_HELD = """    if (pRootMemDesc->staticBar1MappingRefCount != 0)
    {
        pRootMemDesc->staticBar1MappingRefCount++;"""

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "run end long",
        "a run's mapping ends one page too late",
        ((_OWN_VA_HI, "mapping.va_lo + run + memory->page_bytes - 1"),),
        ((_VA_HI, "vaLo + runSize + pageSize - 1;"),),
    ),
    Mutant(
        "run end short",
        "a run's mapping ends one page too early",
        ((_OWN_VA_HI, "mapping.va_lo + run - memory->page_bytes - 1"),),
        ((_VA_HI, "vaLo + runSize - pageSize - 1;"),),
    ),
    Mutant(
        "one page a call",
        "grows a run but maps its first page only",
        ((_OWN_VA_HI, "mapping.va_lo + memory->page_bytes - 1"),),
        ((_VA_HI, "vaLo + mapGranularity - 1;"),),
    ),
    Mutant(
        "no bound",
        "looks at the next page without checking that there is one",
        ((f"{_OWN_BOUND} &&\n           ", ""),),
        ((f"{_BOUND} &&\n               ", ""),),
    ),
    Mutant(
        "bound off by one",
        "checks the bound with <=",
        ((_OWN_BOUND, _OWN_BOUND.replace("<", "<=")),),
        ((_BOUND, _BOUND.replace("<", "<=")),),
    ),
    Mutant(
        "bound too late",
        "checks the bound after it has read the page",
        ((f"{_OWN_BOUND} &&\n           {_OWN_ADJACENT}", f"{_OWN_ADJACENT} &&\n {_OWN_BOUND}"),),
        ((f"{_BOUND} &&\n               {_ADJACENT}", f"{_ADJACENT} &&\n {_BOUND}"),),
    ),
    Mutant(
        "merge across any gap",
        "takes any higher address for adjacent",
        ((_OWN_ADJACENT, _OWN_ADJACENT.replace("==", ">=")),),
        ((_ADJACENT, _ADJACENT.replace("==", ">=")),),
    ),
    Mutant(
        "merge across one page",
        "takes a page with one page between for adjacent",
        (
            (
                _OWN_ADJACENT,
                "(up_host_phys_addr(memory, offset + run) - phys_addr - run) / 2 "
                "< memory->page_bytes",
            ),
        ),
        (
            (
                _ADJACENT,
                "((memdescGetPhysAddr(pMemDesc, addressTranslation, offset + runSize) - "
                "physAddr - runSize) / 2 < pageSize)",
            ),
        ),
    ),
    Mutant(
        "merge downwards",
        "takes the page before for adjacent",
        ((_OWN_ADJACENT, _OWN_ADJACENT.replace("phys_addr + run", "phys_addr - run")),),
        ((_ADJACENT, _ADJACENT.replace("physAddr + runSize", "physAddr - runSize")),),
    ),
    Mutant(
        "advance by a page",
        "maps each run again from each of its pages",
        (("offset += run)", "offset += memory->page_bytes)"),),
        (("offset += runSize)", "offset += mapGranularity)"),),
    ),
    Mutant(
        "advance too far",
        "skips the page after each run",
        (("offset += run)", "offset += run + memory->page_bytes)"),),
        (("offset += runSize)", "offset += runSize + mapGranularity)"),),
    ),
    Mutant(
        "no start offset",
        "forgets where static BAR1 begins",
        (("mapping.phys_addr + bar1->start_offset", "mapping.phys_addr"),),
        (("physAddr + pKernelBus->bar1[gfid].staticBar1.startOffset;", "physAddr;"),),
    ),
    Mutant(
        "sync before last run",
        "flushes and invalidates before the last mapping call",
        (
            (_OWN_FLUSH + _OWN_INVALIDATE, ""),
            (
                _OWN_MAP,
                "        if (offset + run >= memory->size_bytes) {\n"
                + _OWN_FLUSH
                + _OWN_INVALIDATE
                + "        }\n"
                + _OWN_MAP,
            ),
        ),
        (
            (_FLUSH + _INVALIDATE, ""),
            (
                _MAP,
                "        if (offset + runSize >= mapSize) {\n"
                + _FLUSH
                + _INVALIDATE
                + "        }\n"
                + _MAP,
            ),
        ),
    ),
    Mutant(
        "no flush",
        "invalidates without a flush",
        ((_OWN_FLUSH, ""),),
        ((_FLUSH, ""),),
    ),
    Mutant(
        "half a flush",
        "flushes video memory only",
        ((" | UP_FLUSH_SYSTEM_MEMORY", ""),),
        ((_FLUSH, "    kbusFlush_HAL(pGpu, pKernelBus, BUS_FLUSH_VIDEO_MEMORY);\n"),),
    ),
    Mutant(
        "no invalidate",
        "flushes and leaves the TLB as it is",
        ((_OWN_INVALIDATE, ""),),
        ((_INVALIDATE, ""),),
    ),
    Mutant(
        "upgrade",
        "invalidates as if mappings had only been added",
        ((_OWN_INVALIDATE, _OWN_INVALIDATE.replace("DOWNGRADE", "UPGRADE")),),
        ((_INVALIDATE, _INVALIDATE.replace("DOWNGRADE", "UPGRADE")),),
    ),
    Mutant(
        "invalidate before flush",
        "lets the TLB refill with what the flush is about to change",
        ((_OWN_FLUSH + _OWN_INVALIDATE, _OWN_INVALIDATE + _OWN_FLUSH),),
        ((_FLUSH + _INVALIDATE, _INVALIDATE + _FLUSH),),
    ),
    Mutant(
        "sync every call",
        "flushes and invalidates in the loop as well",
        ((_OWN_MAP, _OWN_FLUSH + _OWN_INVALIDATE + _OWN_MAP),),
        ((_MAP, _FLUSH + _INVALIDATE + _MAP),),
    ),
    Mutant(
        "not deferred",
        "syncs at the end but does not defer in the calls",
        ((".defer_invalidate = UP_DEFER_SYNC", ".defer_invalidate = false"),),
        (("DMA_DEFER_TLB_INVALIDATE,", "DMA_TLB_INVALIDATE,"),),
    ),
    Mutant(
        "last error",
        "a later error replaces the first",
        ((_OWN_FIRST, "        if (call_status != UP_OK)\n            status = call_status;"),),
        (("            if (firstStatus == NV_OK)\n", "            if (NV_TRUE)\n"),),
    ),
    Mutant(
        "last status",
        "a later success hides an error",
        ((_OWN_FIRST, "        status = call_status;"),),
        (("    status = firstStatus;\n", ""),),
    ),
    Mutant(
        "return before sync",
        "returns from the loop when a call fails",
        ((_OWN_STOP, _OWN_STOP.replace("break", "return unaliased(status)")),),
        ((_STOP, _STOP.replace("break", "return firstStatus")),),
    ),
    Mutant(
        "release stops",
        "a release gives up at its first error",
        ((_OWN_STOP, _OWN_STOP.replace(" && !release", "")),),
        ((_STOP, _STOP.replace("!bRelease", "NV_TRUE")),),
    ),
    Mutant(
        "not supported escapes",
        "a failed mapping call looks like memory that needs none",
        (("status == UP_ERR_NOT_SUPPORTED ? UP_ERR_INVALID_STATE : status", "status"),),
        (
            (
                "            status = NV_ERR_INVALID_STATE;",
                "            status = NV_ERR_NOT_SUPPORTED;",
            ),
        ),
    ),
    Mutant(
        "wrong direction",
        "commit writes the default kind, release the memory's own",
        (("release ? bar1->default_kind", "!release ? bar1->default_kind"),),
        (("    if (bRelease)\n", "    if (!bRelease)\n"),),
    ),
    Mutant(
        "release stays localized",
        "a release keeps the localized bit",
        (("release ? false : memory->localized", "memory->localized"),),
        (("    else\n    {\n        // Localize if", "    {\n        // Localize if"),),
        needs_localized=True,
    ),
    Mutant(
        "first reference skips",
        "the first reference does not update, later ones do",
        (
            (
                "!(UP_UPDATE_ONCE && memory->mapping_refcount != 0)",
                "!(UP_UPDATE_ONCE && memory->mapping_refcount == 0)",
            ),
        ),
        ((_HELD, _HELD.replace("!=", "==")),),
    ),
    Mutant(
        "last release skips",
        "the last reference dropped leaves the mapping as it is",
        (("if (--memory->mapping_refcount != 0 ||", "if (memory->mapping_refcount-- != 0 ||"),),
        (
            (
                "if (--pRootMemDesc->staticBar1MappingRefCount != 0 ||",
                "if (pRootMemDesc->staticBar1MappingRefCount-- != 0 ||",
            ),
        ),
    ),
    Mutant(
        "failed reference held",
        "a reference that could not be taken is counted",
        ((_OWN_COUNT, _OWN_COUNT.replace("== UP_OK", "!= UP_ERR_IN_USE")),),
        (
            (
                "    if (status == NV_OK)\n    {\n        pRootMemDesc->",
                "    if (status != NV_ERR_IN_USE)\n    {\n        pRootMemDesc->",
            ),
        ),
    ),
    Mutant(
        "kind not compared",
        "a reference with another kind is counted while some are held",
        (("memory->mapping_refcount != 0 && memory->kind !=", "false && memory->kind !="),),
        (
            (
                "        requestedKind != pRootMemDesc->",
                "        NV_FALSE && requestedKind != pRootMemDesc->",
            ),
        ),
    ),
)
