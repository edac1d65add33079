/* The inner loops of vec.h for vectors of VEC floats. Who includes this defines VEC,
 * VEC_FN (the processor as a function attribute), VEC_NAME, VEC_FMA (a * b + c),
 * VEC_FMA_EXACT (the same, rounded once), VEC_MAX and VEC_MIN (the second if one is no
 * number), VEC_SQRT, VEC_FOLD (four sums of a vector) and the rows and columns that
 * dots and multiply keep in registers. */
#include <string.h>

#include "kernels/vec.h"

#define VEC_INLINE VEC_FN static inline __attribute__((always_inline))
#define VEC_LOOP   VEC_FN static
#define UNROLL     _Pragma("GCC unroll 16")

typedef float vf __attribute__((vector_size(4 * VEC)));
typedef float vf_any __attribute__((vector_size(4 * VEC), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * VEC)));
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));

VEC_INLINE vf load(const float *p)
{
    return *(const vf_any *)p;
}

VEC_INLINE void store(float *p, vf x)
{
    *(vf_any *)p = x;
}

/* The first n < VEC floats of p, then zeros. */
VEC_INLINE vf load_part(const float *p, size_t n)
{
    vf x = {0};
    memcpy(&x, p, n * sizeof(float));
    return x;
}

VEC_INLINE vf splat(float x)
{
    return x - (vf){0};
}

/* a where the mask is all ones, b where it is zero. */
VEC_INLINE vf pick(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* The sums of a, b, c and d; each is (x0 + x2) + (x1 + x3) after VEC_FOLD. */
VEC_INLINE v4 sum_four(vf a, vf b, vf c, vf d)
{
    v4 ab = __builtin_shufflevector(VEC_FOLD(a), VEC_FOLD(b), 0, 4, 1, 5) +
            __builtin_shufflevector(VEC_FOLD(a), VEC_FOLD(b), 2, 6, 3, 7);
    v4 cd = __builtin_shufflevector(VEC_FOLD(c), VEC_FOLD(d), 0, 4, 1, 5) +
            __builtin_shufflevector(VEC_FOLD(c), VEC_FOLD(d), 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

VEC_INLINE float sum_of(vf x)
{
    v4 a = VEC_FOLD(x);
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* exact: with VEC_FMA_EXACT, which is slow where the processor has no such
 * instruction. */
VEC_INLINE vf fma_of(vf a, vf b, vf c, bool exact)
{
    return exact ? VEC_FMA_EXACT(a, b, c) : VEC_FMA(a, b, c);
}

VEC_INLINE vf exp_of(vf x, bool exact)
{
    x = VEC_MAX(splat(EXP_MIN), x);
    x = VEC_MIN(splat(EXP_MAX), x);
    vf t = fma_of(x, splat(EXP_LOG2E), splat(EXP_ROUND), exact);
    vf n = t - EXP_ROUND;
    vf r = fma_of(n, splat(-EXP_LN2_HIGH), x, exact);
    r = fma_of(n, splat(-EXP_LN2_LOW), r, exact);
    vf q = fma_of(splat(EXP_C6), r, splat(EXP_C5), exact);
    q = fma_of(q, r, splat(EXP_C4), exact);
    q = fma_of(q, r, splat(EXP_C3), exact);
    q = fma_of(q, r, splat(EXP_C2), exact);
    vf e = fma_of(q, r, splat(1.0f), exact);
    e = fma_of(e, r, splat(1.0f), exact);
    return e * (vf)(((vi)t + 127) << 23);
}

/* y[r][j] for r < rows, j < cols, both constants after inlining. Meanwhile `ahead`
 * rows of k floats from next come nearer. */
VEC_INLINE void dot_block(float *y, size_t ldy, const float *x, size_t ldx,
                          const float *w, int k, int rows, int cols, const float *next,
                          int ahead)
{
    vf sum[4][8] = {{{0}}};
    int i = 0;

    for (; i + VEC <= k; i += VEC) {
        UNROLL
        for (int j = 0; j < cols; j++) {
            vf b = load(w + (size_t)j * k + i);
            if (j < ahead)
                __builtin_prefetch(next + (size_t)j * k + i, 0, 2);
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][j] = VEC_FMA(load(x + r * ldx + i), b, sum[r][j]);
        }
    }
    if (i < k) {
        for (int j = 0; j < cols; j++) {
            vf b = load_part(w + (size_t)j * k + i, k - i);
            for (int r = 0; r < rows; r++)
                sum[r][j] = VEC_FMA(load_part(x + r * ldx + i, k - i), b, sum[r][j]);
        }
    }
    for (int r = 0; r < rows; r++) {
        vf *a = sum[r];
        for (int j = 0; j + 4 <= cols; j += 4)
            *(v4_any *)(y + r * ldy + j) = sum_four(a[j], a[j + 1], a[j + 2], a[j + 3]);
        if (cols == 1)
            y[r * ldy] = sum_of(a[0]);
    }
}

/* dot_block for the first VEC_DOT_ROWS of `rows` rows, or for all if there are less. */
VEC_INLINE void dot_some(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                         int k, int rows, int cols, const float *next, int ahead)
{
    if (rows >= VEC_DOT_ROWS)
        dot_block(y, ldy, x, ldx, w, k, VEC_DOT_ROWS, cols, next, ahead);
    else if (rows == 3)
        dot_block(y, ldy, x, ldx, w, k, 3, cols, next, ahead);
    else if (rows == 2)
        dot_block(y, ldy, x, ldx, w, k, 2, cols, next, ahead);
    else
        dot_block(y, ldy, x, ldx, w, k, 1, cols, next, ahead);
}

/* All rows against cols rows of w, which come from memory once and then lie in the
 * cache. The work on them is the time to fetch the next cols rows, a share with each
 * group of rows; what is past the end of w is only a hint. */
VEC_INLINE void dot_cols(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                         int rows, int k, int cols)
{
    int groups = (rows + VEC_DOT_ROWS - 1) / VEC_DOT_ROWS,
        share = (cols + groups - 1) / groups;
    int left = cols;

    for (int r = 0; r < rows; r += VEC_DOT_ROWS) {
        int ahead = share < left ? share : left;
        const float *next = w + (size_t)(2 * cols - left) * k;
        dot_some(y + r * ldy, ldy, x + r * ldx, ldx, w, k, rows - r, cols, next, ahead);
        left -= ahead;
    }
}

VEC_LOOP void dots(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                   int rows, int n, int k)
{
    int j = 0;

    if (rows == 1) {
        for (; j + 8 <= n; j += 8)
            dot_block(y + j, ldy, x, ldx, w + (size_t)j * k, k, 1, 8, w, 0);
    }
    for (; j + VEC_DOT_COLS <= n; j += VEC_DOT_COLS)
        dot_cols(y + j, ldy, x, ldx, w + (size_t)j * k, rows, k, VEC_DOT_COLS);
    for (; j < n; j++)
        dot_cols(y + j, ldy, x, ldx, w + (size_t)j * k, rows, k, 1);
}

/* Columns i .. i + cols * VEC - 1 of the first rows of o; rows and cols are constants. */
VEC_INLINE void sum_block(float *o, size_t ldo, const float *p, size_t ldp,
                          const float *v, int n, int d, int rows, int cols)
{
    vf sum[4][2];

    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++)
            sum[r][c] = load(o + r * ldo + c * VEC);
    }
    for (int t = 0; t < n; t++) {
        UNROLL
        for (int c = 0; c < cols; c++) {
            vf b = load(v + (size_t)t * d + c * VEC);
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][c] = VEC_FMA(splat(p[r * ldp + t]), b, sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++)
            store(o + r * ldo + c * VEC, sum[r][c]);
    }
}

/* The last eight columns, where d is no multiple of VEC. */
VEC_INLINE void sum_last(float *o, const float *p, const float *v, int n, int d)
{
    v8_any sum = *(const v8_any *)o;

    for (int t = 0; t < n; t++)
        sum += p[t] * *(const v8_any *)(v + (size_t)t * d);
    *(v8_any *)o = sum;
}

VEC_INLINE void sum_rows(float *o, size_t ldo, const float *p, size_t ldp, const float *v,
                         int n, int d, int rows)
{
    int i = 0;

    for (; i + 2 * VEC <= d; i += 2 * VEC)
        sum_block(o + i, ldo, p, ldp, v + i, n, d, rows, 2);
    for (; i + VEC <= d; i += VEC)
        sum_block(o + i, ldo, p, ldp, v + i, n, d, rows, 1);
    if (i < d) {
        for (int r = 0; r < rows; r++)
            sum_last(o + r * ldo + i, p + r * ldp, v + i, n, d);
    }
}

VEC_LOOP void sums(float *o, size_t ldo, const float *p, size_t ldp, const float *v,
                   int rows, int n, int d)
{
    int r = 0;

    for (; r + 4 <= rows; r += 4)
        sum_rows(o + r * ldo, ldo, p + r * ldp, ldp, v, n, d, 4);
    for (; r < rows; r++)
        sum_rows(o + r * ldo, ldo, p + r * ldp, ldp, v, n, d, 1);
}

/* c (rows, cols * VEC) = a b, or c += a b if add; rows and cols are constants. */
VEC_INLINE void multiply_block(float *c, size_t ldc, const float *a, size_t lda,
                               const float *b, size_t ldb, int depth, bool add, int rows,
                               int cols)
{
    vf sum[VEC_TILE_ROWS][VEC_TILE_COLS];

    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int j = 0; j < cols; j++)
            sum[r][j] = add ? load(c + r * ldc + j * VEC) : splat(0);
    }
    for (int i = 0; i < depth; i++) {
        vf x[VEC_TILE_COLS];
        UNROLL
        for (int j = 0; j < cols; j++)
            x[j] = load(b + i * ldb + j * VEC);
        UNROLL
        for (int r = 0; r < rows; r++) {
            UNROLL
            for (int j = 0; j < cols; j++)
                sum[r][j] = VEC_FMA(splat(a[r * lda + i]), x[j], sum[r][j]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int j = 0; j < cols; j++)
            store(c + r * ldc + j * VEC, sum[r][j]);
    }
}

/* All rows of cols * VEC columns; cols is a constant. */
VEC_INLINE void multiply_rows(float *c, size_t ldc, const float *a, size_t lda,
                              const float *b, size_t ldb, int depth, bool add, int rows,
                              int cols)
{
    int r = 0;

    for (; r + VEC_TILE_ROWS <= rows; r += VEC_TILE_ROWS)
        multiply_block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, add,
                       VEC_TILE_ROWS, cols);
    for (; r + 2 <= rows; r += 2)
        multiply_block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, add, 2, cols);
    if (r < rows)
        multiply_block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, add, 1, cols);
}

/* Eight columns, where there are no VEC left. */
VEC_INLINE void multiply_last(float *c, size_t ldc, const float *a, size_t lda,
                              const float *b, size_t ldb, int depth, bool add, int rows)
{
    for (int r = 0; r < rows; r++) {
        v8_any *out = (v8_any *)(c + r * ldc), sum = {0};
        if (add)
            sum = *out;
        for (int i = 0; i < depth; i++)
            sum += a[r * lda + i] * *(const v8_any *)(b + i * ldb);
        *out = sum;
    }
}

VEC_LOOP void multiply(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                       size_t ldb, int rows, int cols, int depth, bool add)
{
    int j = 0;

    for (; j + VEC_TILE_COLS * VEC <= cols; j += VEC_TILE_COLS * VEC)
        multiply_rows(c + j, ldc, a, lda, b + j, ldb, depth, add, rows, VEC_TILE_COLS);
    for (; j + VEC <= cols; j += VEC)
        multiply_rows(c + j, ldc, a, lda, b + j, ldb, depth, add, rows, 1);
    if (j < cols)
        multiply_last(c + j, ldc, a, lda, b + j, ldb, depth, add, rows);
}

/* Four rows and columns of the transpose. */
VEC_INLINE void transpose_four(float *y, size_t ldy, const float *x, size_t ldx)
{
    v4 a = *(const v4_any *)x, b = *(const v4_any *)(x + ldx);
    v4 c = *(const v4_any *)(x + 2 * ldx), d = *(const v4_any *)(x + 3 * ldx);
    v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    v4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);

    *(v4_any *)y = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(v4_any *)(y + ldy) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4_any *)(y + 2 * ldy) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(v4_any *)(y + 3 * ldy) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

VEC_LOOP void transpose(float *y, size_t ldy, const float *x, size_t ldx, int rows,
                        int cols)
{
    int r = 0;

    for (; r + 4 <= rows; r += 4) {
        for (int c = 0; c < cols; c += 4)
            transpose_four(y + c * ldy + r, ldy, x + r * ldx + c, ldx);
    }
    for (; r < rows; r++) {
        for (int c = 0; c < cols; c++)
            y[c * ldy + r] = x[r * ldx + c];
    }
}

VEC_LOOP float max(const float *x, size_t n, bool *nan)
{
    vf top = splat(-__builtin_inff());
    vi odd = {0};
    size_t i = 0;
    float best;
    bool bad = false;

    for (; i + VEC <= n; i += VEC) {
        vf a = load(x + i);
        top = VEC_MAX(a, top);
        odd |= a != a;
    }
    best = top[0];
    for (int l = 0; l < VEC; l++) {
        best = top[l] > best ? top[l] : best;
        bad |= odd[l] != 0;
    }
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        bad |= x[i] != x[i];
    }
    *nan |= bad;
    return best;
}

/* x with lanes from `seen` on replaced; there are none if seen is VEC or more. */
VEC_INLINE vf hide(vf x, int seen, float other)
{
    vi lane;

    UNROLL
    for (int l = 0; l < VEC; l++)
        lane[l] = l;
    return seen < VEC ? pick(lane < seen, x, splat(other)) : x;
}

VEC_LOOP float soften(float *x, int seen, int n, float *max)
{
    vf top = splat(*max), sum = {0};
    float best = *max;
    int i;

    for (i = 0; i < seen; i += VEC)
        top = VEC_MAX(top, hide(load(x + i), seen - i, -__builtin_inff()));
    for (int l = 0; l < VEC; l++)
        best = top[l] > best ? top[l] : best;
    *max = best;
    for (i = 0; i < seen; i += VEC) {
        vf e = hide(exp_of(load(x + i) - best, false), seen - i, 0.0f);
        store(x + i, e);
        sum += e;
    }
    for (; i < n; i += VEC)
        store(x + i, splat(0.0f));
    return sum_of(sum);
}

VEC_LOOP double exp_total(const float *x, size_t n, float max)
{
    double sum[VEC] = {0}, total = 0;
    float e[VEC];

    for (size_t i = 0; i < n; i += VEC) {
        size_t have = n - i < VEC ? n - i : VEC;
        store(e,
              exp_of((have == VEC ? load(x + i) : load_part(x + i, have)) - max, false));
        for (size_t l = 0; l < have; l++)
            sum[l] += e[l];
    }
    for (int l = 0; l < VEC; l++)
        total += sum[l];
    return total;
}

VEC_LOOP void masses(int64_t *m, const float *x, size_t n, float max, float scale)
{
    float e[VEC];

    for (size_t i = 0; i < n; i += VEC) {
        size_t have = n - i < VEC ? n - i : VEC;
        vf d = (have == VEC ? load(x + i) : load_part(x + i, have)) - max;
        store(e, exp_of(d * scale, true) * MASS_ONE);
        for (size_t l = 0; l < have; l++)
            m[i + l] = (int64_t)e[l];
    }
}

VEC_INLINE vf swiglu_of(vf gate, vf up)
{
    return gate / (1.0f + exp_of(-gate, false)) * up;
}

VEC_LOOP void swiglu(float *y, const float *gate, const float *up, size_t n)
{
    size_t i = 0;
    float rest[VEC];

    for (; i + VEC <= n; i += VEC)
        store(y + i, swiglu_of(load(gate + i), load(up + i)));
    if (i < n) {
        store(rest, swiglu_of(load_part(gate + i, n - i), load_part(up + i, n - i)));
        memcpy(y + i, rest, (n - i) * sizeof(float));
    }
}

VEC_LOOP float squares(const float *x, size_t n)
{
    vf sum[4] = {{0}};
    size_t i = 0;

    for (; i + 4 * VEC <= n; i += 4 * VEC) {
        UNROLL
        for (int j = 0; j < 4; j++) {
            vf a = load(x + i + j * VEC);
            sum[j] = VEC_FMA(a, a, sum[j]);
        }
    }
    for (; i < n; i += VEC) {
        vf a = i + VEC <= n ? load(x + i) : load_part(x + i, n - i);
        sum[0] = VEC_FMA(a, a, sum[0]);
    }
    return sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

VEC_LOOP void scale(float *y, const float *x, const float *w, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

#include "kernels/vec_train_body.h"

const struct vec_ops VEC_NAME = {
    .name = VEC_TEXT,
    .dots = dots,
    .sums = sums,
    .multiply = multiply,
    .transpose = transpose,
    .max = max,
    .soften = soften,
    .exp_total = exp_total,
    .masses = masses,
    .swiglu = swiglu,
    .squares = squares,
    .scale = scale,
    .add = add,
    .add_product = add_product,
    .dot_three = dot_three,
    .norm_bwd = norm_bwd,
    .swiglu_bwd = swiglu_bwd,
    .softmax_bwd = softmax_bwd,
    .exp_scaled = exp_scaled,
    .square_total = square_total,
    .adamw = adamw,
};
