/* The CPU kernels of the backward pass, but for attention, against central differences of
 * plain forward loops in double precision. */
#include "tests/kernels-train.h"

#define BOUND 1e-6
#define SUM   3e-6 /* where the kernel adds to something of the same size */
#define GAP   12345.0f

static struct kernel_ctx *ctx;
static const struct kernel_train_ops *ops;
static uint64_t rng = 3;

static int setup(void **state)
{
    int err = kernel_cpu_create(&ctx, 2, NULL);

    (void)state;
    if (!err)
        ops = kernel_train(ctx);
    return err;
}

static int teardown(void **state)
{
    int err = kernel_error(ctx);

    (void)state;
    kernel_destroy(ctx);
    return err;
}

/* ---- RMSNorm ---- */

#define EPS 1e-5f

struct norm_case {
    int vectors, C; /* rows * groups vectors */
    double *x, *w, *dy;
};

static double norm_loss(const void *arg)
{
    const struct norm_case *n = arg;
    double loss = 0;

    for (int v = 0; v < n->vectors; v++) {
        const double *x = n->x + (size_t)v * n->C, *dy = n->dy + (size_t)v * n->C;
        double mean = 0;
        for (int c = 0; c < n->C; c++)
            mean += x[c] * x[c] / n->C;
        for (int c = 0; c < n->C; c++)
            loss += dy[c] * n->w[c] * x[c] / sqrt(mean + (double)EPS);
    }
    return loss;
}

/* What check_norm varies beside the sizes. */
struct norm_mode {
    bool add, in_place;
    size_t gap_dx, gap_dy, gap_x;
};

static void check_norm(int rows, int groups, int C, struct norm_mode m)
{
    size_t width = (size_t)groups * C, n = rows * width;
    size_t lddx = width + m.gap_dx, lddy = width + m.gap_dy, ldx = width + m.gap_x;
    float *x = random_floats(&rng, n, 2), *w = random_floats(&rng, (size_t)C, 1);
    float *dy = random_floats(&rng, n, 1), *dw = random_floats(&rng, (size_t)C, 1);
    float *before = random_floats(&rng, n, 1), *dw_before = copy_of(dw, (size_t)C);
    float *wide_x = spread(x, rows, width, ldx, GAP), *got;
    float *wide_dy = spread(dy, rows, width, lddy, GAP);
    float *wide_dx = m.in_place ? wide_dy : spread(before, rows, width, lddx, GAP);
    struct norm_case c = {rows * groups, C, doubles(x, n), doubles(w, (size_t)C),
                          doubles(dy, n)};

    ops->norm_bwd(ctx, wide_dx, dw, wide_dy, wide_x, w, EPS, m.add, rows, groups, C, lddx,
                  lddy, ldx);
    got = collect(wide_dx, rows, width, lddx, GAP);
    if (m.add)
        take_away(got, before, n);
    take_away(dw, dw_before, (size_t)C);
    check_gradient("norm: dx", norm_loss, &c, c.x, got, n, SUM);
    check_gradient("norm: dweight", norm_loss, &c, c.w, dw, (size_t)C, SUM);
    for (int i = 0; i < 3; i++)
        free((double *[]){c.x, c.w, c.dy}[i]);
    for (int i = 0; i < 8; i++)
        free((float *[]){x, w, dy, dw, before, dw_before, wide_x, wide_dy}[i]);
    if (!m.in_place)
        free(wide_dx);
    free(got);
}

static void test_norm(void **state)
{
    (void)state;
    check_norm(1, 1, 8, (struct norm_mode){0});
    check_norm(5, 1, 30, (struct norm_mode){0});
    check_norm(7, 1, 64, (struct norm_mode){.add = true});
    check_norm(9, 1, 33, (struct norm_mode){.in_place = true});
    check_norm(70, 1, 40, (struct norm_mode){.add = true, .gap_dx = 3, .gap_x = 1});
    check_norm(4, 3, 24, (struct norm_mode){.in_place = true, .gap_dx = 9, .gap_dy = 9});
    check_norm(5, 2, 16, (struct norm_mode){.gap_dx = 8, .gap_dy = 5, .gap_x = 20});
    check_norm(3, 1, 700, (struct norm_mode){0});
    for (int i = 0; i < 20; i++)
        check_norm(random_int(&rng, 1, 80), random_int(&rng, 1, 4),
                   random_int(&rng, 4, 40),
                   (struct norm_mode){.add = i & 1, .gap_dx = i % 3, .gap_x = i % 5});
}

/* Half of the work gives the same bits as all of it. */
static void test_norm_halves(void **state)
{
    enum { ROWS = 75, C = 50 };
    float *x = random_floats(&rng, ROWS * C, 1), *dy = random_floats(&rng, ROWS * C, 1);
    float *w = random_floats(&rng, C, 1), *dx = test_alloc(ROWS * C * sizeof(*dx));
    float *half = test_alloc(ROWS * C * sizeof(*half)), dw[C] = {0}, half_w[C] = {0};

    (void)state;
    ops->norm_bwd(ctx, dx, dw, dy, x, w, EPS, false, ROWS, 1, C, C, C, C);
    ops->norm_bwd(ctx, half, NULL, dy, x, w, EPS, false, ROWS, 1, C, C, C, C);
    ops->norm_bwd(ctx, NULL, half_w, dy, x, w, EPS, false, ROWS, 1, C, C, C, C);
    assert_memory_equal(half, dx, ROWS * C * sizeof(*dx));
    assert_memory_equal(half_w, dw, sizeof(dw));
    for (int i = 0; i < 5; i++)
        free((float *[]){x, dy, w, dx, half}[i]);
}

/* ---- Matrix products ---- */

struct gemm_case {
    int rows, N, K;
    double *x, *w, *b, *dy;
};

static double gemm_loss(const void *arg)
{
    const struct gemm_case *g = arg;
    double loss = 0;

    for (int r = 0; r < g->rows; r++) {
        for (int n = 0; n < g->N; n++) {
            double y = g->b[n];
            for (int k = 0; k < g->K; k++)
                y += g->x[(size_t)r * g->K + k] * g->w[(size_t)n * g->K + k];
            loss += y * g->dy[(size_t)r * g->N + n];
        }
    }
    return loss;
}

/* The gradients by plain loops, added to what is there. */
static void plain_gemm_bwd(const struct gemm_case *g, double *dx, double *dw, double *db)
{
    for (int r = 0; r < g->rows; r++) {
        for (int n = 0; n < g->N; n++) {
            double dy = g->dy[(size_t)r * g->N + n];
            db[n] += dy;
            for (int k = 0; k < g->K; k++) {
                dx[(size_t)r * g->K + k] += dy * g->w[(size_t)n * g->K + k];
                dw[(size_t)n * g->K + k] += dy * g->x[(size_t)r * g->K + k];
            }
        }
    }
}

static void check_gemm(int rows, int N, int K, bool add, bool differences)
{
    size_t nx = (size_t)rows * K, nw = (size_t)N * K, ny = (size_t)rows * N;
    float *x = random_floats(&rng, nx, 1), *w = random_floats(&rng, nw, 1);
    float *dy = random_floats(&rng, ny, 1), *dx = random_floats(&rng, nx, 1);
    float *dw = random_floats(&rng, nw, 1), *db = random_floats(&rng, (size_t)N, 1);
    struct gemm_case g = {
        rows,           N, K, doubles(x, nx), doubles(w, nw), doubles(db, (size_t)N),
        doubles(dy, ny)};
    double *ref_x = add ? doubles(dx, nx) : test_alloc(nx * sizeof(double));
    double *ref_w = doubles(dw, nw), *ref_b = doubles(db, (size_t)N);

    if (differences) {
        memset(dw, 0, nw * sizeof(*dw));
        memset(db, 0, (size_t)N * sizeof(*db));
    }
    ops->gemm_bwd_input(ctx, dx, dy, w, add && !differences, rows, N, K);
    ops->gemm_bwd_weight(ctx, dw, db, dy, x, rows, N, K);
    if (differences) {
        check_gradient("gemm: dx", gemm_loss, &g, g.x, dx, nx, BOUND);
        check_gradient("gemm: dw", gemm_loss, &g, g.w, dw, nw, BOUND);
        check_gradient("gemm: dbias", gemm_loss, &g, g.b, db, (size_t)N, BOUND);
    } else {
        plain_gemm_bwd(&g, ref_x, ref_w, ref_b);
        check_error("gemm: dx", dx, ref_x, nx, BOUND);
        check_error("gemm: dw", dw, ref_w, nw, BOUND);
        check_error("gemm: dbias", db, ref_b, (size_t)N, BOUND);
    }
    for (int i = 0; i < 6; i++)
        free((float *[]){x, w, dy, dx, dw, db}[i]);
    for (int i = 0; i < 7; i++)
        free((double *[]){g.x, g.w, g.b, g.dy, ref_x, ref_w, ref_b}[i]);
}

static void test_gemm(void **state)
{
    static const int shapes[][3] = {
        {1, 1, 1},     {1, 7, 3},     {3, 65, 31},   {48, 192, 64}, {33, 65, 17},
        {257, 300, 8}, {300, 70, 97}, {100, 1, 900}, {5, 1000, 12}, {520, 33, 200},
    };

    (void)state;
    check_gemm(3, 5, 4, false, true);
    check_gemm(9, 6, 11, false, true);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], false, false);
        check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], true, false);
    }
}

/* Without a bias nothing but dw is written. */
static void test_gemm_no_bias(void **state)
{
    const float dy[] = {2, 3}, x[] = {5};
    float dw[2] = {1, 1};

    (void)state;
    ops->gemm_bwd_weight(ctx, dw, NULL, dy, x, 1, 2, 1);
    assert_true(dw[0] == 11 && dw[1] == 16);
}

/* ---- RoPE ---- */

enum { POSITIONS = 50 };

struct rope_case {
    int rows, heads, D;
    double *x, *dy; /* (rows, heads * D) */
    const float *cos_sin;
    const int32_t *pos;
};

static double rope_loss(const void *arg)
{
    const struct rope_case *p = arg;
    int half = p->D / 2;
    double loss = 0;

    for (int i = 0; i < p->rows * p->heads * half; i++) {
        int vector = i / half, j = i % half;
        const float *cs = p->cos_sin + (p->pos[vector / p->heads] * half + j) * 2;
        double a = p->x[vector * p->D + j], b = p->x[vector * p->D + j + half];
        loss += p->dy[vector * p->D + j] * (a * (double)cs[0] - b * (double)cs[1]);
        loss += p->dy[vector * p->D + j + half] * (b * (double)cs[0] + a * (double)cs[1]);
    }
    return loss;
}

static void check_rope(int rows, int heads, int D, size_t gap)
{
    size_t width = (size_t)heads * D, n = rows * width;
    float *x = random_floats(&rng, n, 1), *dy = random_floats(&rng, n, 1);
    float *table = random_floats(&rng, (size_t)POSITIONS * D, 1), *got;
    float *wide = spread(dy, rows, width, width + gap, GAP);
    int32_t *pos = test_alloc((size_t)rows * sizeof(*pos));
    struct rope_case c = {rows, heads, D, doubles(x, n), doubles(dy, n), table, pos};

    for (int r = 0; r < rows; r++)
        pos[r] = random_int(&rng, 0, POSITIONS - 1);
    ops->rope_bwd(ctx, wide, table, pos, rows, heads, D, width + gap);
    got = collect(wide, rows, width, width + gap, GAP);
    check_gradient("rope: dx", rope_loss, &c, c.x, got, n, BOUND);
    for (int i = 0; i < 5; i++)
        free((float *[]){x, dy, table, got, wide}[i]);
    free(pos);
    free(c.x);
    free(c.dy);
}

static void test_rope(void **state)
{
    (void)state;
    check_rope(1, 1, 2, 0);
    check_rope(7, 3, 64, 0);
    check_rope(40, 9, 128, 6 * 128);
    check_rope(3, 2, 24, 7);
}

/* ---- SwiGLU ---- */

struct swiglu_case {
    int rows, F;
    double *x, *dy; /* (rows, 2 F), (rows, F) */
};

static double swiglu_loss(const void *arg)
{
    const struct swiglu_case *s = arg;
    double loss = 0;

    for (int i = 0; i < s->rows * s->F; i++) {
        const double *x = s->x + (size_t)(i / s->F) * 2 * s->F + i % s->F;
        loss += s->dy[i] * x[0] / (1 + exp(-x[0])) * x[s->F];
    }
    return loss;
}

static void check_swiglu(int rows, int F, bool in_place)
{
    size_t n = (size_t)rows * F;
    float *x = random_floats(&rng, 2 * n, 8), *dy = random_floats(&rng, n, 1), *dx;
    struct swiglu_case c = {rows, F, NULL, doubles(dy, n)};

    x[0] = 200;
    x[(size_t)(rows - 1) * 2 * F + F - 1] = -200;
    c.x = doubles(x, 2 * n);
    dx = in_place ? x : random_floats(&rng, 2 * n, 1);
    ops->swiglu_bwd(ctx, dx, dy, x, rows, F);
    check_gradient("swiglu", swiglu_loss, &c, c.x, dx, 2 * n, BOUND);
    if (!in_place)
        free(dx);
    free(x);
    free(dy);
    free(c.x);
    free(c.dy);
}

static void test_swiglu(void **state)
{
    static const int widths[] = {1, 15, 16, 17, 100, 1000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        check_swiglu(2, widths[i], false);
        check_swiglu(13, widths[i], true);
    }
}

/* ---- Embedding ---- */

static void test_embed(void **state)
{
    enum { V = 9, C = 37, ROWS = 60 };
    float *dy = random_floats(&rng, ROWS * C, 1), *table = random_floats(&rng, V * C, 1);
    double *ref = doubles(table, V * C);
    int32_t token[V], start[V + 1] = {0}, row[ROWS], of_row[ROWS], unique = 0, next = 0;

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        of_row[r] = random_int(&rng, 0, V - 2); /* the last token has no row */
        for (int c = 0; c < C; c++)
            ref[of_row[r] * C + c] += dy[r * C + c];
    }
    for (int v = V - 1; v >= 0; v--) {
        int first = next;
        for (int r = 0; r < ROWS; r++) {
            if (of_row[r] == v)
                row[next++] = r;
        }
        if (next == first)
            continue;
        token[unique++] = v;
        start[unique] = next;
    }
    ops->embed_bwd(ctx, table, token, start, row, dy, unique, C);
    check_error("embed", table, ref, V * C, BOUND);
    free(dy);
    free(table);
    free(ref);
}

/* ---- Cross-entropy ---- */

struct loss_case {
    int rows, V;
    double scale, *x; /* (rows, V) */
    const int32_t *target;
};

static double row_loss(const struct loss_case *c, int row)
{
    const double *x = c->x + (size_t)row * c->V;
    double sum = 0;

    if (c->target[row] < 0)
        return 0;
    for (int i = 0; i < c->V; i++)
        sum += exp(x[i] - x[c->target[row]]);
    return log(sum);
}

static double mean_loss(const void *arg)
{
    const struct loss_case *c = arg;
    double loss = 0;

    for (int r = 0; r < c->rows; r++)
        loss += c->scale * row_loss(c, r);
    return loss;
}

static void check_loss(int rows, int V, bool in_place)
{
    size_t n = (size_t)rows * V;
    float *x = random_floats(&rng, n, 9), *loss = random_floats(&rng, (size_t)rows, 1);
    float *dx = in_place ? x : random_floats(&rng, n, 1);
    int32_t *target = test_alloc((size_t)rows * sizeof(*target)), bad = 0;
    struct loss_case c = {rows, V, 0.125, doubles(x, n), target};

    for (int r = 0; r < rows; r++)
        target[r] = r % 4 == 2 ? -1 : random_int(&rng, 0, V - 1);
    ops->cross_entropy(ctx, loss, dx, &bad, x, target, 0.125f, rows, V);
    for (int r = 0; r < rows; r++) {
        double want = row_loss(&c, r);
        if (fabs(loss[r] - want) > 1e-6 * (1 + fabs(want)))
            fail_msg("loss of row %d is %.9g, not %.9g", r, loss[r], want);
        for (int i = 0; target[r] < 0 && i < V; i++)
            assert_true(dx[(size_t)r * V + i] == 0);
    }
    check_gradient("loss", mean_loss, &c, c.x, dx, n, SUM);
    assert_int_equal(bad, 0);
    if (!in_place)
        free(dx);
    free(x);
    free(loss);
    free(target);
    free(c.x);
}

static void test_loss(void **state)
{
    (void)state;
    check_loss(1, 2, false);
    check_loss(5, 19, true);
    check_loss(9, 16, false);
    check_loss(12, 1000, true);
}

static void test_loss_bad(void **state)
{
    static const float damage[] = {NAN, INFINITY, -INFINITY};
    int32_t target[] = {1, 2};
    float loss[2], dx[6];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(damage); i++) {
        float x[] = {1, 2, 3, 4, 5, 6};
        int32_t bad = 0;
        x[4] = damage[i];
        ops->cross_entropy(ctx, loss, dx, &bad, x, target, 1, 2, 3);
        assert_int_equal(bad != 0, !isinf(damage[i]) || damage[i] > 0);
        assert_true(isfinite(loss[0]));
        x[5] = -INFINITY;
        bad = 0;
        ops->cross_entropy(ctx, loss, dx, &bad, x, target, 1, 2, 3);
        assert_int_not_equal(bad, 0);
        target[1] = -1;
        bad = 0;
        ops->cross_entropy(ctx, loss, dx, &bad, x, target, 1, 2, 3);
        assert_int_equal(bad, 0);
        target[1] = 2;
    }
}

/* Whatever has no rows does nothing. */
static void test_nothing(void **state)
{
    float y[4] = {1, 2, 3, 4};
    const float same[4] = {1, 2, 3, 4};
    const int32_t start[] = {0};
    int32_t bad = 0;

    (void)state;
    ops->norm_bwd(ctx, y, y, y, y, y, EPS, true, 0, 1, 4, 4, 4, 4);
    ops->gemm_bwd_input(ctx, y, y, y, false, 0, 2, 2);
    ops->gemm_bwd_weight(ctx, y, y, y, y, 0, 2, 2);
    ops->rope_bwd(ctx, y, y, NULL, 0, 1, 4, 4);
    ops->swiglu_bwd(ctx, y, y, y, 0, 2);
    ops->embed_bwd(ctx, y, NULL, start, NULL, y, 0, 4);
    ops->cross_entropy(ctx, y, y, &bad, y, NULL, 1, 0, 4);
    assert_memory_equal(y, same, sizeof(y));
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),     cmocka_unit_test(test_norm_halves),
        cmocka_unit_test(test_gemm),     cmocka_unit_test(test_gemm_no_bias),
        cmocka_unit_test(test_rope),     cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_embed),    cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_bad), cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
