/* SPDX-License-Identifier: MIT
 *
 * Modules, streams and kernels: objects with a life, and nothing that runs.
 */
#include "stub.h"

#include <string.h>

#define MAX_OBJECTS 256

/* Handles are addresses of slots, so that a stale or foreign one is told apart. */
struct object {
    bool alive;
    int device;
};

static struct object streams[MAX_OBJECTS];
static struct object modules[MAX_OBJECTS];

static struct object *take(struct object *objects, int device)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (!objects[i].alive) {
            objects[i] = (struct object){true, device};
            return &objects[i];
        }
    }
    return NULL;
}

static bool is_alive(const struct object *objects, const void *handle)
{
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (handle == &objects[i])
            return objects[i].alive;
    return false;
}

static CUresult create(const struct call *call, struct object *objects, enum tally tally, void **out)
{
    int device;
    CUresult result = current_context(call, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    if ((*out = take(objects, device)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ledger_add(tally, 1);
    return CUDA_SUCCESS;
}

static CUresult destroy(const struct call *call, struct object *objects, enum tally tally,
                        void *handle)
{
    if (!is_alive(objects, handle))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "handle %p is not alive", handle);
    ((struct object *)handle)->alive = false;
    ledger_add(tally, -1);
    return CUDA_SUCCESS;
}

/* The NULL stream is always there. */
CUresult check_stream(const struct call *call, CUstream stream)
{
    if (stream != NULL && !is_alive(streams, stream))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "stream %p is not alive", (void *)stream);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    SERVE(cuStreamCreate, Flags > CU_STREAM_NON_BLOCKING
                              ? violation(call, CUDA_ERROR_INVALID_VALUE, "flags %u", Flags)
                              : create(call, streams, TALLY_STREAMS, (void **)phStream));
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream)
{
    SERVE(cuStreamDestroy, destroy(call, streams, TALLY_STREAMS, hStream));
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
    SERVE(cuStreamSynchronize, check_stream(call, hStream));
}

static CUresult load(const struct call *call, CUmodule *module, const void *image)
{
    if (image == NULL || strstr(image, ".entry") == NULL)
        return violation(call, CUDA_ERROR_INVALID_PTX, "the image is no PTX with an entry");
    return create(call, modules, TALLY_MODULES, (void **)module);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    SERVE(cuModuleLoadData, load(call, module, image));
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
    SERVE(cuModuleUnload, destroy(call, modules, TALLY_MODULES, hmod));
}

/* A function goes by its module's handle. */
static CUresult get_function(const struct call *call, CUfunction *function, CUmodule module,
                             const char *name)
{
    if (function == NULL || name == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "a pointer is NULL");
    if (!is_alive(modules, module))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "module %p is not alive", (void *)module);
    *function = (CUfunction)module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    SERVE(cuModuleGetFunction, get_function(call, hfunc, hmod, name));
}

static CUresult launch(const struct call *call, CUfunction function, CUstream stream,
                       unsigned int blocks, unsigned int threads)
{
    if (!is_alive(modules, function))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "function %p is not alive",
                         (void *)function);
    if (blocks == 0 || threads == 0 || threads > 1024)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "%u blocks of %u threads", blocks, threads);
    return check_stream(call, stream);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX,
                                unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams,
                                void **extra)
{
    (void)sharedMemBytes, (void)kernelParams, (void)extra;
    SERVE(cuLaunchKernel, launch(call, f, hStream, gridDimX * gridDimY * gridDimZ,
                                 blockDimX * blockDimY * blockDimZ));
}
