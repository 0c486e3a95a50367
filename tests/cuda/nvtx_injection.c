// SPDX-License-Identifier: MIT
//
// An NVTX tool that writes the name of every range that is opened, and a dot
// when it is closed, to the file in NVTX_TEST_LOG.
#include <stdio.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

static FILE *log_file;

static int NVTX_API push(const char *name) {
    fprintf(log_file, "%s", name);
    return 0;
}

static int NVTX_API pop(void) {
    fprintf(log_file, ".\n");
    fflush(log_file);
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned int size;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
        return 0;
    log_file = fopen(getenv("NVTX_TEST_LOG"), "w");
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return log_file != NULL;
}
