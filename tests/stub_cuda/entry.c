/* SPDX-License-Identifier: MIT
 *
 * How a call gets in and out: symbol look-up, counting, injected faults,
 * signals and latency, and the one lock.
 */
#define _GNU_SOURCE
#include "stub.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const function_names[FN_COUNT] = {
#define FUNCTION(name, symbol, version, kind) #name,
#include "functions.def"
#undef FUNCTION
};

static const enum kind kinds[FN_COUNT] = {
#define FUNCTION(name, symbol, version, kind) kind,
#include "functions.def"
#undef FUNCTION
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long calls[FN_COUNT];
static unsigned long all_calls;
static CUresult sticky_result;
static bool forked;

static void lock_for_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* As with the real driver, CUDA is not usable in a child forked after cuInit. */
static void start_child(void)
{
    ledger_forget();
    memset(calls, 0, sizeof calls);
    all_calls = 0;
    forked = devices_ready();
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void load(void)
{
    settings_read();
    pthread_atfork(lock_for_fork, unlock_in_parent, start_child);
}

__attribute__((destructor)) static void unload(void)
{
    pthread_mutex_lock(&lock);
    ledger_exited();
    pthread_mutex_unlock(&lock);
}

static bool rule_matches(int rule_function, unsigned long rule_call, bool from_then_on,
                         enum function function)
{
    unsigned long call;
    if (rule_function == FN_COUNT)
        call = all_calls;
    else if (rule_function == (int)function)
        call = calls[function];
    else
        return false;
    return call == rule_call || (from_then_on && call > rule_call);
}

static void raise_signals(enum function function)
{
    for (int i = 0; i < settings.signal_count; i++) {
        const struct self_signal *rule = &settings.signals[i];
        if (rule_matches(rule->function, rule->call, false, function))
            kill(getpid(), rule->signal);
    }
}

/* Whether the call is to be carried out; otherwise call->result is its answer. */
static bool pass_faults(struct call *call)
{
    for (int i = 0; i < settings.fault_count; i++) {
        const struct fault *fault = &settings.faults[i];
        if (!rule_matches(fault->function, fault->call, fault->from_then_on, call->function))
            continue;
        ledger_count_fault();
        if (fault->mode == FAULT_LATE) {
            call->late_fault = true;
            call->late_result = fault->result;
            return true;
        }
        if (fault->mode == FAULT_STICKY) {
            sticky_result = fault->result;
            ledger_sticky(sticky_result);
        }
        call->result = fault->result;
        return false;
    }
    return true;
}

static bool pass_state(struct call *call)
{
    enum kind kind = kinds[call->function];
    if (forked && (kind != ALWAYS || call->function == FN_cuInit)) {
        call->result = violation(call, CUDA_ERROR_NOT_INITIALIZED, "called in a forked child");
        return false;
    }
    if (kind == ALWAYS)
        return true;
    if (!devices_ready()) {
        call->result = violation(call, CUDA_ERROR_NOT_INITIALIZED, "called before cuInit");
        return false;
    }
    if (kind == QUERY)
        return true;
    if (sticky_result != CUDA_SUCCESS) {
        call->result = sticky_result;
        return false;
    }
    int device;
    call->result = current_context(call, &device);
    return call->result == CUDA_SUCCESS;
}

bool enter(struct call *call, enum function function)
{
    *call = (struct call){.function = function, .result = CUDA_SUCCESS};
    pthread_mutex_lock(&lock);
    ledger_open();
    all_calls++;
    ledger_count_call(function, ++calls[function]);
    raise_signals(function);
    return pass_faults(call) && pass_state(call);
}

static bool place_matches(enum place place, const struct call *call)
{
    switch (place) {
    case PLACE_PLAIN:
        return !call->localized && !call->compressible;
    case PLACE_LOCALIZED:
        return call->localized;
    case PLACE_COMPRESSIBLE:
        return call->compressible;
    case PLACE_COLD:
        return !call->is_warm;
    default:
        return true;
    }
}

static uint64_t latency_ns(const struct call *call)
{
    uint64_t sum_ns = 0;
    uint64_t size_mib = call->size >> 20;
    for (int i = 0; i < settings.latency_count; i++) {
        const struct latency *rule = &settings.latencies[i];
        if (rule->function != FN_COUNT && rule->function != (int)call->function)
            continue;
        if (!place_matches(rule->place, call) || (rule->over_mib > 0 && size_mib <= rule->over_mib))
            continue;
        sum_ns += rule->base_ns + rule->ns_per_mib * (size_mib - rule->over_mib);
    }
    return sum_ns;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* A sleep would add the scheduler's latency, which is larger than what is asked for. */
static void spend(uint64_t ns)
{
    if (ns == 0)
        return;
    for (uint64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

CUresult leave(struct call *call)
{
    if (call->late_fault && call->result == CUDA_SUCCESS)
        call->result = call->late_result;
    /* Under the lock: callers of a real driver wait for each other, too. */
    spend(latency_ns(call));
    pthread_mutex_unlock(&lock);
    return call->result;
}

/* Symbol look-up. cuda.h maps the plain names to the current ABI's. */
#undef cuGetProcAddress

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus);
CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags);

static const struct {
    const char *name;
    void *address;
    int version;
} symbols[] = {
#define FUNCTION(name, symbol, version, kind) {#name, (void *)symbol, version},
#include "functions.def"
#undef FUNCTION
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2, 12000},
    {"cuGetProcAddress", (void *)cuGetProcAddress, 11030},
};

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
    CUdriverProcAddressQueryResult unused;
    CUdriverProcAddressQueryResult *status = symbolStatus != NULL ? symbolStatus : &unused;
    if (symbol == NULL || pfn == NULL || flags > 3 || cudaVersion > settings.driver_version)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (strcmp(symbols[i].name, symbol) != 0 || symbols[i].version > settings.driver_version)
            continue;
        if (symbols[i].version > cudaVersion) {
            *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        *pfn = symbols[i].address;
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
        break;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
    return result == CUDA_SUCCESS && *pfn == NULL ? CUDA_ERROR_NOT_FOUND : result;
}
