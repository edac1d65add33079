/* The same inputs through the CPU and the CUDA kernels. Inputs are numbers of the
 * GPU's type, so that only the GPU's own rounding differs. Skipped where there is no
 * GPU. */
#include <errno.h>

#include "tests/kernels-twin.h"

static uint64_t rng = 21;

static void check_gemm(struct twin *t, int rows, int N, int K, bool with_bias, bool add)
{
    size_t n = (size_t)rows * N, nx = (size_t)rows * K, nw = (size_t)N * K;
    float *x = numbers(t, &rng, nx, 1), *w = numbers(t, &rng, nw, 1),
          *y = numbers(t, &rng, n, 1);
    float *bias = with_bias ? numbers(t, &rng, (size_t)N, 1) : NULL;
    void *gx = up_numbers(t, x, nx), *gw = up_numbers(t, w, nw),
         *gy = up_numbers(t, y, n);
    void *gbias = up_numbers(t, bias, (size_t)N);
    char what[100];

    snprintf(what, sizeof(what), "gemm %d x %d x %d, bias %d, add %d", rows, N, K,
             with_bias, add);
    t->cpu->ops->gemm_fwd(t->cpu, y, x, w, bias, add, rows, N, K);
    t->gpu->ops->gemm_fwd(t->gpu, gy, gx, gw, gbias, add, rows, N, K);
    compare(t, what, gy, y, n);
    drop(t, gx);
    drop(t, gw);
    drop(t, gy);
    if (gbias)
        drop(t, gbias);
    free(x);
    free(w);
    free(y);
    free(bias);
}

static void test_gemm(void **state)
{
    static const int shapes[][3] = {{1, 8, 8},        {1, 576, 1536},  {7, 72, 40},
                                    {33, 960, 576},   {256, 576, 576}, {130, 1000, 200},
                                    {512, 1536, 576}, {3, 49152, 64}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        for (int mode = 0; mode < 4; mode++)
            check_gemm(*state, shapes[i][0], shapes[i][1], shapes[i][2], mode & 1,
                       mode & 2);
    }
}

static void test_head(void **state)
{
    enum { ROWS = 5, V = 3000, C = 576 };
    struct twin *t = *state;
    float *x = numbers(t, &rng, ROWS * C, 1), *w = numbers(t, &rng, V * C, 1);
    float *y = test_alloc(ROWS * V * sizeof(*y)),
          *got = test_alloc(ROWS * V * sizeof(*got));
    void *gx = up_numbers(t, x, ROWS * C), *gw = up_numbers(t, w, V * C);
    void *gy = up(t, y, ROWS * V * sizeof(*y));

    t->cpu->ops->head_fwd(t->cpu, y, x, w, ROWS, V, C);
    t->gpu->ops->head_fwd(t->gpu, gy, gx, gw, ROWS, V, C);
    down(t, got, gy, ROWS * V * sizeof(*got));
    compare_floats(t, "head", got, y, ROWS * V, 3e-6);
    drop(t, gx);
    drop(t, gw);
    drop(t, gy);
    free(x);
    free(w);
    free(y);
    free(got);
}

static void check_norm(struct twin *t, int rows, int groups, int C, size_t ldy,
                       size_t ldx)
{
    float *x = numbers(t, &rng, rows * ldx, 2), *w = numbers(t, &rng, (size_t)C, 1);
    float *y = numbers(t, &rng, rows * ldy, 1);
    void *gx = up_numbers(t, x, rows * ldx), *gw = up_numbers(t, w, (size_t)C);
    void *gy = up_numbers(t, y, rows * ldy);

    t->cpu->ops->norm_fwd(t->cpu, y, x, w, 1e-5f, rows, groups, C, ldy, ldx);
    t->gpu->ops->norm_fwd(t->gpu, gy, gx, gw, 1e-5f, rows, groups, C, ldy, ldx);
    compare(t, "norm", gy, y, rows * ldy);
    if (ldx == ldy) {
        t->gpu->ops->norm_fwd(t->gpu, gx, gx, gw, 1e-5f, rows, groups, C, ldx, ldx);
        t->cpu->ops->norm_fwd(t->cpu, x, x, w, 1e-5f, rows, groups, C, ldx, ldx);
        compare(t, "norm in place", gx, x, rows * ldx);
    }
    drop(t, gx);
    drop(t, gw);
    drop(t, gy);
    free(x);
    free(w);
    free(y);
}

static void test_norm(void **state)
{
    check_norm(*state, 1, 1, 8, 8, 8);
    check_norm(*state, 40, 1, 576, 576, 576);
    check_norm(*state, 9, 1, 4096, 4100, 4104);
    check_norm(*state, 33, 5, 128, 960, 960);
    check_norm(*state, 5, 3, 24, 80, 100);
}

static void check_rope(struct twin *t, int rows, int heads, int D, size_t ld)
{
    enum { POSITIONS = 70 };
    float *x = numbers(t, &rng, rows * ld, 1),
          *table = random_floats(&rng, (size_t)POSITIONS * D, 1);
    int32_t *pos = test_alloc((size_t)rows * sizeof(*pos));
    void *gx = up_numbers(t, x, rows * ld), *gpos, *gtable;

    for (int r = 0; r < rows; r++)
        pos[r] = random_int(&rng, 0, POSITIONS - 1);
    gpos = up(t, pos, (size_t)rows * sizeof(*pos));
    gtable = up(t, table, (size_t)POSITIONS * D * sizeof(*table));
    t->cpu->ops->rope_fwd(t->cpu, x, table, pos, rows, heads, D, ld);
    t->gpu->ops->rope_fwd(t->gpu, gx, gtable, gpos, rows, heads, D, ld);
    compare(t, "rope", gx, x, rows * ld);
    drop(t, gx);
    drop(t, gpos);
    drop(t, gtable);
    free(x);
    free(table);
    free(pos);
}

static void test_rope(void **state)
{
    check_rope(*state, 1, 1, 8, 8);
    check_rope(*state, 50, 12, 64, 15 * 64);
    check_rope(*state, 7, 3, 40, 200);
}

static void test_swiglu(void **state)
{
    enum { ROWS = 37, F = 1000 };
    struct twin *t = *state;
    float *x = numbers(t, &rng, ROWS * 2 * F, 8), *y = test_alloc(ROWS * F * sizeof(*y));
    void *gx, *gy = up_numbers(t, y, ROWS * F);

    x[0] = 128;
    x[1] = -128;
    gx = up_numbers(t, x, ROWS * 2 * F);
    t->cpu->ops->swiglu_fwd(t->cpu, y, x, ROWS, F);
    t->gpu->ops->swiglu_fwd(t->gpu, gy, gx, ROWS, F);
    compare(t, "swiglu", gy, y, ROWS * F);
    drop(t, gx);
    drop(t, gy);
    free(x);
    free(y);
}

static void test_embed(void **state)
{
    enum { V = 90, C = 200, ROWS = 40 };
    struct twin *t = *state;
    float *x = numbers(t, &rng, V * C, 1), y[ROWS * C];
    int32_t tokens[V], index[ROWS];
    void *gx = up_numbers(t, x, V * C), *gy = up_numbers(t, x, ROWS * C), *gtokens,
         *gindex;

    for (int i = 0; i < V; i++)
        tokens[i] = random_int(&rng, 0, V - 1);
    for (int r = 0; r < ROWS; r++)
        index[r] = random_int(&rng, 0, V - 1);
    gtokens = up(t, tokens, sizeof(tokens));
    gindex = up(t, index, sizeof(index));
    for (int with_index = 0; with_index < 2; with_index++) {
        t->cpu->ops->embed_fwd(t->cpu, y, x, tokens, with_index ? index : NULL, ROWS, C);
        t->gpu->ops->embed_fwd(t->gpu, gy, gx, gtokens, with_index ? gindex : NULL, ROWS,
                               C);
        compare(t, "embed", gy, y, ROWS * C);
    }
    t->cpu->ops->gather_fwd(t->cpu, y, x, index, ROWS, C);
    t->gpu->ops->gather_fwd(t->gpu, gy, gx, gindex, ROWS, C);
    compare(t, "gather", gy, y, ROWS * C);
    drop(t, gx);
    drop(t, gy);
    drop(t, gtokens);
    drop(t, gindex);
    free(x);
}

/* Large enough for several pieces of the upload; rounding is to nearest. */
static void test_upload(void **state)
{
    enum { N = 5000001 };
    struct twin *t = *state;
    float *x = random_floats(&rng, N, 1), *y;
    void *p = up_numbers(t, x, N);

    y = down_numbers(t, p, N);
    for (int i = 0; i < N; i++) {
        float near = t->dtype == DTYPE_BF16 ? fabsf(x[i]) / 256 : 0;
        if (fabsf(x[i] - y[i]) > near)
            fail_msg("element %d: %.9g went up as %.9g", i, x[i], y[i]);
    }
    t->gpu->ops->zero(t->gpu, p, N * 2);
    free(y);
    y = down_numbers(t, p, N / 2);
    for (int i = 0; i < N / 2; i++)
        assert_true(y[i] == 0);
    drop(t, p);
    free(x);
    free(y);
}

static void test_nothing(void **state)
{
    struct twin *t = *state;
    struct kernel_rows rows = {0};
    struct kernel_attn attn = {2, 1, 8, 1};
    void *huge;

    t->gpu->ops->gemm_fwd(t->gpu, NULL, NULL, NULL, NULL, false, 0, 8, 8);
    t->gpu->ops->head_fwd(t->gpu, NULL, NULL, NULL, 0, 8, 8);
    t->gpu->ops->norm_fwd(t->gpu, NULL, NULL, NULL, 1e-5f, 0, 1, 8, 8, 8);
    t->gpu->ops->rope_fwd(t->gpu, NULL, NULL, NULL, 0, 1, 8, 8);
    t->gpu->ops->swiglu_fwd(t->gpu, NULL, NULL, 0, 8);
    t->gpu->ops->embed_fwd(t->gpu, NULL, NULL, NULL, NULL, 0, 8);
    t->gpu->ops->gather_fwd(t->gpu, NULL, NULL, NULL, 0, 8);
    t->gpu->ops->kv_store(t->gpu, NULL, NULL, NULL, &rows, &attn);
    t->gpu->ops->attn_fwd(t->gpu, NULL, NULL, NULL, NULL, &rows, &attn);
    t->gpu->ops->logprob(t->gpu, NULL, NULL, NULL, 0, 8);
    t->gpu->ops->upload(t->gpu, NULL, NULL, 0);
    t->gpu->ops->upload_f32(t->gpu, NULL, NULL, 0);
    t->gpu->ops->zero(t->gpu, NULL, 0);
    t->gpu->ops->sync(t->gpu);
    assert_int_equal(kernel_error(t->gpu), 0);
    assert_int_equal(t->gpu->ops->mem_alloc(t->gpu, &huge, (size_t)1 << 50), -ENOMEM);
    assert_null(huge);
    t->gpu->ops->sync(t->gpu);
    assert_int_equal(kernel_error(t->gpu), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_F32(test_upload),   IN_BF16(test_upload), IN_F32(test_gemm),
        IN_BF16(test_gemm),    IN_F32(test_head),    IN_BF16(test_head),
        IN_F32(test_norm),     IN_BF16(test_norm),   IN_F32(test_rope),
        IN_BF16(test_rope),    IN_F32(test_embed),   IN_BF16(test_embed),
        IN_F32(test_swiglu),   IN_BF16(test_swiglu), IN_F32(test_nothing),
        IN_BF16(test_nothing),
    };

    if (device_count() == 0)
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
