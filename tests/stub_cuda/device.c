/* SPDX-License-Identifier: MIT
 *
 * Devices, their attributes, primary contexts and the context stack.
 */
#include "stub.h"

#include <stdio.h>
#include <string.h>

#define MAX_STACK 16

struct device {
    unsigned int retained;
};

static struct device devices[MAX_DEVICES];
static bool initialized;

static _Thread_local CUcontext stack[MAX_STACK];
static _Thread_local int stack_depth;

bool devices_ready(void)
{
    return initialized;
}

bool device_exists(int device)
{
    return device >= 0 && device < settings.devices;
}

static CUcontext primary_context(int device)
{
    return (CUcontext)&devices[device];
}

/* The device of a context, primary or green, alive or not; -1: there is no such context. */
static int context_device(CUcontext context)
{
    for (int i = 0; i < settings.devices; i++)
        if (context == primary_context(i))
            return i;
    return green_context_device(context);
}

CUresult check_context(const struct call *call, CUcontext context, int *device)
{
    *device = context_device(context);
    if (*device < 0)
        return violation(call, CUDA_ERROR_INVALID_CONTEXT, "no such context");
    if (devices[*device].retained == 0)
        return violation(call, CUDA_ERROR_CONTEXT_IS_DESTROYED, "context of device %d was released",
                         *device);
    return CUDA_SUCCESS;
}

CUresult current_context(const struct call *call, int *device)
{
    if (stack_depth == 0)
        return violation(call, CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
    return check_context(call, stack[stack_depth - 1], device);
}

void primary_context_add(int device, int references)
{
    devices[device].retained += (unsigned int)references;
    if (devices[device].retained == 0)
        pool_context_released(device);
}

static CUresult check_device(const struct call *call, int device)
{
    if (device_exists(device))
        return CUDA_SUCCESS;
    return violation(call, CUDA_ERROR_INVALID_DEVICE, "device %d of %d", device, settings.devices);
}

static CUresult check_output(const struct call *call, int device, const void *output)
{
    if (output == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    return check_device(call, device);
}

static CUresult init(const struct call *call, unsigned int flags)
{
    if (flags != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "flags %u, must be 0", flags);
    if (settings.devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    initialized = true;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int Flags)
{
    SERVE(cuInit, init(call, Flags));
}

static CUresult driver_version(const struct call *call, int *version)
{
    if (version == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    *version = settings.driver_version;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *driverVersion)
{
    SERVE(cuDriverGetVersion, driver_version(call, driverVersion));
}

/* The name stands for the description, too: the stub has no texts of its own. */
static CUresult error_text(const struct call *call, CUresult error, const char **text)
{
    if (text == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    *text = result_name(error);
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **pStr)
{
    SERVE(cuGetErrorName, error_text(call, error, pStr));
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **pStr)
{
    SERVE(cuGetErrorString, error_text(call, error, pStr));
}

static CUresult device_count(const struct call *call, int *count)
{
    if (count == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    *count = settings.devices;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    SERVE(cuDeviceGetCount, device_count(call, count));
}

static CUresult get_device(const struct call *call, CUdevice *device, int ordinal)
{
    CUresult result = check_output(call, ordinal, device);
    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    SERVE(cuDeviceGet, get_device(call, device, ordinal));
}

static CUresult device_name(const struct call *call, char *name, int length, int device)
{
    CUresult result = check_output(call, device, name);
    if (result != CUDA_SUCCESS)
        return result;
    if (length <= 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "buffer of %d bytes", length);
    snprintf(name, (size_t)length, "Stub GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SERVE(cuDeviceGetName, device_name(call, name, len, dev));
}

static CUresult device_memory(const struct call *call, size_t *bytes, int device)
{
    CUresult result = check_output(call, device, bytes);
    if (result == CUDA_SUCCESS)
        *bytes = settings.memory_bytes;
    return result;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
    SERVE(cuDeviceTotalMem, device_memory(call, bytes, dev));
}

static CUresult device_uuid(const struct call *call, CUuuid *uuid, int device)
{
    CUresult result = check_output(call, device, uuid);
    if (result != CUDA_SUCCESS)
        return result;
    memset(uuid->bytes, 0x5b, sizeof uuid->bytes);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SERVE(cuDeviceGetUuid, device_uuid(call, uuid, dev));
}

static CUresult pci_bus_id(const struct call *call, char *text, int length, int device)
{
    CUresult result = check_output(call, device, text);
    if (result != CUDA_SUCCESS)
        return result;
    if (length < 13)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "buffer of %d bytes, at least 13", length);
    snprintf(text, (size_t)length, "ffff:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    SERVE(cuDeviceGetPCIBusId, pci_bus_id(call, pciBusId, len, dev));
}

static CUresult can_access_peer(const struct call *call, int *answer, int device, int peer)
{
    CUresult result = check_output(call, device, answer);
    if (result == CUDA_SUCCESS)
        result = check_device(call, peer);
    if (result == CUDA_SUCCESS)
        *answer = device != peer;
    return result;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    SERVE(cuDeviceCanAccessPeer, can_access_peer(call, canAccessPeer, dev, peerDev));
}

/* Attributes that nothing here depends on are 0: not supported, or none. */
static int attribute_value(CUdevice_attribute attribute, int device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return MULTIPROCESSORS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        return 0xffff;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
        return settings.compression != COMPRESSION_UNSUPPORTED;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        return settings.rdma;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED:
        return settings.rdma && settings.rdma_localized;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        return -1;
    case CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT:
        return settings.domains;
    case CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT:
        return MULTIPROCESSORS / settings.domains;
    default:
        return 0;
    }
}

/* An older driver answers attributes that it does not know with INVALID_VALUE;
 * asking is how a program finds out, so that is no violation. */
static int known_attributes(void)
{
    return settings.domains == 0 ? CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT
                                 : CU_DEVICE_ATTRIBUTE_MAX;
}

static CUresult device_attribute(const struct call *call, int *value, CUdevice_attribute attribute,
                                 int device)
{
    CUresult result = check_output(call, device, value);
    if (result != CUDA_SUCCESS)
        return result;
    if ((int)attribute <= 0 || (int)attribute >= known_attributes())
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_value(attribute, device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    SERVE(cuDeviceGetAttribute, device_attribute(call, pi, attrib, dev));
}

static CUresult retain(const struct call *call, CUcontext *context, int device)
{
    CUresult result = check_output(call, device, context);
    if (result != CUDA_SUCCESS)
        return result;
    primary_context_add(device, 1);
    ledger_add(TALLY_CONTEXTS, 1);
    *context = primary_context(device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SERVE(cuDevicePrimaryCtxRetain, retain(call, pctx, dev));
}

static CUresult release(const struct call *call, int device)
{
    CUresult result = check_device(call, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (devices[device].retained == 0)
        return violation(call, CUDA_ERROR_INVALID_CONTEXT, "context of device %d is not retained",
                         device);
    primary_context_add(device, -1);
    ledger_add(TALLY_CONTEXTS, -1);
    if (devices[device].retained == 0 && memory_used(device) > 0)
        violation(call, CUDA_SUCCESS, "last release of device %d with memory allocated", device);
    if (ledger_alive(TALLY_CONTEXTS) == 0 && ledger_alive(TALLY_RESERVATIONS) > 0)
        violation(call, CUDA_SUCCESS, "last release with address ranges reserved");
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SERVE(cuDevicePrimaryCtxRelease, release(call, dev));
}

static CUresult context_state(const struct call *call, int device, unsigned int *flags, int *active)
{
    CUresult result = check_output(call, device, flags);
    if (result == CUDA_SUCCESS)
        result = check_output(call, device, active);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = 0;
    *active = devices[device].retained > 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    SERVE(cuDevicePrimaryCtxGetState, context_state(call, dev, flags, active));
}

static CUresult set_current(const struct call *call, CUcontext context)
{
    if (context == NULL) {
        stack_depth -= stack_depth > 0;
        return CUDA_SUCCESS;
    }
    int device;
    CUresult result = check_context(call, context, &device);
    if (result != CUDA_SUCCESS)
        return result;
    stack_depth += stack_depth == 0;
    stack[stack_depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
    SERVE(cuCtxSetCurrent, set_current(call, ctx));
}

static CUresult get_current(const struct call *call, CUcontext *context)
{
    if (context == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    *context = stack_depth > 0 ? stack[stack_depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *pctx)
{
    SERVE(cuCtxGetCurrent, get_current(call, pctx));
}

static CUresult push(const struct call *call, CUcontext context)
{
    int device;
    CUresult result = check_context(call, context, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (stack_depth == MAX_STACK)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "%d contexts pushed", MAX_STACK);
    stack[stack_depth++] = context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx)
{
    SERVE(cuCtxPushCurrent, push(call, ctx));
}

static CUresult pop(const struct call *call, CUcontext *context)
{
    if (stack_depth == 0)
        return violation(call, CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
    stack_depth--;
    if (context != NULL)
        *context = stack[stack_depth];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *pctx)
{
    SERVE(cuCtxPopCurrent, pop(call, pctx));
}

static CUresult context_to_device(const struct call *call, CUdevice *device)
{
    if (device == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    return current_context(call, device);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    SERVE(cuCtxGetDevice, context_to_device(call, device));
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    SERVE(cuCtxSynchronize, (pools_synchronized(), CUDA_SUCCESS));
}

static CUresult memory_info(const struct call *call, size_t *free_bytes, size_t *total_bytes)
{
    int device;
    CUresult result = current_context(call, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (free_bytes == NULL || total_bytes == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    *free_bytes = settings.memory_bytes - memory_used(device);
    *total_bytes = settings.memory_bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo(size_t *free, size_t *total)
{
    SERVE(cuMemGetInfo, memory_info(call, free, total));
}
