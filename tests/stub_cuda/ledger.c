/* SPDX-License-Identifier: MIT
 *
 * The ledger is one JSON document a process, in STUB_CUDA_LEDGER/PID.json. It is
 * a shared file mapping in which numbers of fixed width are overwritten in
 * place, so that the file is whole and current whatever ends the process.
 */
#define _GNU_SOURCE
#include "stub.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES (256 * 1024)
#define NUMBER_WIDTH 20
/* Kept free at the end for the closing brackets. */
#define RESERVE_BYTES 64

static const char *const tally_names[TALLY_COUNT] = {
    [TALLY_RESERVATIONS] = "reservations",
    [TALLY_HANDLES] = "handles",
    [TALLY_ALLOCATIONS] = "allocations",
    [TALLY_MAPPINGS] = "mappings",
    [TALLY_CONTEXTS] = "contexts",
    [TALLY_GREEN_CONTEXTS] = "green_contexts",
    [TALLY_STREAMS] = "streams",
    [TALLY_MODULES] = "modules",
    [TALLY_POOLS] = "pools",
    [TALLY_HOST_MEMORY] = "host_memory",
    [TALLY_POOL_ALLOCATIONS] = "pool_allocations",
    [TALLY_RESERVED_BYTES] = "reserved_bytes",
    [TALLY_ALLOCATED_BYTES] = "allocated_bytes",
};

static char *file;
static size_t length; /* of the document so far, closing brackets not counted */

static int64_t tallies[TALLY_COUNT];
static int64_t peak_allocated_bytes;
static int64_t fault_count;
static int64_t violation_count;

static size_t tally_at[TALLY_COUNT];
static size_t call_at[FN_COUNT];
static size_t peak_at, faults_at, violations_at, exited_at, sticky_at;

__attribute__((format(printf, 1, 2))) static void append(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    length += (size_t)vsnprintf(file + length, FILE_BYTES - length, format, arguments);
    va_end(arguments);
}

static size_t append_number(const char *name)
{
    append("\"%s\": ", name);
    size_t at = length;
    append("%*d", NUMBER_WIDTH, 0);
    return at;
}

static void set_number(size_t at, int64_t number)
{
    if (file == NULL)
        return;
    char text[NUMBER_WIDTH + 1];
    snprintf(text, sizeof text, "%*lld", NUMBER_WIDTH, (long long)number);
    memcpy(file + at, text, NUMBER_WIDTH);
}

static void close_document(void)
{
    memcpy(file + length, "\n]}\n", 4);
}

static void lay_out(void)
{
    append("{\"pid\": %d,\n", (int)getpid());
    exited_at = append_number("exited");
    append(",\n");
    sticky_at = append_number("sticky_result");
    append(",\n");
    faults_at = append_number("faults");
    append(",\n");
    peak_at = append_number("peak_allocated_bytes");
    append(",\n\"alive\": {");
    for (int i = 0; i < TALLY_COUNT; i++) {
        append(i == 0 ? "\n  " : ",\n  ");
        tally_at[i] = append_number(tally_names[i]);
    }
    append("\n},\n\"calls\": {");
    for (int i = 0; i < FN_COUNT; i++) {
        append(i == 0 ? "\n  " : ",\n  ");
        call_at[i] = append_number(function_names[i]);
    }
    append("\n},\n");
    violations_at = append_number("violation_count");
    append(",\n\"violations\": [");
    close_document();
}

void ledger_open(void)
{
    const char *directory = getenv("STUB_CUDA_LEDGER");
    if (directory == NULL || file != NULL)
        return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.json", directory, (int)getpid());
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0 || ftruncate(descriptor, FILE_BYTES) != 0) {
        fprintf(stderr, "stub libcuda: STUB_CUDA_LEDGER=%s: cannot create %s\n", directory, path);
        abort();
    }
    file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (file == MAP_FAILED)
        abort();
    memset(file, ' ', FILE_BYTES);
    lay_out();
}

/* In a forked child: the mapping is shared with its parent, whose ledger this is. */
void ledger_forget(void)
{
    file = NULL;
    length = 0;
    fault_count = violation_count = 0;
}

void ledger_exited(void)
{
    set_number(exited_at, 1);
}

void ledger_count_call(enum function function, unsigned long count)
{
    set_number(call_at[function], (int64_t)count);
}

void ledger_count_fault(void)
{
    set_number(faults_at, ++fault_count);
}

void ledger_sticky(CUresult result)
{
    set_number(sticky_at, (int64_t)result);
}

void ledger_add(enum tally tally, int64_t change)
{
    tallies[tally] += change;
    set_number(tally_at[tally], tallies[tally]);
    if (tally == TALLY_ALLOCATED_BYTES && tallies[tally] > peak_allocated_bytes) {
        peak_allocated_bytes = tallies[tally];
        set_number(peak_at, peak_allocated_bytes);
    }
}

int64_t ledger_alive(enum tally tally)
{
    return tallies[tally];
}

static void append_violation(const char *text)
{
    if (file == NULL || length + strlen(text) + RESERVE_BYTES > FILE_BYTES)
        return;
    /* Our own texts: no character that JSON would have to escape. */
    append("%s\n  \"%s\"", violation_count == 1 ? "" : ",", text);
    close_document();
}

CUresult violation(const struct call *call, CUresult result, const char *format, ...)
{
    char reason[256], text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "%s: %s", function_names[call->function], reason);
    set_number(violations_at, ++violation_count);
    append_violation(text);
    if (getenv("STUB_CUDA_VERBOSE") != NULL)
        fprintf(stderr, "stub libcuda: violation: %s\n", text);
    return result;
}
