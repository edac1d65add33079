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

/* Sanitizers make arithmetic ten times as long: a test of much of it may do less. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

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
