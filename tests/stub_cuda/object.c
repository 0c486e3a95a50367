/* SPDX-License-Identifier: MIT
 *
 * Handles other than memory: streams, modules, pools, green contexts. A handle
 * is the address of its object. Objects that ended stay in the list, so that no
 * later one gets their address and a stale handle is recognised.
 */
#include "stub.h"

#include <stdlib.h>

static struct object *objects;

static const enum tally tallies[] = {
    [OBJECT_STREAM] = TALLY_STREAMS,
    [OBJECT_MODULE] = TALLY_MODULES,
    [OBJECT_FUNCTION] = TALLY_COUNT, /* goes with its module */
    [OBJECT_POOL] = TALLY_POOLS,
    [OBJECT_HOST_MEMORY] = TALLY_HOST_MEMORY,
    [OBJECT_GREEN_CONTEXT] = TALLY_GREEN_CONTEXTS,
};

static void tally(const struct object *object, int64_t change)
{
    if (tallies[object->kind] != TALLY_COUNT)
        ledger_add(tallies[object->kind], change);
}

void *object_new(enum object_kind kind, size_t bytes, int device)
{
    struct object *object = calloc(1, bytes);
    if (object == NULL)
        abort();
    object->kind = kind;
    object->alive = true;
    object->device = device;
    object->next = objects;
    objects = object;
    tally(object, 1);
    return object;
}

bool object_is(const void *handle, enum object_kind kind)
{
    for (const struct object *object = objects; object != NULL; object = object->next)
        if (object == handle)
            return object->alive && object->kind == kind;
    return false;
}

void object_end(struct object *object)
{
    object->alive = false;
    tally(object, -1);
}

struct object *object_next(const struct object *after, enum object_kind kind)
{
    struct object *object = after == NULL ? objects : after->next;
    while (object != NULL && !(object->alive && object->kind == kind))
        object = object->next;
    return object;
}
