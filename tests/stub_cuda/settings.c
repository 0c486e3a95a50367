/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "stub.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings settings;

static _Noreturn void reject(const char *variable, const char *value, const char *expected)
{
    fprintf(stderr, "stub libcuda: %s=%s: expected %s\n", variable, value, expected);
    abort();
}

static bool parse_number(const char *text, unsigned long *number)
{
    char *end;
    errno = 0;
    *number = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static unsigned long number_setting(const char *variable, unsigned long otherwise,
                                    unsigned long least, unsigned long most)
{
    const char *value = getenv(variable);
    if (value == NULL)
        return otherwise;
    unsigned long number;
    char expected[64];
    snprintf(expected, sizeof expected, "a number from %lu to %lu", least, most);
    if (!parse_number(value, &number) || number < least || number > most)
        reject(variable, value, expected);
    return number;
}

static enum compression compression_setting(void)
{
    static const char *const names[] = {"grant", "refuse", "unsupported"};
    const char *value = getenv("STUB_CUDA_COMPRESSION");
    if (value == NULL)
        return COMPRESSION_GRANT;
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0)
            return (enum compression)i;
    reject("STUB_CUDA_COMPRESSION", value, "grant, refuse or unsupported");
}

static bool parse_function(const char *name, int *function)
{
    if (strcmp(name, "*") == 0) {
        *function = FN_COUNT;
        return true;
    }
    for (int i = 0; i < FN_COUNT; i++)
        if (strcmp(name, function_names[i]) == 0) {
            *function = i;
            return true;
        }
    return false;
}

/* Splits text at every separator, in place; the number of parts, at most most. */
static int split(char *text, char separator, char **parts, int most)
{
    int count = 0;
    while (text != NULL && count < most) {
        parts[count++] = text;
        text = strchr(text, separator);
        if (text != NULL)
            *text++ = '\0';
    }
    return text == NULL ? count : most + 1;
}

static bool parse_fault(char *text, struct fault *fault)
{
    char *parts[4];
    int count = split(text, ':', parts, 4);
    if (count < 3 || count > 4 || !parse_function(parts[0], &fault->function))
        return false;
    size_t length = strlen(parts[1]);
    fault->from_then_on = length > 0 && parts[1][length - 1] == '+';
    if (fault->from_then_on)
        parts[1][length - 1] = '\0';
    if (!parse_number(parts[1], &fault->call) || fault->call == 0)
        return false;
    if (!result_from_name(parts[2], &fault->result) || fault->result == CUDA_SUCCESS)
        return false;
    fault->mode = FAULT_PLAIN;
    if (count == 4) {
        if (strcmp(parts[3], "late") == 0)
            fault->mode = FAULT_LATE;
        else if (strcmp(parts[3], "sticky") == 0)
            fault->mode = FAULT_STICKY;
        else
            return false;
    }
    return true;
}

static bool parse_signal_name(const char *name, int *number)
{
    if (strncmp(name, "SIG", 3) != 0)
        return false;
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);
        if (known != NULL && strcmp(known, name + 3) == 0) {
            *number = i;
            return true;
        }
    }
    return false;
}

static bool parse_signal(char *text, struct self_signal *rule)
{
    char *parts[3];
    return split(text, ':', parts, 3) == 3 && parse_function(parts[0], &rule->function) &&
           parse_number(parts[1], &rule->call) && rule->call > 0 &&
           parse_signal_name(parts[2], &rule->signal);
}

static bool parse_place(const char *name, enum place *place)
{
    static const char *const names[] = {"any", "plain", "localized", "compressible", "cold"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *place = (enum place)i;
            return true;
        }
    return false;
}

static bool parse_latency(char *text, struct latency *rule)
{
    char *parts[5];
    unsigned long numbers[3] = {0, 0, 0};
    int count = split(text, ':', parts, 5);
    if (count < 2 || count > 5 || !parse_function(parts[0], &rule->function))
        return false;
    rule->place = PLACE_ANY;
    if (!parse_number(parts[1], &numbers[0]))
        return false;
    if (count > 2 && !parse_number(parts[2], &numbers[1]))
        return false;
    if (count > 3 && !parse_place(parts[3], &rule->place))
        return false;
    if (count > 4 && !parse_number(parts[4], &numbers[2]))
        return false;
    rule->base_ns = numbers[0];
    rule->ns_per_mib = numbers[1];
    rule->over_mib = numbers[2];
    return true;
}

/* Calls parse on every comma-separated rule of a variable; the number of rules. */
#define READ_RULES(variable, parse, rules, count, expected)                      \
    do {                                                                         \
        const char *value_ = getenv(variable);                                   \
        char *parts_[MAX_RULES];                                                 \
        if (value_ == NULL || value_[0] == '\0')                                 \
            break;                                                               \
        char *copy_ = strdup(value_);                                            \
        if (copy_ == NULL)                                                       \
            abort();                                                             \
        (count) = split(copy_, ',', parts_, MAX_RULES);                          \
        if ((count) > MAX_RULES)                                                 \
            reject(variable, value_, "at most 256 rules");                        \
        for (int i_ = 0; i_ < (count); i_++)                                     \
            if (!parse(parts_[i_], &(rules)[i_]))                                \
                reject(variable, value_, expected);                              \
        free(copy_);                                                             \
    } while (0)

void settings_read(void)
{
    settings.devices = (int)number_setting("STUB_CUDA_DEVICES", 1, 0, MAX_DEVICES);
    settings.domains = (int)number_setting("STUB_CUDA_DOMAINS", 2, 0, MAX_DOMAINS);
    settings.driver_version = (int)number_setting(
        "STUB_CUDA_DRIVER_VERSION", settings.domains == 0 ? 13000 : 13040, 10020, 99990);
    settings.memory_bytes = number_setting("STUB_CUDA_MEMORY", 8UL << 30, 0, 1UL << 44);
    settings.granularity_bytes = number_setting("STUB_CUDA_GRANULARITY", 2UL << 20, 4096, 1UL << 30);
    settings.compression = compression_setting();
    settings.rdma = number_setting("STUB_CUDA_RDMA", 1, 0, 1) != 0;
    settings.rdma_localized = number_setting("STUB_CUDA_RDMA_LOCALIZED", 1, 0, 1) != 0;
    settings.wrong_ordinal_every = number_setting("STUB_CUDA_WRONG_ORDINAL", 0, 0, ~0UL);
    settings.wrong_compression_every = number_setting("STUB_CUDA_WRONG_COMPRESSION", 0, 0, ~0UL);
    READ_RULES("STUB_CUDA_FAIL", parse_fault, settings.faults, settings.fault_count,
               "FUNCTION|*:CALL[+]:CUDA_ERROR_NAME[:late|sticky],...");
    READ_RULES("STUB_CUDA_SIGNAL", parse_signal, settings.signals, settings.signal_count,
               "FUNCTION|*:CALL:SIGNAME,...");
    READ_RULES("STUB_CUDA_LATENCY", parse_latency, settings.latencies, settings.latency_count,
               "FUNCTION|*:BASE_NS[:NS_PER_MIB[:any|plain|localized|compressible|cold[:OVER_MIB]]],...");
}
