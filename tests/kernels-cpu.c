/* The CPU kernels against plain loops in double precision: everything but attention
 * and sampling. */
#include <errno.h>

#include "tests/kernels.h"

#define BOUND 1e-6 /* relative 2-norm of the difference */

static struct kernel_ctx *ctx;
static uint64_t rng = 1;

static int setup(void **state)
{
    (void)state;
    return kernel_cpu_create(&ctx, 2, NULL);
}

static int teardown(void **state)
{
    (void)state;
    kernel_destroy(ctx);
    return 0;
}

/* ref[r][n] += x[r] . w[n] + bias[n] */
static void plain_gemm(double *ref, const float *x, const float *w, const float *bias,
                       int rows, int N, int K)
{
    for (int r = 0; r < rows; r++) {
        for (int n = 0; n < N; n++) {
            double sum = bias ? bias[n] : 0;
            for (int k = 0; k < K; k++)
                sum += (double)x[(size_t)r * K + k] * w[(size_t)n * K + k];
            ref[(size_t)r * N + n] += sum;
        }
    }
}

static void check_gemm(int rows, int N, int K, bool with_bias, bool add)
{
    size_t n = (size_t)rows * N;
    float *x = random_floats(&rng, (size_t)rows * K, 1), *y = random_floats(&rng, n, 1);
    float *w = random_floats(&rng, (size_t)N * K, 1);
    float *bias = with_bias ? random_floats(&rng, (size_t)N, 1) : NULL;
    double *ref = test_alloc(n * sizeof(*ref));
    char what[100];

    for (size_t i = 0; i < n; i++)
        ref[i] = add ? y[i] : 0;
    plain_gemm(ref, x, w, bias, rows, N, K);
    ctx->ops->gemm_fwd(ctx, y, x, w, bias, add, rows, N, K);
    snprintf(what, sizeof(what), "gemm %d x %d x %d, bias %d, add %d", rows, N, K,
             with_bias, add);
    check_error(what, y, ref, n, BOUND);
    if (!with_bias && !add) {
        memset(y, 0, n * sizeof(*y));
        ctx->ops->head_fwd(ctx, y, x, w, rows, N, K);
        check_error("head", y, ref, n, BOUND);
    }
    free(x);
    free(w);
    free(bias);
    free(y);
    free(ref);
}

static void test_gemm(void **state)
{
    static const int shapes[][3] = {
        {1, 1, 1},     {1, 7, 3},      {1, 130, 65},   {2, 64, 64},    {3, 65, 31},
        {5, 9, 576},   {8, 200, 72},   {31, 129, 100}, {32, 64, 48},   {33, 65, 17},
        {64, 385, 64}, {300, 70, 129}, {257, 800, 33}, {100, 1, 2000}, {520, 40, 16},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        for (int mode = 0; mode < 4; mode++)
            check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], mode & 1, mode & 2);
    }
    for (int i = 0; i < 60; i++)
        check_gemm(random_int(&rng, 1, 40), random_int(&rng, 1, 150),
                   random_int(&rng, 1, 150), i & 1, i & 2);
}

/* A row alone gives the same bits as that row among up to 31 others. */
static void test_gemm_rows(void **state)
{
    enum { N = 203, K = 150, ROWS = 32 };
    float *x = random_floats(&rng, ROWS * K, 1), *w = random_floats(&rng, N * K, 1);
    float *bias = random_floats(&rng, N, 1), *one = test_alloc(N * ROWS * sizeof(float));
    float *all = test_alloc(N * ROWS * sizeof(float));

    (void)state;
    for (int r = 0; r < ROWS; r++)
        ctx->ops->gemm_fwd(ctx, one + r * N, x + r * K, w, bias, false, 1, N, K);
    for (int rows = 1; rows <= ROWS; rows++) {
        ctx->ops->gemm_fwd(ctx, all, x, w, bias, false, rows, N, K);
        assert_memory_equal(all, one, (size_t)rows * N * sizeof(float));
    }
    free(x);
    free(w);
    free(bias);
    free(one);
    free(all);
}

static void check_norm(int rows, int groups, int C, size_t ldy, size_t ldx, bool in_place)
{
    float *x = random_floats(&rng, rows * ldx, 3), *w = random_floats(&rng, (size_t)C, 1);
    float *y = in_place ? x : random_floats(&rng, rows * ldy, 1);
    double *ref = test_alloc(rows * ldy * sizeof(*ref));
    const float eps = 1e-5f;

    for (size_t i = 0; i < rows * ldy; i++)
        ref[i] = y[i];
    for (int i = 0; i < rows * groups; i++) {
        const float *row = x + i / groups * ldx + (size_t)(i % groups) * C;
        double *out = ref + i / groups * ldy + (size_t)(i % groups) * C, mean = 0;
        for (int c = 0; c < C; c++)
            mean += (double)row[c] * row[c] / C;
        for (int c = 0; c < C; c++)
            out[c] = row[c] / sqrt(mean + (double)eps) * w[c];
    }
    ctx->ops->norm_fwd(ctx, y, x, w, eps, rows, groups, C, ldy, ldx);
    check_error("norm", y, ref, rows * ldy, BOUND);
    if (!in_place)
        free(y);
    free(x);
    free(w);
    free(ref);
}

static void test_norm(void **state)
{
    (void)state;
    check_norm(1, 1, 1, 1, 1, false);
    check_norm(5, 1, 576, 576, 576, false);
    check_norm(70, 1, 1000, 1003, 1100, false);
    check_norm(9, 1, 64, 64, 64, true);
    check_norm(4, 3, 24, 100, 100, true);
    check_norm(33, 8, 128, 1100, 1030, false);
    for (int i = 0; i < 30; i++) {
        int C = random_int(&rng, 1, 90), groups = random_int(&rng, 1, 5);
        check_norm(random_int(&rng, 1, 50), groups, C, (size_t)(C * groups + i % 3),
                   (size_t)(C * groups + i % 5), false);
    }
}

static void check_rope(int rows, int heads, int D, size_t ld)
{
    enum { POSITIONS = 50 };
    float *x = random_floats(&rng, rows * ld, 1);
    float *table = random_floats(&rng, (size_t)POSITIONS * D, 1);
    double *ref = test_alloc(rows * ld * sizeof(*ref));
    int32_t *pos = test_alloc((size_t)rows * sizeof(*pos));

    for (int r = 0; r < rows; r++)
        pos[r] = random_int(&rng, 0, POSITIONS - 1);
    for (size_t i = 0; i < rows * ld; i++)
        ref[i] = x[i];
    for (int i = 0; i < rows * heads * (D / 2); i++) {
        int r = i / (heads * (D / 2)), h = i / (D / 2) % heads, j = i % (D / 2);
        size_t a = r * ld + (size_t)h * D + j, b = a + (size_t)D / 2;
        double c = table[(pos[r] * (D / 2) + j) * 2],
               s = table[(pos[r] * (D / 2) + j) * 2 + 1];
        ref[a] = x[a] * c - x[b] * s;
        ref[b] = x[b] * c + x[a] * s;
    }
    ctx->ops->rope_fwd(ctx, x, table, pos, rows, heads, D, ld);
    check_error("rope", x, ref, rows * ld, BOUND);
    free(x);
    free(table);
    free(ref);
    free(pos);
}

static void test_rope(void **state)
{
    (void)state;
    check_rope(1, 1, 2, 2);
    check_rope(7, 3, 64, 3 * 64);
    check_rope(40, 9, 128, 15 * 128);
    check_rope(3, 2, 24, 55);
}

static void test_swiglu(void **state)
{
    static const int widths[] = {1, 15, 16, 17, 100, 1536};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        int F = widths[i], rows = 13;
        size_t n = (size_t)rows * F;
        float *x = random_floats(&rng, 2 * n, 8), *y = test_alloc(n * sizeof(*y));
        double *ref = test_alloc(n * sizeof(*ref));
        x[0] = 200;
        x[2 * F] = -200;
        for (size_t j = 0; j < n; j++) {
            double gate = x[j / F * 2 * F + j % F], up = x[j / F * 2 * F + F + j % F];
            ref[j] = gate / (1 + exp(-gate)) * up;
        }
        ctx->ops->swiglu_fwd(ctx, y, x, rows, F);
        check_error("swiglu", y, ref, n, BOUND);
        free(x);
        free(y);
        free(ref);
    }
}

static void test_embed(void **state)
{
    enum { V = 40, C = 21, ROWS = 17 };
    float *table = random_floats(&rng, V * C, 1), y[ROWS * C];
    int32_t tokens[V], index[ROWS];

    (void)state;
    for (int i = 0; i < V; i++)
        tokens[i] = random_int(&rng, 0, V - 1);
    for (int r = 0; r < ROWS; r++)
        index[r] = random_int(&rng, 0, V - 1);
    ctx->ops->embed_fwd(ctx, y, table, tokens, NULL, ROWS, C);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal(y + r * C, table + tokens[r] * C, C * sizeof(float));
    ctx->ops->embed_fwd(ctx, y, table, tokens, index, ROWS, C);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal(y + r * C, table + tokens[index[r]] * C, C * sizeof(float));
    ctx->ops->gather_fwd(ctx, y, table, index, ROWS, C);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal(y + r * C, table + index[r] * C, C * sizeof(float));
    free(table);
}

static void test_logprob(void **state)
{
    enum { V = 1037, ROWS = 6 };
    float *x = random_floats(&rng, V * ROWS, 20), out[ROWS];
    const int32_t target[ROWS] = {0, V - 1, -1, 500, 3, 17};

    (void)state;
    x[4 * V + 9] = -INFINITY;
    x[4 * V + 3] = -INFINITY;
    x[5 * V + 1] = NAN;
    ctx->ops->logprob(ctx, out, x, target, ROWS, V);
    for (int r = 0; r < 4; r++) {
        double sum = 0;
        for (int i = 0; i < V; i++)
            sum += exp((double)x[r * V + i]);
        double want = target[r] < 0 ? 0 : x[r * V + target[r]] - log(sum);
        assert_true(fabs(out[r] - want) <= 2e-6 * (1 + fabs(want)));
    }
    assert_true(out[4] == -INFINITY);
    assert_true(isnan(out[5]));
    free(x);
}

/* Whatever has no rows does nothing. */
static void test_nothing(void **state)
{
    float y[4] = {1, 2, 3, 4};
    const float same[4] = {1, 2, 3, 4};

    (void)state;
    ctx->ops->gemm_fwd(ctx, y, y, y, NULL, false, 0, 4, 4);
    ctx->ops->head_fwd(ctx, y, y, y, 0, 4, 4);
    ctx->ops->norm_fwd(ctx, y, y, y, 1e-5f, 0, 1, 4, 4, 4);
    ctx->ops->rope_fwd(ctx, y, y, NULL, 0, 1, 4, 4);
    ctx->ops->swiglu_fwd(ctx, y, y, 0, 2);
    ctx->ops->embed_fwd(ctx, y, y, NULL, NULL, 0, 4);
    ctx->ops->gather_fwd(ctx, y, y, NULL, 0, 4);
    ctx->ops->logprob(ctx, y, y, NULL, 0, 4);
    ctx->ops->upload(ctx, y, NULL, 0);
    ctx->ops->zero(ctx, y, 0);
    assert_memory_equal(y, same, sizeof(y));
    assert_int_equal(kernel_error(ctx), 0);
}

static void test_memory(void **state)
{
    const float x[3] = {1, 2, 3};
    float y[3];
    void *p, *huge = NULL;

    (void)state;
    assert_int_equal(ctx->ops->mem_alloc(ctx, &p, sizeof(x)), 0);
    ctx->ops->upload_f32(ctx, p, x, 3);
    ctx->ops->download(ctx, y, p, sizeof(y));
    ctx->ops->sync(ctx);
    assert_memory_equal(x, y, sizeof(x));
    ctx->ops->zero(ctx, p, sizeof(x));
    ctx->ops->download(ctx, y, p, sizeof(y));
    ctx->ops->sync(ctx);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    ctx->ops->mem_free(ctx, p);
    assert_int_equal(ctx->ops->mem_alloc(ctx, &huge, SIZE_MAX - 5), -ENOMEM);
    assert_null(huge);
    kernel_fail(ctx, -EDOM);
    kernel_fail(ctx, -EIO);
    assert_int_equal(kernel_error(ctx), -EDOM);
    assert_int_equal(kernel_error(ctx), 0);
}

/* One thread and three give the same bits. */
static void test_threads(void **state)
{
    enum { ROWS = 270, N = 500, K = 96 };
    float *x = random_floats(&rng, ROWS * K, 1), *w = random_floats(&rng, N * K, 1);
    float *y[2] = {test_alloc(ROWS * N * sizeof(float)),
                   test_alloc(ROWS * N * sizeof(float))};
    const int rows[] = {ROWS, 20};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int j = 0; j < 2; j++) {
            struct kernel_ctx *lane;
            assert_int_equal(kernel_cpu_create(&lane, j ? 3 : 1, NULL), 0);
            lane->ops->gemm_fwd(lane, y[j], x, w, NULL, false, rows[i], N, K);
            lane->ops->swiglu_fwd(lane, y[j], w, 60, 200);
            lane->ops->norm_fwd(lane, y[j], y[j], w, 1e-6f, rows[i], 1, N, N, N);
            kernel_destroy(lane);
        }
        assert_memory_equal(y[0], y[1], (size_t)rows[i] * N * sizeof(float));
    }
    free(x);
    free(w);
    free(y[0]);
    free(y[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),    cmocka_unit_test(test_gemm_rows),
        cmocka_unit_test(test_norm),    cmocka_unit_test(test_rope),
        cmocka_unit_test(test_swiglu),  cmocka_unit_test(test_embed),
        cmocka_unit_test(test_logprob), cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
