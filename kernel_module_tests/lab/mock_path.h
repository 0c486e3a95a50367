/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The functions that probes attach to, with the driver's names and calling
 * convention. Types are as wide as a register: what matters here is where an
 * argument is found.
 */
#ifndef MOCK_PATH_H
#define MOCK_PATH_H

#include "mock_core.h"

/* Keeps a function's name and calling convention, as external functions of the driver do. */
#define DRIVER_FUNCTION __attribute__((__noinline__, __noclone__, __used__))

/* The mapping call lost a parameter over time: a tree's own list replaces this one. */
#ifndef DMA_PARAMETERS
#define DMA_PARAMETERS                                                                         \
    uint64_t pGpu, uint64_t pDma, uint64_t pVAS, uint64_t pMemDesc, uint64_t tgtPteMem,        \
        uint64_t vAddr, uint64_t vAddrLimit, uint64_t flags, uint64_t pPageArray,              \
        uint64_t overmapPteMod, uint64_t pComprInfo, uint64_t surfaceOffset, uint64_t valid,   \
        uint64_t aperture, uint64_t isVolatile, uint64_t peer, uint64_t fabricAddr,            \
        uint64_t deferInvalidate, uint64_t bSparse, uint64_t pageSize
#endif

DRIVER_FUNCTION int kbusFlush_GM107(void *driver_gpu, void *kernel_bus, uint32_t flags);
DRIVER_FUNCTION int gvaspaceInvalidateTlb_IMPL(void *vaspace, void *driver_gpu, uint32_t type);
DRIVER_FUNCTION uint32_t dmaUpdateVASpace_GF100(DMA_PARAMETERS);
DRIVER_FUNCTION void mmuWalkMap(void *driver_gpu, uint64_t va_lo, uint64_t va_hi);

#endif
