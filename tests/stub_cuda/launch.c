/* SPDX-License-Identifier: MIT
 *
 * Streams, modules and kernel launches. A kernel does nothing and is over at once.
 */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BLOCK_THREADS 1024

struct stream {
    struct object object;
};

struct module {
    struct object object;
};

struct kernel {
    struct object object;
    struct module *module;
};

CUresult check_stream(const struct call *call, CUstream stream)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        object_is(stream, OBJECT_STREAM))
        return CUDA_SUCCESS;
    return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such stream");
}

static CUresult create_stream(const struct call *call, CUstream *stream, unsigned int flags)
{
    int device;
    CUresult result = current_context(call, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output is NULL or flags are 0x%x", flags);
    *stream = object_new(OBJECT_STREAM, sizeof(struct stream), device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    SERVE(cuStreamCreate, create_stream(call, phStream, Flags));
}

static CUresult destroy_stream(const struct call *call, CUstream stream)
{
    if (!object_is(stream, OBJECT_STREAM))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such stream");
    object_end((struct object *)stream);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream)
{
    SERVE(cuStreamDestroy, destroy_stream(call, hStream));
}

/* All work is over when it is submitted; what waits for a synchronize is pools' memory. */
static CUresult synchronize_stream(const struct call *call, CUstream stream)
{
    CUresult result = check_stream(call, stream);
    if (result == CUDA_SUCCESS)
        pools_synchronized();
    return result;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
    SERVE(cuStreamSynchronize, synchronize_stream(call, hStream));
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream)
{
    SERVE(cuStreamQuery, check_stream(call, hStream));
}

static CUresult load_module(const struct call *call, CUmodule *module, const void *image)
{
    int device;
    CUresult result = current_context(call, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (module == NULL || image == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output or image is NULL");
    *module = object_new(OBJECT_MODULE, sizeof(struct module), device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    SERVE(cuModuleLoadData, load_module(call, module, image));
}

static CUresult unload_module(const struct call *call, CUmodule module)
{
    if (!object_is(module, OBJECT_MODULE))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such module");
    object_end((struct object *)module);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
    SERVE(cuModuleUnload, unload_module(call, hmod));
}

/* The image is not read: every name is there. */
static CUresult get_function(const struct call *call, CUfunction *function, CUmodule module,
                             const char *name)
{
    if (!object_is(module, OBJECT_MODULE))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such module");
    if (function == NULL || name == NULL || name[0] == '\0')
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output or name is missing");
    struct kernel *kernel =
        object_new(OBJECT_FUNCTION, sizeof *kernel, ((struct object *)module)->device);
    kernel->module = (struct module *)module;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    SERVE(cuModuleGetFunction, get_function(call, hfunc, hmod, name));
}

struct shape {
    unsigned int x, y, z;
};

static bool is_shape(struct shape shape, unsigned long long most)
{
    unsigned long long volume = (unsigned long long)shape.x * shape.y * shape.z;
    return volume > 0 && volume <= most;
}

static CUresult launch(const struct call *call, CUfunction function, struct shape grid,
                       struct shape block, CUstream stream, void **parameters, void **extra)
{
    if (!object_is(function, OBJECT_FUNCTION) ||
        !object_is(((struct kernel *)function)->module, OBJECT_MODULE))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such function");
    if (!is_shape(grid, ~0ULL) || !is_shape(block, MAX_BLOCK_THREADS))
        return violation(call, CUDA_ERROR_INVALID_VALUE, "grid or block is empty or too large");
    if (parameters != NULL && extra != NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "kernelParams and extra are both given");
    return check_stream(call, stream);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX,
                                unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void **kernelParams,
                                void **extra)
{
    (void)sharedMemBytes;
    struct shape grid = {gridDimX, gridDimY, gridDimZ};
    struct shape block = {blockDimX, blockDimY, blockDimZ};
    SERVE(cuLaunchKernel, launch(call, f, grid, block, hStream, kernelParams, extra));
}

/* Host memory: an object of the ledger with the bytes behind it. */

struct host_memory {
    struct object object;
    void *bytes;
};

static CUresult allocate_host(const struct call *call, void **out, size_t size, unsigned int flags)
{
    int device;
    CUresult result = current_context(call, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || size == 0 || flags > 7)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "%zu bytes with flags 0x%x", size, flags);
    struct host_memory *memory = object_new(OBJECT_HOST_MEMORY, sizeof *memory, device);
    memory->bytes = calloc(1, size);
    if (memory->bytes == NULL)
        abort();
    *out = memory->bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    SERVE(cuMemHostAlloc, allocate_host(call, pp, bytesize, Flags));
}

/* The bytes stay: a stale pointer reads what was there, as with a driver's cache. */
static CUresult free_host(const struct call *call, const void *bytes)
{
    for (struct object *object = object_next(NULL, OBJECT_HOST_MEMORY); object != NULL;
         object = object_next(object, OBJECT_HOST_MEMORY)) {
        if (((struct host_memory *)object)->bytes == bytes) {
            object_end(object);
            return CUDA_SUCCESS;
        }
    }
    return violation(call, CUDA_ERROR_INVALID_VALUE, "no such host memory");
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    SERVE(cuMemFreeHost, free_host(call, p));
}
