/* What every room needs: element types, checked sizes, one-line messages. */
#ifndef PENSTOCK_BASE_H
#define PENSTOCK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* NAME, elements per block, bytes per block. Quantised types are storage of files
 * only. */
#define DTYPE_LIST(X)                                                                    \
    X(F32, 1, 4)                                                                         \
    X(F16, 1, 2)                                                                         \
    X(BF16, 1, 2)                                                                        \
    X(Q4_0, 32, 18)                                                                      \
    X(Q4_1, 32, 20)                                                                      \
    X(Q5_0, 32, 22)                                                                      \
    X(Q5_1, 32, 24)                                                                      \
    X(Q8_0, 32, 34)                                                                      \
    X(Q4_K, 256, 144)                                                                    \
    X(Q5_K, 256, 176)                                                                    \
    X(Q6_K, 256, 210)                                                                    \
    X(I32, 1, 4)

enum dtype {
#define X(name, elements, bytes) DTYPE_##name,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

const char *dtype_name(enum dtype type);
size_t dtype_block_elements(enum dtype type);
size_t dtype_block_bytes(enum dtype type);

/* Bytes of n elements. -EINVAL if n is no multiple of the block, -EOVERFLOW. */
int dtype_bytes(size_t *bytes, enum dtype type, size_t n);

/* *out = a * b or a + b; -EOVERFLOW if it does not fit. */
int size_mul(size_t *out, size_t a, size_t b);
int size_add(size_t *out, size_t a, size_t b);

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* One line to stderr, "penstock: error: ..."; the newline is added. Thread-safe. */
void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One line that says what there was no memory for. Returns -ENOMEM. */
int log_no_memory(const char *what);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* Seconds on the monotonic clock. */
double time_now(void);

/* Seconds, not negative and not more than a time_t holds. */
struct timespec time_split(double seconds);

#ifdef __cplusplus
}
#endif

#endif
