/* What the tests of kernels share: random numbers, errors, and micro-batches of
 * several sequences whose KV blocks lie in a shuffled order. */
#ifndef PENSTOCK_TESTS_KERNELS_H
#define PENSTOCK_TESTS_KERNELS_H

#include <math.h>
#include <string.h>

#include "kernels/kernel.h"
#include "tests/test.h"

/* A sequence of 64 random bits (splitmix64 by Steele, Lea and Flood, 2014). */
static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* low .. high, both included. */
static inline int random_int(uint64_t *state, int low, int high)
{
    return low + (int)(random_bits(state) % (uint64_t)(high - low + 1));
}

/* Uniform in -scale .. scale. */
static inline float random_float(uint64_t *state, float scale)
{
    return scale * ((float)(random_bits(state) >> 40) * 0x1p-23f - 1.0f);
}

static inline void *test_alloc(size_t bytes)
{
    void *p = calloc(1, bytes + 64);
    assert_non_null(p);
    return p;
}

/* n random floats; the caller frees them. */
static inline float *random_floats(uint64_t *state, size_t n, float scale)
{
    float *x = test_alloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(state, scale);
    return x;
}

/* 2-norm of x - y over that of y. A difference of nothing is 0. */
static inline double relative_error(const float *x, const double *y, size_t n)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        norm += y[i] * y[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

/* Fails with the name of what was wrong. */
static inline void check_error(const char *what, const float *x, const double *y,
                               size_t n, double bound)
{
    double error = relative_error(x, y, n);
    if (!(error <= bound))
        fail_msg("%s: relative error %.3g is above %.3g", what, error, bound);
}

/* A segment: `prefix` tokens lie in the cache, `count` rows follow. */
struct test_segment {
    int prefix, count;
};

struct test_batch {
    struct kernel_rows rows; /* arrays in host memory, owned here */
    int blocks;              /* KV blocks that the ids in the table go up to */
};

static inline void test_batch_free(struct test_batch *b)
{
    free((void *)b->rows.pos);
    free((void *)b->rows.row_seg);
    free((void *)b->rows.seg_row);
    free((void *)b->rows.table);
}

/* A permutation of 0 .. n - 1. */
static inline int32_t *shuffled(uint64_t *state, int n)
{
    int32_t *ids = test_alloc((size_t)n * sizeof(*ids));
    for (int i = 0; i < n; i++) {
        int j = random_int(state, 0, i);
        ids[i] = ids[j];
        ids[j] = i;
    }
    return ids;
}

/* Sizes of the batch; table_ld has a column more than needed. */
static inline void test_batch_sizes(struct test_batch *b, const struct test_segment *seg,
                                    int segs)
{
    memset(b, 0, sizeof(*b));
    b->rows.segs = segs;
    for (int s = 0; s < segs; s++) {
        int len = seg[s].prefix + seg[s].count;
        int blocks = (len + KERNEL_KV_BLOCK - 1) / KERNEL_KV_BLOCK;
        b->rows.rows += seg[s].count;
        b->rows.max_rows =
            seg[s].count > b->rows.max_rows ? seg[s].count : b->rows.max_rows;
        b->rows.max_len = len > b->rows.max_len ? len : b->rows.max_len;
        b->rows.table_ld = blocks + 1 > b->rows.table_ld ? blocks + 1 : b->rows.table_ld;
        b->blocks += blocks;
    }
    b->blocks += 3;
}

static inline void test_batch_make(struct test_batch *b, const struct test_segment *seg,
                                   int segs, uint64_t *state)
{
    int32_t *pos, *row_seg, *seg_row, *table, *ids;
    int row = 0, next = 0;

    test_batch_sizes(b, seg, segs);
    pos = test_alloc((size_t)b->rows.rows * sizeof(*pos));
    row_seg = test_alloc((size_t)b->rows.rows * sizeof(*row_seg));
    seg_row = test_alloc((size_t)(segs + 1) * sizeof(*seg_row));
    table = test_alloc((size_t)segs * b->rows.table_ld * sizeof(*table));
    ids = shuffled(state, b->blocks);
    for (int s = 0; s < segs; s++) {
        int len = seg[s].prefix + seg[s].count;
        for (int t = 0; t * KERNEL_KV_BLOCK < len; t++)
            table[s * b->rows.table_ld + t] = ids[next++];
        for (int i = 0; i < seg[s].count; i++, row++) {
            pos[row] = seg[s].prefix + i;
            row_seg[row] = s;
        }
        seg_row[s + 1] = row;
    }
    free(ids);
    b->rows.pos = pos;
    b->rows.row_seg = row_seg;
    b->rows.seg_row = seg_row;
    b->rows.table = table;
}

#endif
