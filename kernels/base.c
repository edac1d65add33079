/* Element types, checked sizes, the log and the clock. */
#include "kernels/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048

struct dtype_info {
    const char *name;
    size_t elements, bytes; /* of one block */
};

static const struct dtype_info dtypes[DTYPE_COUNT] = {
#define X(name, elements, bytes) [DTYPE_##name] = {#name, elements, bytes},
    DTYPE_LIST(X)
#undef X
};

static bool dtype_valid(enum dtype type)
{
    return (unsigned)type < DTYPE_COUNT;
}

const char *dtype_name(enum dtype type)
{
    return dtype_valid(type) ? dtypes[type].name : "?";
}

size_t dtype_block_elements(enum dtype type)
{
    return dtype_valid(type) ? dtypes[type].elements : 0;
}

size_t dtype_block_bytes(enum dtype type)
{
    return dtype_valid(type) ? dtypes[type].bytes : 0;
}

int dtype_bytes(size_t *bytes, enum dtype type, size_t n)
{
    if (!dtype_valid(type) || n % dtypes[type].elements)
        return -EINVAL;
    return size_mul(bytes, n / dtypes[type].elements, dtypes[type].bytes);
}

int size_mul(size_t *out, size_t a, size_t b)
{
    return __builtin_mul_overflow(a, b, out) ? -EOVERFLOW : 0;
}

int size_add(size_t *out, size_t a, size_t b)
{
    return __builtin_add_overflow(a, b, out) ? -EOVERFLOW : 0;
}

static _Atomic int log_level_now = LOG_WARN;

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, (int)level);
}

/* The line goes out by one write(2), so that lines of several threads never mix. What
 * it quotes from files and flags cannot end it early or steer a terminal. */
void log_line(enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[LINE_BYTES];
    va_list args;
    size_t used;
    int n;

    if ((int)level > atomic_load(&log_level_now) || (unsigned)level >= ARRAY_LEN(names))
        return;
    used = (size_t)snprintf(line, sizeof(line), "penstock: %s: ", names[level]);
    va_start(args, format);
    n = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    used += (size_t)n;
    if (used > sizeof(line) - 2) {
        used = sizeof(line) - 2;
        memcpy(line + used - 3, "...", 3);
    }
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* There is nowhere left to say it. */
}

int log_no_memory(const char *what)
{
    log_error("out of memory: no room for %s", what);
    return -ENOMEM;
}

double time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct timespec time_split(double seconds)
{
    time_t whole = (time_t)seconds;

    return (struct timespec){whole, (long)((seconds - (double)whole) * 1e9)};
}
