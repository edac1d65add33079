/* The inner loops of the CPU kernels, written once with vector extensions (vec_body.h)
 * and compiled for three kinds of processor; vec_select picks one at run time. Results
 * are the same for every way of cutting the work: an element is always summed in the
 * same order. */
#ifndef PENSTOCK_VEC_H
#define PENSTOCK_VEC_H

#include "kernels/base.h"
#include "kernels/exp.h"

struct kernel_adamw;

/* Processors other than x86-64 have the portable loops alone. */
#if defined(__x86_64__)
#define VEC_HAVE_X86 1
#else
#define VEC_HAVE_X86 0
#endif

struct vec_ops {
    const char *name;

    /* y[r][j] = x[r] . w[j]: y (rows, n), x (rows, k), w (n, k) with row strides ldy,
     * ldx, k. */
    void (*dots)(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                 int rows, int n, int k);

    /* o[r] += sum over t of p[r][t] v[t]: o (rows, d), p (rows, n), v (n, d); d % 8 ==
     * 0. */
    void (*sums)(float *o, size_t ldo, const float *p, size_t ldp, const float *v,
                 int rows, int n, int d);

    /* c = a b, or c += a b if add: c (rows, cols), a (rows, depth), b (depth, cols)
     * with row strides; cols % 8 == 0. A row does not depend on the other rows. */
    void (*multiply)(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                     size_t ldb, int rows, int cols, int depth, bool add);

    /* y (cols, rows) = x (rows, cols) transposed, with row strides; cols % 4 == 0. */
    void (*transpose)(float *y, size_t ldy, const float *x, size_t ldx, int rows,
                      int cols);

    /* Largest of x (n); *nan is set if one is not a number, and left alone otherwise. */
    float (*max)(const float *x, size_t n, bool *nan);

    /* Softmax of a row but for the division: raises *max to the largest of the first
     * `seen` of x, replaces those by exp(x - *max) and the rest by 0, and returns
     * their sum. x (n), n % 16 == 0. */
    float (*soften)(float *x, int seen, int n, float *max);

    /* The sum of exp(x[i] - max) over x (n). */
    double (*exp_total)(const float *x, size_t n, float max);

    /* m[i] = exp((x[i] - max) * scale) * MASS_ONE, truncated; x[i] <= max, m and x
     * (n). Every rounding is that of fmaf, so all kinds of processor, and the GPU,
     * agree to the bit. */
    void (*masses)(int64_t *m, const float *x, size_t n, float max, float scale);

    /* y = gate / (1 + exp(-gate)) * up, all (n). */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n);

    /* Sum of squares of x (n). */
    float (*squares)(const float *x, size_t n);

    /* y = x * scale * w, all (n); y may be x. */
    void (*scale)(float *y, const float *x, const float *w, float scale, size_t n);

    /* ---- Training (vec_train_body.h). Arrays are (n); a result may be an input of
     * the same index. ---- */

    /* y += x. */
    void (*add)(float *y, const float *x, size_t n);

    /* y += a * b * scale. */
    void (*add_product)(float *y, const float *a, const float *b, float scale, size_t n);

    /* The sum of a * b * c. */
    float (*dot_three)(const float *a, const float *b, const float *c, size_t n);

    /* dx = dy * w * scale - x * shift, or dx += that if add. */
    void (*norm_bwd)(float *dx, const float *dy, const float *x, const float *w,
                     float scale, float shift, bool add, size_t n);

    /* Gradients of silu(gate) * up. */
    void (*swiglu_bwd)(float *dgate, float *dup, const float *dy, const float *gate,
                       const float *up, size_t n);

    /* dp = p * (dp - delta) * scale. */
    void (*softmax_bwd)(float *dp, const float *p, float delta, float scale, size_t n);

    /* y = exp(x - max) * scale. */
    void (*exp_scaled)(float *y, const float *x, float max, float scale, size_t n);

    /* The sum of squares of x, in double. */
    double (*square_total)(const float *x, size_t n);

    /* A step of AdamW, as train.h says; without the lower-precision copy. */
    void (*adamw)(float *master, float *m, float *v, float *g,
                  const struct kernel_adamw *p, size_t n);
};

extern const struct vec_ops vec_base, vec_avx2, vec_avx512;

/* The loops for this processor; vec_list ends with NULL and has all that it can run. */
const struct vec_ops *vec_select(void);
const struct vec_ops *const *vec_list(void);

#endif
