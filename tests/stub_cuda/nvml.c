/* SPDX-License-Identifier: MIT
 *
 * A stub libnvidia-ml.so.1 beside the stub libcuda: who uses the GPU and how
 * much of it is in use. Every other function is missing, as in an old library.
 * No wheel brings nvml.h, so the few declarations stand here; their layout is
 * that of nvidia-ml-py.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
};

#define MEMORY_V2 0x02000028U
#define MAX_PIDS 16

struct process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

struct memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

static int initialized;

static unsigned long long number(const char *variable, unsigned long long otherwise)
{
    const char *value = getenv(variable);
    return value != NULL ? strtoull(value, NULL, 10) : otherwise;
}

int nvmlInitWithFlags(unsigned int flags)
{
    if (flags != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (number("STUB_CUDA_NVML", 1) == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    initialized++;
    return NVML_SUCCESS;
}

int nvmlShutdown(void)
{
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    initialized--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
    return result == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "stub NVML error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    snprintf(version, length, "000.00.00 (stub)");
    return NVML_SUCCESS;
}

/* Devices are numbered by their PCI bus, as the stub libcuda numbers them. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    unsigned int domain, bus;
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || domain != 0xffff || bus == 0 ||
        bus > number("STUB_CUDA_DEVICES", 1))
        return NVML_ERROR_NOT_FOUND;
    *device = (void *)(size_t)bus;
    return NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *out)
{
    unsigned int pids[MAX_PIDS], found = 0;
    const char *list = getenv("STUB_CUDA_OTHER_PIDS");
    if (initialized == 0 || device == NULL)
        return NVML_ERROR_UNINITIALIZED;
    while (list != NULL && *list != '\0' && found < MAX_PIDS) {
        char *end;
        pids[found++] = (unsigned int)strtoul(list, &end, 10);
        list = *end == ',' ? end + 1 : NULL;
    }
    bool fits = out != NULL && *count >= found;
    *count = found;
    if (!fits)
        return found == 0 ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < found; i++)
        out[i] = (struct process){.pid = pids[i]};
    return NVML_SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned int *count, struct process *out)
{
    (void)out;
    if (initialized == 0 || device == NULL)
        return NVML_ERROR_UNINITIALIZED;
    *count = 0;
    return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory)
{
    if (initialized == 0 || device == NULL)
        return NVML_ERROR_UNINITIALIZED;
    if (memory->version != MEMORY_V2)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = number("STUB_CUDA_MEMORY", 8ULL << 30);
    memory->used = number("STUB_CUDA_OTHER_BYTES", 0);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}
