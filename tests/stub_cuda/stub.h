/* SPDX-License-Identifier: MIT
 *
 * A stub of the CUDA driver: what its parts share. See README.md for what it
 * is and which environment variables steer it.
 */
#ifndef VMMPROF_STUB_CUDA_H
#define VMMPROF_STUB_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

/* Only the driver's own names are visible outside of the library. */
#pragma GCC visibility push(hidden)

#define MAX_DEVICES 16
#define MAX_DOMAINS 2
#define MULTIPROCESSORS 144
#define NO_DOMAIN (-1)

enum function {
#define FUNCTION(name, symbol, version, kind) FN_##name,
#include "functions.def"
#undef FUNCTION
    FN_COUNT
};

enum kind { ALWAYS, QUERY, MEMORY };

extern const char *const function_names[FN_COUNT];

/* results.c: the names of all CUresult values, generated from cuda.h. */

const char *result_name(CUresult result);
bool result_from_name(const char *name, CUresult *result);

/* settings.c: the environment, read once. A value that cannot be understood
 * ends the process, because a misspelt fault would make a test pass. */

enum compression { COMPRESSION_GRANT, COMPRESSION_REFUSE, COMPRESSION_UNSUPPORTED };
enum fault_mode { FAULT_PLAIN, FAULT_LATE, FAULT_STICKY };
enum place { PLACE_ANY, PLACE_PLAIN, PLACE_LOCALIZED, PLACE_COMPRESSIBLE, PLACE_COLD };

struct fault {
    int function; /* FN_COUNT: any function */
    unsigned long call; /* counted from 1 */
    bool from_then_on;
    CUresult result;
    enum fault_mode mode;
};

struct self_signal {
    int function;
    unsigned long call;
    int signal;
};

struct latency {
    int function;
    enum place place;
    uint64_t base_ns;
    uint64_t ns_per_mib;
    uint64_t over_mib; /* the entry acts on larger sizes, the slope on the excess */
};

#define MAX_RULES 256

struct settings {
    int devices;
    int domains; /* 0: the driver does not know the attribute */
    int driver_version;
    uint64_t memory_bytes; /* of each device */
    uint64_t granularity_bytes;
    enum compression compression;
    bool rdma;
    bool rdma_localized;
    unsigned long wrong_ordinal_every; /* 0: never */
    unsigned long wrong_compression_every;
    int fault_count;
    struct fault faults[MAX_RULES];
    int signal_count;
    struct self_signal signals[MAX_RULES];
    int latency_count;
    struct latency latencies[MAX_RULES];
};

extern struct settings settings;
void settings_read(void);

/* ledger.c: what is alive, kept in a shared file mapping at all times. */

enum tally {
    TALLY_RESERVATIONS,
    TALLY_HANDLES,
    TALLY_ALLOCATIONS,
    TALLY_MAPPINGS,
    TALLY_CONTEXTS,
    TALLY_GREEN_CONTEXTS,
    TALLY_STREAMS,
    TALLY_MODULES,
    TALLY_POOLS,
    TALLY_HOST_MEMORY,
    TALLY_POOL_ALLOCATIONS,
    TALLY_RESERVED_BYTES,
    TALLY_ALLOCATED_BYTES,
    TALLY_COUNT
};

void ledger_open(void);
void ledger_forget(void);
void ledger_exited(void);
void ledger_count_call(enum function function, unsigned long count);
void ledger_count_fault(void);
void ledger_sticky(CUresult result);
void ledger_add(enum tally tally, int64_t change);
int64_t ledger_alive(enum tally tally);

/* entry.c: every API function runs between enter() and leave(), which hold the
 * stub's one lock. */

struct call {
    enum function function;
    CUresult result;
    bool late_fault;
    CUresult late_result;
    size_t size; /* what the latency rules look at */
    bool localized;
    bool compressible;
    bool is_warm; /* the pool had the memory already */
};

bool enter(struct call *call, enum function function);
CUresult leave(struct call *call);

/* What the caller got wrong: noted in the ledger as a violation. */
CUresult violation(const struct call *call, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The body of an API function; the expression sees the call as `call`. */
#define SERVE(name, expression)             \
    do {                                    \
        struct call here, *call = &here;    \
        if (enter(call, FN_##name))         \
            call->result = (expression);    \
        return leave(call);                 \
    } while (0)

/* device.c */

bool devices_ready(void);
bool device_exists(int device);
CUresult current_context(const struct call *call, int *device);
CUresult check_context(const struct call *call, CUcontext context, int *device);
void primary_context_add(int device, int references);

/* vmm.c: physical memory and addresses. A domain is an ordinal or NO_DOMAIN. */

CUresult check_location(struct call *call, const CUmemLocation *location, int *device, int *domain);
uint64_t memory_used(int device);
bool memory_fits(int device, int domain, uint64_t size);
void memory_charge(int device, int domain, int64_t bytes);
CUdeviceptr choose_address(size_t size, size_t alignment);
int reported_ordinal(int domain);

/* object.c: handles of everything that is no memory. */

enum object_kind {
    OBJECT_STREAM,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_POOL,
    OBJECT_HOST_MEMORY,
    OBJECT_GREEN_CONTEXT,
};

/* The first member of every object. */
struct object {
    enum object_kind kind;
    bool alive;
    int device;
    struct object *next;
};

void *object_new(enum object_kind kind, size_t bytes, int device);
bool object_is(const void *handle, enum object_kind kind);
void object_end(struct object *object);
struct object *object_next(const struct object *after, enum object_kind kind);

/* launch.c, pool.c, green.c */

CUresult check_stream(const struct call *call, CUstream stream);
void pools_synchronized(void);
void pool_context_released(int device);
bool pool_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer);
int green_context_device(CUcontext context); /* -1: not a green context's */

#pragma GCC visibility pop

#endif
