/* SPDX-License-Identifier: MIT
 *
 * Green contexts: sets of multiprocessors, and contexts that run on one.
 * Multiprocessors are numbered through; a locality domain has a run of them.
 */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x5ab5eb5bU
#define COSCHEDULED 8
#define FINEST 2

/* Behind the public fields of a CUdevResource. */
struct hidden {
    uint32_t magic;
    int32_t device;
    uint32_t split; /* the call that made it; 0: the whole of something */
    unsigned char members[MULTIPROCESSORS / 8];
};

_Static_assert(sizeof(struct hidden) <= sizeof((CUdevResource *)0)->_internal_padding,
               "hidden fields fit into a resource");
_Static_assert(MULTIPROCESSORS % (8 * MAX_DOMAINS) == 0, "domains have whole groups");

struct description {
    int device;
    CUdevResource resource;
};

struct green_context {
    struct object object;
    CUdevResource resource;
    char context; /* its address is the CUcontext: another handle than the CUgreenCtx */
};

static uint32_t splits;

static struct hidden *hidden(CUdevResource *resource)
{
    return (struct hidden *)resource->_internal_padding;
}

static bool has(const struct hidden *set, int index)
{
    return (set->members[index / 8] >> (index % 8) & 1) != 0;
}

static void put(struct hidden *set, int index, bool member)
{
    unsigned char bit = (unsigned char)(1 << (index % 8));
    set->members[index / 8] =
        (unsigned char)(member ? set->members[index / 8] | bit : set->members[index / 8] & ~bit);
}

static unsigned int count(const struct hidden *set)
{
    unsigned int members = 0;
    for (int i = 0; i < MULTIPROCESSORS; i++)
        members += has(set, i);
    return members;
}

static void fill(CUdevResource *resource, const struct hidden *set, unsigned int alignment,
                 unsigned int flags, unsigned int domain)
{
    memset(resource, 0, sizeof *resource);
    if (count(set) == 0)
        return; /* type 0: invalid */
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    *hidden(resource) = *set;
    resource->sm.smCount = count(set);
    resource->sm.minSmPartitionSize = alignment;
    resource->sm.smCoscheduledAlignment = alignment;
    resource->sm.flags = flags;
    resource->sm.localityDomainId = domain;
}

static void whole_device(CUdevResource *resource, int device)
{
    struct hidden set = {.magic = MAGIC, .device = device};
    memset(set.members, 0xff, sizeof set.members);
    fill(resource, &set, COSCHEDULED, 0, 0);
}

static CUresult check_resource(const struct call *call, const CUdevResource *resource)
{
    if (resource != NULL && resource->type == CU_DEV_RESOURCE_TYPE_SM &&
        ((const struct hidden *)resource->_internal_padding)->magic == MAGIC)
        return CUDA_SUCCESS;
    return violation(call, CUDA_ERROR_INVALID_RESOURCE_TYPE, "not a resource of this driver");
}

static CUresult check_query(const struct call *call, const CUdevResource *resource,
                            CUdevResourceType type)
{
    if (resource == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return violation(call, CUDA_ERROR_INVALID_RESOURCE_TYPE, "type %d", (int)type);
    return CUDA_SUCCESS;
}

static CUresult device_resource(const struct call *call, int device, CUdevResource *resource,
                                CUdevResourceType type)
{
    CUresult result = check_query(call, resource, type);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device_exists(device))
        return violation(call, CUDA_ERROR_INVALID_DEVICE, "device %d of %d", device,
                         settings.devices);
    whole_device(resource, device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                        CUdevResourceType type)
{
    SERVE(cuDeviceGetDevResource, device_resource(call, device, resource, type));
}

static struct green_context *green_of(CUcontext context)
{
    for (struct object *object = object_next(NULL, OBJECT_GREEN_CONTEXT); object != NULL;
         object = object_next(object, OBJECT_GREEN_CONTEXT))
        if ((CUcontext) & ((struct green_context *)object)->context == context)
            return (struct green_context *)object;
    return NULL;
}

int green_context_device(CUcontext context)
{
    const struct green_context *green = green_of(context);
    return green == NULL ? -1 : green->object.device;
}

static CUresult context_resource(const struct call *call, CUcontext context,
                                 CUdevResource *resource, CUdevResourceType type)
{
    int device;
    CUresult result = check_query(call, resource, type);
    if (result == CUDA_SUCCESS)
        result = check_context(call, context, &device);
    if (result != CUDA_SUCCESS)
        return result;
    const struct green_context *green = green_of(context);
    if (green != NULL)
        *resource = green->resource;
    else
        whole_device(resource, device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource,
                                     CUdevResourceType type)
{
    SERVE(cuCtxGetDevResource, context_resource(call, hCtx, resource, type));
}

static CUresult green_resource(const struct call *call, CUgreenCtx green, CUdevResource *resource,
                               CUdevResourceType type)
{
    CUresult result = check_query(call, resource, type);
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_is(green, OBJECT_GREEN_CONTEXT))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such green context");
    *resource = ((struct green_context *)green)->resource;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource,
                                          CUdevResourceType type)
{
    SERVE(cuGreenCtxGetDevResource, green_resource(call, hCtx, resource, type));
}

/* Moves up to most multiprocessors from one set to another, of one domain or of any (-1). */
static unsigned int move(struct hidden *from, struct hidden *to, unsigned int most, int domain)
{
    int pools = settings.domains > 1 ? settings.domains : 1;
    unsigned int moved = 0;
    for (int i = 0; i < MULTIPROCESSORS && moved < most; i++) {
        if (!has(from, i) || (domain >= 0 && i / (MULTIPROCESSORS / pools) != domain))
            continue;
        put(from, i, false);
        put(to, i, true);
        moved++;
    }
    return moved;
}

static unsigned int round_up(unsigned int value, unsigned int step)
{
    return (value + step - 1) / step * step;
}

static CUresult split_by_count(const struct call *call, CUdevResource *result,
                               unsigned int *groups, const CUdevResource *input,
                               CUdevResource *remainder, unsigned int flags, unsigned int least)
{
    CUresult checked = check_resource(call, input);
    if (checked != CUDA_SUCCESS)
        return checked;
    if (groups == NULL || flags > 3 || least > input->sm.smCount)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "nbGroups is NULL, or flags or minCount");
    unsigned int step = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0
                            ? FINEST
                            : COSCHEDULED;
    unsigned int size = round_up(least > 0 ? least : 1, step);
    unsigned int possible = input->sm.smCount / size;
    if (result == NULL) {
        *groups = possible;
        return CUDA_SUCCESS;
    }
    if (possible == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (*groups > possible)
        *groups = possible;
    struct hidden rest = *hidden((CUdevResource *)input);
    rest.split = ++splits;
    for (unsigned int i = 0; i < *groups; i++) {
        struct hidden group = {.magic = MAGIC, .device = rest.device, .split = splits};
        move(&rest, &group, size, -1);
        fill(&result[i], &group, step, 0, 0);
    }
    if (remainder != NULL)
        fill(remainder, &rest, FINEST, 0, 0);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
                                             const CUdevResource *input, CUdevResource *remainder,
                                             unsigned int flags, unsigned int minCount)
{
    SERVE(cuDevSmResourceSplitByCount,
          split_by_count(call, result, nbGroups, input, remainder, flags, minCount));
}

static CUresult check_group(const struct call *call, const CU_DEV_SM_RESOURCE_GROUP_PARAMS *params)
{
    bool by_domain = (params->flags & CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID) != 0;
    for (size_t i = 0; i < sizeof params->reserved / sizeof *params->reserved; i++)
        if (params->reserved[i] != 0)
            return violation(call, CUDA_ERROR_INVALID_VALUE, "reserved fields are not zero");
    if (params->flags > 3 || params->coscheduledSmCount > 32 || params->smCount % 2 != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "flags, coscheduledSmCount or smCount");
    if (by_domain ? params->localityDomainId >= (unsigned int)settings.domains
                  : params->localityDomainId != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "localityDomainId %u of %d",
                         params->localityDomainId, settings.domains);
    return CUDA_SUCCESS;
}

/* Takes one group out of the rest; how many it got. smCount 0: as many as there are. */
static unsigned int take_group(struct hidden *rest, struct hidden *group,
                               const CU_DEV_SM_RESOURCE_GROUP_PARAMS *params)
{
    bool backfill = (params->flags & CU_DEV_SM_RESOURCE_GROUP_BACKFILL) != 0;
    int domain = (params->flags & CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID) != 0
                     ? (int)params->localityDomainId
                     : -1;
    unsigned int step = params->coscheduledSmCount != 0 ? params->coscheduledSmCount : COSCHEDULED;
    unsigned int wanted = params->smCount != 0 ? params->smCount : MULTIPROCESSORS;
    unsigned int got = move(rest, group, wanted, domain);
    if (backfill && params->smCount != 0 && got > 0)
        got += move(rest, group, wanted - got, -1);
    if (!backfill && got % step != 0)
        /* Whole co-scheduled groups only. */
        got -= move(group, rest, got % step, -1);
    return got;
}

static CUresult split(const struct call *call, CUdevResource *result, unsigned int groups,
                      const CUdevResource *input, CUdevResource *remainder, unsigned int flags,
                      CU_DEV_SM_RESOURCE_GROUP_PARAMS *params)
{
    CUresult checked = check_resource(call, input);
    if (checked != CUDA_SUCCESS)
        return checked;
    if (groups == 0 || params == NULL || flags != 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "no groups, or flags are not 0");
    struct hidden rest = *hidden((CUdevResource *)input);
    rest.split = ++splits;
    for (unsigned int i = 0; i < groups; i++) {
        struct hidden group = {.magic = MAGIC, .device = rest.device, .split = splits};
        checked = check_group(call, &params[i]);
        if (checked != CUDA_SUCCESS)
            return checked;
        unsigned int got = take_group(&rest, &group, &params[i]);
        if (result != NULL && (got == 0 || got < params[i].smCount))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        params[i].smCount = got;
        if (result != NULL)
            fill(&result[i], &group, COSCHEDULED, params[i].flags, params[i].localityDomainId);
    }
    if (remainder != NULL)
        fill(remainder, &rest, FINEST, 0, 0);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevSmResourceSplit(CUdevResource *result, unsigned int nbGroups,
                                      const CUdevResource *input, CUdevResource *remainder,
                                      unsigned int flags,
                                      CU_DEV_SM_RESOURCE_GROUP_PARAMS *groupParams)
{
    SERVE(cuDevSmResourceSplit, split(call, result, nbGroups, input, remainder, flags, groupParams));
}

/* Descriptions stay valid to the end of the process, as documented. */
static CUresult describe(const struct call *call, CUdevResourceDesc *handle,
                         CUdevResource *resources, unsigned int resource_count)
{
    if (handle == NULL || resources == NULL || resource_count == 0)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "no resources");
    struct description *description = calloc(1, sizeof *description);
    if (description == NULL)
        abort();
    for (unsigned int i = 0; i < resource_count; i++) {
        CUresult result = check_resource(call, &resources[i]);
        if (result == CUDA_SUCCESS && (hidden(&resources[i])->device != hidden(resources)->device ||
                                       hidden(&resources[i])->split != hidden(resources)->split))
            result = violation(call, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                               "resources of different splits");
        if (result != CUDA_SUCCESS) {
            free(description);
            return result;
        }
        struct hidden all = i == 0 ? *hidden(resources) : *hidden(&description->resource);
        struct hidden more = *hidden(&resources[i]);
        move(&more, &all, MULTIPROCESSORS, -1);
        fill(&description->resource, &all, resources->sm.smCoscheduledAlignment,
             resources->sm.flags, resources->sm.localityDomainId);
    }
    description->device = hidden(resources)->device;
    *handle = (CUdevResourceDesc)description;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                           unsigned int nbResources)
{
    SERVE(cuDevResourceGenerateDesc, describe(call, phDesc, resources, nbResources));
}

static CUresult create_green(const struct call *call, CUgreenCtx *handle, CUdevResourceDesc desc,
                             int device, unsigned int flags)
{
    const struct description *description = (const struct description *)desc;
    if (handle == NULL || description == NULL || flags > CU_GREEN_CTX_DEFAULT_STREAM)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output or description is NULL, or flags");
    if (description->device != device)
        return violation(call, CUDA_ERROR_INVALID_DEVICE, "resources of device %d on device %d",
                         description->device, device);
    struct green_context *green = object_new(OBJECT_GREEN_CONTEXT, sizeof *green, device);
    green->resource = description->resource;
    hidden(&green->resource)->split = 0;
    /* It keeps the primary context alive, but does not count as the program's own. */
    primary_context_add(device, 1);
    *handle = (CUgreenCtx)green;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                                  unsigned int flags)
{
    SERVE(cuGreenCtxCreate, create_green(call, phCtx, desc, dev, flags));
}

static CUresult destroy_green(const struct call *call, CUgreenCtx handle)
{
    if (!object_is(handle, OBJECT_GREEN_CONTEXT))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such green context");
    struct object *object = (struct object *)handle;
    object_end(object);
    primary_context_add(object->device, -1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    SERVE(cuGreenCtxDestroy, destroy_green(call, hCtx));
}

static CUresult from_green(const struct call *call, CUcontext *context, CUgreenCtx handle)
{
    if (context == NULL)
        return violation(call, CUDA_ERROR_INVALID_VALUE, "output pointer is NULL");
    if (!object_is(handle, OBJECT_GREEN_CONTEXT))
        return violation(call, CUDA_ERROR_INVALID_HANDLE, "no such green context");
    *context = (CUcontext) & ((struct green_context *)handle)->context;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    SERVE(cuCtxFromGreenCtx, from_green(call, pContext, hCtx));
}
