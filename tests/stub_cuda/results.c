/* SPDX-License-Identifier: MIT */
#include "stub.h"

#include <string.h>

static const struct {
    CUresult result;
    const char *name;
} results[] = {
#define RESULT(name) {name, #name},
#include "results.def" /* generated from cuda.h */
#undef RESULT
};

#define RESULT_COUNT (sizeof results / sizeof *results)

const char *result_name(CUresult result)
{
    for (size_t i = 0; i < RESULT_COUNT; i++)
        if (results[i].result == result)
            return results[i].name;
    return NULL;
}

bool result_from_name(const char *name, CUresult *result)
{
    for (size_t i = 0; i < RESULT_COUNT; i++)
        if (strcmp(results[i].name, name) == 0) {
            *result = results[i].result;
            return true;
        }
    return false;
}
