/* The training kernels: CUDA against the CPU. Results start as NaN where all of them are
 * to be written, and what lies between rows must stay. */
#include "kernels/train.h"
#include "tests/kernels-twin.h"

#define EPS   1e-5f
#define EXACT 1e-5 /* bound of fp32 results whatever the type of what they are made of */

static uint64_t rng = 51;

/* An array on both sides: of the twin's type, or fp32 if so. */
struct both {
    float *cpu;
    void *gpu;
    size_t n;
    bool f32;
};

static struct both make(const struct twin *t, float *x, size_t n, bool f32)
{
    struct both b = {x, NULL, n, f32};

    b.gpu = f32 ? up(t, x, (n + 1) * sizeof(*x)) : up_numbers(t, x, n + 1);
    return b;
}

/* Random numbers that the twin's type holds exactly. */
static struct both values(const struct twin *t, size_t n, float scale)
{
    return make(t, numbers(t, &rng, n + 1, scale), n, false);
}

static struct both floats(const struct twin *t, size_t n, float scale)
{
    return make(t, random_floats(&rng, n + 1, scale), n, true);
}

/* NaN throughout. */
static struct both poison(const struct twin *t, size_t n, bool f32)
{
    float *x = test_alloc((n + 1) * sizeof(*x));

    memset(x, 0xff, (n + 1) * sizeof(*x));
    return make(t, x, n, f32);
}

static void unmake(const struct twin *t, struct both *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        drop(t, b[i].gpu);
        free(b[i].cpu);
    }
}

/* What the GPU has of it. */
static float *fetch(const struct twin *t, const struct both *b)
{
    float *x;

    if (!b->f32)
        return down_numbers(t, b->gpu, b->n);
    x = test_alloc(b->n * sizeof(*x));
    down(t, x, b->gpu, b->n * sizeof(*x));
    return x;
}

static void same(const struct twin *t, const char *what, const struct both *b,
                 double bound)
{
    float *x = fetch(t, b);

    compare_floats(t, what, x, b->cpu, b->n, bound);
    free(x);
}

static const struct kernel_train_ops *gpu_ops(const struct twin *t)
{
    return kernel_train(t->gpu);
}

static const struct kernel_train_ops *cpu_ops(const struct twin *t)
{
    return kernel_train(t->cpu);
}

/* ---- RMSNorm ---- */

struct norm_case {
    int rows, groups, C;
    size_t lddx, lddy, ldx;
    bool add, in_place;
};

static void check_norm(struct twin *t, struct norm_case c)
{
    struct both b[] = {
        values(t, c.rows * c.ldx, 2),  values(t, c.rows * c.lddy, 1),
        values(t, c.rows * c.lddx, 1), values(t, (size_t)c.C, 1),
        floats(t, (size_t)c.C, 1),
    };
    struct both *x = &b[0], *dy = &b[1], *dx = c.in_place ? dy : &b[2], *w = &b[3],
                *dw = &b[4];
    char what[120];

    snprintf(what, sizeof(what), "norm_bwd, %d rows, %d groups of %d, add %d", c.rows,
             c.groups, c.C, c.add);
    cpu_ops(t)->norm_bwd(t->cpu, dx->cpu, dw->cpu, dy->cpu, x->cpu, w->cpu, EPS, c.add,
                         c.rows, c.groups, c.C, c.lddx, c.lddy, c.ldx);
    gpu_ops(t)->norm_bwd(t->gpu, dx->gpu, dw->gpu, dy->gpu, x->gpu, w->gpu, EPS, c.add,
                         c.rows, c.groups, c.C, c.lddx, c.lddy, c.ldx);
    same(t, what, dx, t->bound);
    same(t, "norm_bwd's dweight", dw, EXACT);
    unmake(t, b, ARRAY_LEN(b));
}

static void test_norm(void **state)
{
    check_norm(*state, (struct norm_case){1, 1, 8, 8, 8, 8, false, false});
    check_norm(*state, (struct norm_case){70, 1, 576, 576, 576, 576, true, false});
    check_norm(*state, (struct norm_case){1300, 1, 600, 600, 600, 600, false, true});
    check_norm(*state, (struct norm_case){9, 1, 4096, 4100, 4104, 4096, true, false});
    check_norm(*state, (struct norm_case){33, 5, 128, 960, 960, 640, false, true});
    check_norm(*state, (struct norm_case){900, 9, 64, 960, 960, 768, false, true});
    check_norm(*state, (struct norm_case){5, 3, 24, 80, 100, 72, false, false});
    check_norm(*state, (struct norm_case){3, 1, 16384, 16384, 16384, 16384, true, true});
}

/* Half of the work gives the same bits as all of it; and once more does too. */
static void test_norm_halves(void **state)
{
    enum { ROWS = 700, C = 576, N = ROWS * C };
    struct twin *t = *state;
    struct both b[] = {values(t, N, 1),
                       values(t, N, 1),
                       values(t, C, 1),
                       poison(t, N, false),
                       poison(t, N, false),
                       make(t, test_alloc(2 * C * 4), C, true),
                       make(t, test_alloc(2 * C * 4), C, true)};
    float *x[2], *w[2];

    gpu_ops(t)->norm_bwd(t->gpu, b[3].gpu, b[5].gpu, b[0].gpu, b[1].gpu, b[2].gpu, EPS,
                         false, ROWS, 1, C, C, C, C);
    gpu_ops(t)->norm_bwd(t->gpu, b[4].gpu, NULL, b[0].gpu, b[1].gpu, b[2].gpu, EPS, false,
                         ROWS, 1, C, C, C, C);
    gpu_ops(t)->norm_bwd(t->gpu, NULL, b[6].gpu, b[0].gpu, b[1].gpu, b[2].gpu, EPS, false,
                         ROWS, 1, C, C, C, C);
    for (int i = 0; i < 2; i++) {
        x[i] = fetch(t, &b[3 + i]);
        w[i] = fetch(t, &b[5 + i]);
    }
    assert_memory_equal(x[0], x[1], N * sizeof(float));
    assert_memory_equal(w[0], w[1], C * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(x[i]);
        free(w[i]);
    }
    unmake(t, b, ARRAY_LEN(b));
}

/* ---- Matrix products ---- */

static void check_gemm(struct twin *t, int rows, int N, int K)
{
    size_t nx = (size_t)rows * K, ny = (size_t)rows * N, nw = (size_t)N * K;
    struct both b[] = {values(t, ny, 1), values(t, nw, 1),        values(t, nx, 1),
                       floats(t, nw, 1), floats(t, (size_t)N, 1), poison(t, nx, false),
                       values(t, nx, 1)};
    const struct kernel_train_ops *cpu = cpu_ops(t), *gpu = gpu_ops(t);
    char what[120];

    snprintf(what, sizeof(what), "gemm_bwd %d x %d x %d", rows, N, K);
    cpu->gemm_bwd_input(t->cpu, b[5].cpu, b[0].cpu, b[1].cpu, false, rows, N, K);
    gpu->gemm_bwd_input(t->gpu, b[5].gpu, b[0].gpu, b[1].gpu, false, rows, N, K);
    same(t, what, &b[5], t->bound);
    cpu->gemm_bwd_input(t->cpu, b[6].cpu, b[0].cpu, b[1].cpu, true, rows, N, K);
    gpu->gemm_bwd_input(t->gpu, b[6].gpu, b[0].gpu, b[1].gpu, true, rows, N, K);
    same(t, "gemm_bwd_input, added", &b[6], t->bound);
    cpu->gemm_bwd_weight(t->cpu, b[3].cpu, b[4].cpu, b[0].cpu, b[2].cpu, rows, N, K);
    gpu->gemm_bwd_weight(t->gpu, b[3].gpu, b[4].gpu, b[0].gpu, b[2].gpu, rows, N, K);
    same(t, "gemm_bwd_weight", &b[3], EXACT);
    same(t, "gemm_bwd_weight's dbias", &b[4], EXACT);
    cpu->gemm_bwd_weight(t->cpu, b[3].cpu, NULL, b[0].cpu, b[2].cpu, rows, N, K);
    gpu->gemm_bwd_weight(t->gpu, b[3].gpu, NULL, b[0].gpu, b[2].gpu, rows, N, K);
    same(t, "gemm_bwd_weight, added", &b[3], EXACT);
    unmake(t, b, ARRAY_LEN(b));
}

static void test_gemm(void **state)
{
    check_gemm(*state, 1, 8, 8);
    check_gemm(*state, 48, 192, 64);
    check_gemm(*state, 300, 960, 576);
    check_gemm(*state, 77, 40, 24);
    check_gemm(*state, 130, 1001, 64);
}

/* ---- Element by element ---- */

static void check_rope(struct twin *t, int rows, int heads, int D, size_t ld)
{
    enum { POSITIONS = 70 };
    float *table = random_floats(&rng, (size_t)POSITIONS * D, 1);
    int32_t *pos = test_alloc((size_t)rows * sizeof(*pos));
    struct both dx = values(t, rows * ld, 1);
    void *gpos, *gtable = up(t, table, (size_t)POSITIONS * D * sizeof(*table));

    for (int r = 0; r < rows; r++)
        pos[r] = random_int(&rng, 0, POSITIONS - 1);
    gpos = up(t, pos, (size_t)rows * sizeof(*pos));
    cpu_ops(t)->rope_bwd(t->cpu, dx.cpu, table, pos, rows, heads, D, ld);
    gpu_ops(t)->rope_bwd(t->gpu, dx.gpu, gtable, gpos, rows, heads, D, ld);
    same(t, "rope_bwd", &dx, t->bound);
    unmake(t, &dx, 1);
    drop(t, gpos);
    drop(t, gtable);
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
    enum { ROWS = 37, F = 1001, N = ROWS * F };
    struct twin *t = *state;
    struct both b[] = {values(t, 2 * N, 8), values(t, N, 1), poison(t, 2 * N, false)};

    for (int in_place = 0; in_place < 2; in_place++) {
        struct both *dx = in_place ? &b[0] : &b[2];
        cpu_ops(t)->swiglu_bwd(t->cpu, dx->cpu, b[1].cpu, b[0].cpu, ROWS, F);
        gpu_ops(t)->swiglu_bwd(t->gpu, dx->gpu, b[1].gpu, b[0].gpu, ROWS, F);
        same(t, in_place ? "swiglu_bwd in place" : "swiglu_bwd", dx, t->bound);
    }
    unmake(t, b, ARRAY_LEN(b));
}

static void test_embed(void **state)
{
    enum { V = 90, C = 200, ROWS = 64, UNIQUE = 4 };
    struct twin *t = *state;
    const int32_t token[] = {5, 0, 89, 7}, start[] = {0, 1, 40, 62, 64};
    int32_t *row = shuffled(&rng, ROWS);
    struct both b[] = {values(t, ROWS * C, 1), floats(t, V * C, 1)};
    void *gtoken = up(t, token, sizeof(token)), *gstart = up(t, start, sizeof(start));
    void *grow = up(t, row, ROWS * sizeof(*row));

    cpu_ops(t)->embed_bwd(t->cpu, b[1].cpu, token, start, row, b[0].cpu, UNIQUE, C);
    gpu_ops(t)->embed_bwd(t->gpu, b[1].gpu, gtoken, gstart, grow, b[0].gpu, UNIQUE, C);
    same(t, "embed_bwd", &b[1], EXACT);
    unmake(t, b, ARRAY_LEN(b));
    drop(t, gtoken);
    drop(t, gstart);
    drop(t, grow);
    free(row);
}

static void test_copy_rows(void **state)
{
    enum { ROWS = 9, N = 40, LDX = 41, LDY = 56 };
    struct twin *t = *state;
    struct both b[] = {values(t, ROWS * LDX, 1), values(t, ROWS * LDY, 1)};

    cpu_ops(t)->copy_rows(t->cpu, b[1].cpu, b[0].cpu, ROWS, N, LDY, LDX);
    gpu_ops(t)->copy_rows(t->gpu, b[1].gpu, b[0].gpu, ROWS, N, LDY, LDX);
    same(t, "copy_rows", &b[1], 0);
    cpu_ops(t)->copy_rows(t->cpu, b[1].cpu, b[0].cpu, ROWS, N, N, N);
    gpu_ops(t)->copy_rows(t->gpu, b[1].gpu, b[0].gpu, ROWS, N, N, N);
    same(t, "copy_rows without gaps", &b[1], 0);
    unmake(t, b, ARRAY_LEN(b));
}

/* ---- Cross-entropy ---- */

static int32_t run_loss(struct twin *t, struct both *b, const int32_t *target, int rows,
                        int V)
{
    void *gtarget = up(t, target, (size_t)rows * sizeof(*target)), *gbad;
    int32_t bad[2] = {0, 0};

    gbad = up(t, bad, sizeof(bad[0]));
    cpu_ops(t)->cross_entropy(t->cpu, b[1].cpu, b[2].cpu, &bad[0], b[0].cpu, target,
                              0.25f, rows, V);
    gpu_ops(t)->cross_entropy(t->gpu, b[1].gpu, b[2].gpu, gbad, b[0].gpu, gtarget, 0.25f,
                              rows, V);
    down(t, &bad[1], gbad, sizeof(bad[1]));
    assert_int_equal(!bad[0], !bad[1]);
    drop(t, gtarget);
    drop(t, gbad);
    return bad[1];
}

static void check_loss(struct twin *t, int rows, int V)
{
    size_t n = (size_t)rows * V;
    struct both b[] = {floats(t, n, 9), poison(t, (size_t)rows, true),
                       poison(t, n, false)};
    int32_t *target = test_alloc((size_t)rows * sizeof(*target));

    for (int r = 0; r < rows; r++)
        target[r] = r % 4 == 2 ? -1 : random_int(&rng, 0, V - 1);
    assert_int_equal(run_loss(t, b, target, rows, V), 0);
    same(t, "cross_entropy's loss", &b[1], 1e-6);
    same(t, "cross_entropy's dlogits", &b[2], t->bound);
    if (t->dtype == DTYPE_F32) {
        struct both in_place[] = {b[0], b[1], b[0]};
        run_loss(t, in_place, target, rows, V);
        same(t, "cross_entropy in place", &b[0], t->bound);
    }
    unmake(t, b, ARRAY_LEN(b));
    free(target);
}

static void test_loss(void **state)
{
    check_loss(*state, 13, 2);
    check_loss(*state, 1, 515);
    check_loss(*state, 9, 515);
    check_loss(*state, 5, 49152);
}

/* The flag is set for what has no finite loss, and not for what only cannot be drawn. */
static void test_loss_bad(void **state)
{
    static const float damage[] = {NAN, INFINITY, -INFINITY};
    const int32_t targets[][2] = {{1, 2}, {1, -1}};
    struct twin *t = *state;

    for (size_t i = 0; i < ARRAY_LEN(damage); i++) {
        for (size_t j = 0; j < 2; j++) {
            float *x = random_floats(&rng, 6 + 1, 1);
            x[4] = damage[i];
            struct both b[] = {make(t, x, 6, true), poison(t, 2, true),
                               poison(t, 6, false)};
            int32_t bad = run_loss(t, b, targets[j], 2, 3);
            assert_int_equal(bad != 0, j == 0 && i < 2);
            unmake(t, b, ARRAY_LEN(b));
        }
    }
}

/* ---- The optimizer ---- */

static void check_adamw(struct twin *t, size_t n)
{
    struct kernel_adamw p = {.lr = 1e-2f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .correction1 = 0.19f,
                             .correction2 = 0.0975f,
                             .scale = 0.5f};
    struct both b[] = {floats(t, n, 1), floats(t, n, 1), floats(t, n, 1), floats(t, n, 1),
                       poison(t, n, false)};
    float *weight, *master;

    for (size_t i = 0; i < n; i++)
        b[2].cpu[i] = fabsf(b[2].cpu[i]);
    t->gpu->ops->upload(t->gpu, b[2].gpu, b[2].cpu, n * sizeof(float));
    cpu_ops(t)->adamw(t->cpu, b[0].cpu, b[4].cpu, b[1].cpu, b[2].cpu, b[3].cpu, &p, n);
    gpu_ops(t)->adamw(t->gpu, b[0].gpu, b[4].gpu, b[1].gpu, b[2].gpu, b[3].gpu, &p, n);
    same(t, "adamw's master weights", &b[0], 1e-6);
    same(t, "adamw's m", &b[1], 1e-6);
    same(t, "adamw's v", &b[2], 1e-6);
    same(t, "adamw's gradients", &b[3], 0);
    weight = fetch(t, &b[4]);
    master = fetch(t, &b[0]);
    for (size_t i = 0; i < n; i++) {
        float near = t->dtype == DTYPE_BF16 ? fabsf(master[i]) / 256 : 0;
        if (!(fabsf(weight[i] - master[i]) <= near))
            fail_msg("adamw: weight %zu is %.9g, not %.9g", i, weight[i], master[i]);
    }
    free(weight);
    free(master);
    unmake(t, b, ARRAY_LEN(b));
}

static void test_adamw(void **state)
{
    check_adamw(*state, 3);
    check_adamw(*state, 100003);
}

static void test_sums(void **state)
{
    static const size_t sizes[] = {1, 4096, 4097, 3000001};
    struct twin *t = *state;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct both b[] = {floats(t, sizes[i], 1), floats(t, sizes[i], 1)};
        double sum[2] = {7, 7};
        void *gsum = up(t, sum, sizeof(sum[0]));
        cpu_ops(t)->sum_squares(t->cpu, &sum[0], b[0].cpu, sizes[i]);
        gpu_ops(t)->sum_squares(t->gpu, gsum, b[0].gpu, sizes[i]);
        down(t, &sum[1], gsum, sizeof(sum[1]));
        assert_true(fabs(sum[1] - sum[0]) <= 1e-12 * sum[0]);
        cpu_ops(t)->accumulate(t->cpu, b[0].cpu, b[1].cpu, sizes[i]);
        gpu_ops(t)->accumulate(t->gpu, b[0].gpu, b[1].gpu, sizes[i]);
        same(t, "accumulate", &b[0], 0);
        drop(t, gsum);
        unmake(t, b, ARRAY_LEN(b));
    }
}

/* Whatever has no rows does nothing. */
static void test_nothing(void **state)
{
    struct twin *t = *state;
    const struct kernel_train_ops *k = gpu_ops(t);
    const struct kernel_rows rows = {0};
    const struct kernel_attn attn = {2, 1, 8, 1};
    const struct kernel_adamw p = {0};

    k->norm_bwd(t->gpu, NULL, NULL, NULL, NULL, NULL, EPS, true, 0, 1, 8, 8, 8, 8);
    k->gemm_bwd_input(t->gpu, NULL, NULL, NULL, false, 0, 8, 8);
    k->gemm_bwd_weight(t->gpu, NULL, NULL, NULL, NULL, 0, 8, 8);
    k->rope_bwd(t->gpu, NULL, NULL, NULL, 0, 1, 8, 8);
    k->attn_train_fwd(t->gpu, NULL, NULL, NULL, &rows, &attn);
    k->attn_bwd(t->gpu, NULL, NULL, NULL, NULL, NULL, NULL, &rows, &attn);
    k->swiglu_bwd(t->gpu, NULL, NULL, NULL, 0, 8);
    k->embed_bwd(t->gpu, NULL, NULL, NULL, NULL, NULL, 0, 8);
    k->cross_entropy(t->gpu, NULL, NULL, NULL, NULL, NULL, 1, 0, 8);
    k->sum_squares(t->gpu, NULL, NULL, 0);
    k->adamw(t->gpu, NULL, NULL, NULL, NULL, NULL, &p, 0);
    k->copy_rows(t->gpu, NULL, NULL, 0, 8, 8, 8);
    k->accumulate(t->gpu, NULL, NULL, 0);
    t->gpu->ops->sync(t->gpu);
    assert_int_equal(kernel_error(t->gpu), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_F32(test_norm),         IN_BF16(test_norm),      IN_F32(test_norm_halves),
        IN_BF16(test_norm_halves), IN_F32(test_gemm),       IN_BF16(test_gemm),
        IN_F32(test_rope),         IN_BF16(test_rope),      IN_F32(test_swiglu),
        IN_BF16(test_swiglu),      IN_F32(test_embed),      IN_BF16(test_embed),
        IN_F32(test_copy_rows),    IN_BF16(test_copy_rows), IN_F32(test_loss),
        IN_BF16(test_loss),        IN_F32(test_loss_bad),   IN_BF16(test_loss_bad),
        IN_F32(test_adamw),        IN_BF16(test_adamw),     IN_F32(test_sums),
        IN_BF16(test_sums),        IN_F32(test_nothing),    IN_BF16(test_nothing),
    };

    if (device_count() == 0)
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
