/* What unit tests share: cmocka, and where their data lies. */
#ifndef PENSTOCK_TEST_H
#define PENSTOCK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEST_SKIPPED 77 /* exit status: what the test needs is not there */

/* The path of a file below tests/, such as "reference/llama". The last eight paths stay valid. */
static inline const char *test_data(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    const char *srcdir = getenv("srcdir");
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/tests/%s", srcdir ? srcdir : ".", name);
    return path;
}

#define TEST_DATA(name) test_data(name)

#endif
