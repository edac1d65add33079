/* What the tests of training kernels share: gradients by central differences of a plain
 * forward pass in double precision. */
#ifndef PENSTOCK_TESTS_KERNELS_TRAIN_H
#define PENSTOCK_TESTS_KERNELS_TRAIN_H

#include "kernels/train.h"
#include "tests/kernels.h"

#define MANY 150  /* of more elements, this many are tried at random */
#define STEP 1e-5 /* of a difference: what it leaves out is about 1e-10 */

/* A number that depends on the arrays that arg knows. */
typedef double scalar_fn(const void *arg);

/* The derivatives by the elements `at` of x. */
static inline void slopes(double *out, scalar_fn *fn, const void *arg, double *x,
                          const size_t *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double before = x[at[i]], high, low;
        x[at[i]] = before + STEP;
        high = fn(arg);
        x[at[i]] = before - STEP;
        low = fn(arg);
        x[at[i]] = before;
        out[i] = (high - low) / (2 * STEP);
    }
}

/* dx (n) is the gradient of fn by x (n), or that many samples of it are. */
static inline void check_gradient(const char *what, scalar_fn *fn, const void *arg,
                                  double *x, const float *dx, size_t n, double bound)
{
    static uint64_t rng = 77;
    size_t count = n < MANY ? n : MANY;
    size_t *at = test_alloc(count * sizeof(*at));
    double *ref = test_alloc(count * sizeof(*ref));
    float *got = test_alloc(count * sizeof(*got));

    for (size_t i = 0; i < count; i++)
        at[i] = n <= MANY ? i : random_bits(&rng) % n;
    slopes(ref, fn, arg, x, at, count);
    for (size_t i = 0; i < count; i++)
        got[i] = dx[at[i]];
    check_error(what, got, ref, count, bound);
    free(at);
    free(ref);
    free(got);
}

/* n floats as doubles. */
static inline double *doubles(const float *x, size_t n)
{
    double *y = test_alloc(n * sizeof(*y));

    for (size_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static inline float *copy_of(const float *x, size_t n)
{
    float *y = test_alloc(n * sizeof(*y));

    memcpy(y, x, n * sizeof(*y));
    return y;
}

/* y (n) -= x: what was added to x. Rounding of the sum stays in it. */
static inline void take_away(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] -= x[i];
}

/* Rows of n floats, ld apart; what lies between them is `gap`. */
static inline float *spread(const float *x, int rows, size_t n, size_t ld, float gap)
{
    float *y = test_alloc((size_t)rows * ld * sizeof(*y));

    for (size_t i = 0; i < (size_t)rows * ld; i++)
        y[i] = i % ld < n ? x[i / ld * n + i % ld] : gap;
    return y;
}

/* The rows of a spread array, whose gaps must be as they were. */
static inline float *collect(const float *y, int rows, size_t n, size_t ld, float gap)
{
    float *x = test_alloc((size_t)rows * n * sizeof(*x));

    for (size_t i = 0; i < (size_t)rows * ld; i++) {
        if (i % ld < n)
            x[i / ld * n + i % ld] = y[i];
        else if (y[i] != gap)
            fail_msg("element %zu between the rows was written", i);
    }
    return x;
}

#endif
