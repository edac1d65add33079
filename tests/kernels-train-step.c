/* The optimizer's kernels on the CPU against loops in double precision, the inner loops
 * of training for every kind of processor, and the same bits from any number of
 * threads. */
#include "kernels/vec.h"
#include "tests/kernels-train.h"

#define BOUND 1e-6

static struct kernel_ctx *ctx;
static const struct kernel_train_ops *ops;
static uint64_t rng = 9;

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

/* ---- AdamW ---- */

/* Parameters with their state in double precision. */
struct plain_adamw {
    double x, m, v;
};

static void plain_step(struct plain_adamw *a, double g, const struct kernel_adamw *p)
{
    double b1 = p->beta1, b2 = p->beta2;

    g *= p->scale;
    a->m = b1 * a->m + (1 - b1) * g;
    a->v = b2 * a->v + (1 - b2) * g * g;
    a->x *= 1 - (double)p->lr * p->weight_decay;
    a->x -= p->lr * a->m / p->correction1 / (sqrt(a->v / p->correction2) + p->eps);
}

static struct kernel_adamw adamw_at(int step)
{
    struct kernel_adamw p = {.lr = 1e-3f * (float)(1 + step % 3),
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .scale = step % 2 ? 0.25f : 1.0f};

    p.correction1 = (float)(1 - pow((double)p.beta1, step));
    p.correction2 = (float)(1 - pow((double)p.beta2, step));
    return p;
}

/* Many steps; what the steps have moved is compared, not only where they have led. */
static void check_adamw(size_t n, int steps, bool with_weight)
{
    float *x = random_floats(&rng, n, 1), *m = test_alloc(n * sizeof(*m));
    float *v = test_alloc(n * sizeof(*v)), *g = test_alloc(n * sizeof(*g));
    float *weight = with_weight ? random_floats(&rng, n, 1) : x, *moved = copy_of(x, n);
    struct plain_adamw *ref = test_alloc(n * sizeof(*ref));
    double *want = test_alloc(n * sizeof(*want));

    for (size_t i = 0; i < n; i++)
        ref[i].x = x[i];
    for (int step = 1; step <= steps; step++) {
        struct kernel_adamw p = adamw_at(step);
        for (size_t i = 0; i < n; i++) {
            g[i] = random_float(&rng, 1) + (float)(i % 3) - 1;
            plain_step(&ref[i], g[i], &p);
        }
        ops->adamw(ctx, x, weight, m, v, g, &p, n);
        for (size_t i = 0; i < n; i++)
            assert_true(g[i] == 0 && weight[i] == x[i]);
    }
    for (size_t i = 0; i < n; i++) {
        want[i] = ref[i].x - moved[i];
        moved[i] = x[i] - moved[i];
    }
    check_error("adamw", moved, want, n, 2e-5);
    for (size_t i = 0; i < n; i++) {
        moved[i] = m[i];
        want[i] = ref[i].m;
    }
    check_error("adamw: m", moved, want, n, BOUND);
    for (size_t i = 0; i < n; i++) {
        moved[i] = v[i];
        want[i] = ref[i].v;
    }
    check_error("adamw: v", moved, want, n, BOUND);
    if (with_weight)
        free(weight);
    for (int i = 0; i < 5; i++)
        free((float *[]){x, m, v, g, moved}[i]);
    free(ref);
    free(want);
}

static void test_adamw(void **state)
{
    (void)state;
    check_adamw(1, 1, false);
    check_adamw(33, 1, true);
    check_adamw(100, 100, false);
    check_adamw(40001, 10, true);
}

/* Gradients of nothing only decay the weights; a first step moves each by lr. */
static void test_adamw_first(void **state)
{
    struct kernel_adamw p = adamw_at(1);
    float x[2] = {1, 2}, m[2] = {0}, v[2] = {0}, g[2] = {0, -1e-3f};

    (void)state;
    p.lr = 0.5f;
    ops->adamw(ctx, x, x, m, v, g, &p, 2);
    assert_true(fabsf(x[0] - 0.95f) < 1e-6f);
    assert_true(fabsf(x[1] - (1.9f + 0.5f)) < 1e-4f);
}

static void test_sum_squares(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 100, 16384, 16385, 100003};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        float *x = random_floats(&rng, sizes[i], 3);
        double sum = 7;
        long double want = 7;
        for (size_t j = 0; j < sizes[i]; j++)
            want += (long double)x[j] * x[j];
        ops->sum_squares(ctx, &sum, x, sizes[i]);
        assert_true(fabs(sum - (double)want) <= 1e-13 * sum);
        free(x);
    }
}

static void test_accumulate(void **state)
{
    enum { N = 40003 };
    float *x = random_floats(&rng, N, 1), *y = random_floats(&rng, N, 1);
    float *before = copy_of(y, N);

    (void)state;
    ops->accumulate(ctx, y, x, N);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == before[i] + x[i]);
    free(x);
    free(y);
    free(before);
}

static void test_copy_rows(void **state)
{
    enum { ROWS = 5, N = 7, LDX = 9, LDY = 12 };
    float *x = random_floats(&rng, ROWS * N, 1);
    float *from = spread(x, ROWS, N, LDX, 3), *to = spread(from, ROWS, N, LDY, 8), *got;

    (void)state;
    ops->copy_rows(ctx, to, from, 0, N, LDY, LDX);
    assert_true(to[N] == 8 && to[0] == x[0]);
    memset(to, 0, N * sizeof(*to));
    ops->copy_rows(ctx, to, from, ROWS, N, LDY, LDX);
    got = collect(to, ROWS, N, LDY, 8);
    assert_memory_equal(got, x, ROWS * N * sizeof(*x));
    ops->copy_rows(ctx, to, x, ROWS, N, N, N);
    assert_memory_equal(to, x, ROWS * N * sizeof(*x));
    for (int i = 0; i < 4; i++)
        free((float *[]){x, from, to, got}[i]);
}

/* ---- The inner loops ---- */

struct arrays {
    size_t n;
    float *a, *b, *c, *y; /* (n) */
    double *ref;
};

static void check_sums(const struct vec_ops *vec, const struct arrays *s)
{
    double three = 0, two = 0, size = 0;

    for (size_t i = 0; i < s->n; i++) {
        double x = (double)s->a[i] * s->b[i] * s->c[i];
        three += x;
        size += fabs(x);
        two += (double)s->a[i] * s->a[i];
    }
    assert_true(fabs(vec->dot_three(s->a, s->b, s->c, s->n) - three) <= 1e-6 * size);
    assert_true(fabs(vec->square_total(s->a, s->n) - two) <= 1e-13 * two);
}

static void check_loops(const struct vec_ops *vec, const struct arrays *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->ref[i] = (double)s->y[i] + s->a[i];
    vec->add(s->y, s->a, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
    for (size_t i = 0; i < s->n; i++)
        s->ref[i] = s->y[i] + (double)s->a[i] * s->b[i] * 0.5;
    vec->add_product(s->y, s->a, s->b, 0.5f, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
    for (size_t i = 0; i < s->n; i++)
        s->ref[i] = s->a[i] * ((double)s->y[i] - 0.25) * 3;
    vec->softmax_bwd(s->y, s->a, 0.25f, 3, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
    for (size_t i = 0; i < s->n; i++)
        s->ref[i] = exp((double)s->a[i] - 2) * 3;
    vec->exp_scaled(s->y, s->a, 2, 3, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
}

static void check_steps(const struct vec_ops *vec, const struct arrays *s)
{
    struct kernel_adamw p = adamw_at(3);
    double *dup = test_alloc(s->n * sizeof(*dup));
    float *up = copy_of(s->c, s->n);

    for (size_t i = 0; i < s->n; i++) {
        double gate = s->b[i], sigma = 1 / (1 + exp(-gate));
        s->ref[i] = (double)s->a[i] * s->c[i] * sigma * (1 + gate * (1 - sigma));
        dup[i] = s->a[i] * gate * sigma;
    }
    vec->swiglu_bwd(s->y, up, s->a, s->b, up, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
    check_error(vec->name, up, dup, s->n, BOUND);
    memset(s->b, 0, s->n * sizeof(*s->b));
    for (size_t i = 0; i < s->n; i++) {
        struct plain_adamw one = {s->y[i], up[i], 0};
        plain_step(&one, s->c[i], &p);
        s->ref[i] = one.x;
    }
    vec->adamw(s->y, up, s->b, s->c, &p, s->n);
    check_error(vec->name, s->y, s->ref, s->n, BOUND);
    free(dup);
    free(up);
}

static void test_loops(void **state)
{
    (void)state;
    for (const struct vec_ops *const *vec = vec_list(); *vec; vec++) {
        for (size_t n = 1; n < 70; n += n < 35 ? 1 : 17) {
            struct arrays s = {n,
                               random_floats(&rng, n, 1),
                               random_floats(&rng, n, 1),
                               random_floats(&rng, n, 1),
                               random_floats(&rng, n, 1),
                               test_alloc(n * sizeof(double))};
            check_sums(*vec, &s);
            check_loops(*vec, &s);
            check_steps(*vec, &s);
            for (int i = 0; i < 4; i++)
                free((float *[]){s.a, s.b, s.c, s.y}[i]);
            free(s.ref);
        }
    }
}

/* ---- Threads ---- */

enum { ROWS = 300, N = 410, K = 130, QUARTER = ROWS * N / 4, TOKENS = 40 };

/* Results of run_products, run_flat and run_rows. */
enum {
    OF_PRODUCTS = ROWS * K + N * K + N,
    OF_FLAT = 2 * ROWS * N + 2,
    OF_ROWS = 4 * ROWS * N + N + TOKENS * N + ROWS + ROWS * K,
};

static void run_products(struct kernel_ctx *lane, float *out, const float *x,
                         const float *w)
{
    const struct kernel_train_ops *k = kernel_train(lane);

    k->gemm_bwd_input(lane, out, x, w, false, ROWS, N, K);
    out += ROWS * K;
    k->gemm_bwd_weight(lane, out, out + N * K, x, w, ROWS, N, K);
}

static void run_flat(struct kernel_ctx *lane, float *out, const float *x, const float *w)
{
    const struct kernel_train_ops *k = kernel_train(lane);
    struct kernel_adamw p = adamw_at(2);
    double sum = 0;

    memcpy(out + 3 * QUARTER, x, QUARTER * sizeof(*out));
    k->adamw(lane, out, out, out + QUARTER, out + 2 * QUARTER, out + 3 * QUARTER, &p,
             QUARTER);
    out += ROWS * N;
    memcpy(out, x, ROWS * N * sizeof(*out));
    k->accumulate(lane, out, w, ROWS * N);
    out += ROWS * N;
    k->sum_squares(lane, &sum, x, ROWS * N);
    memcpy(out, &sum, sizeof(sum));
}

/* Row r has token r % TOKENS. */
static void run_embed(struct kernel_ctx *lane, float *out, const float *x)
{
    int32_t token[TOKENS], start[TOKENS + 1], row[ROWS], n = 0;

    for (int t = 0; t < TOKENS; t++) {
        token[t] = t;
        start[t] = n;
        for (int r = t; r < ROWS; r += TOKENS)
            row[n++] = r;
    }
    start[TOKENS] = n;
    kernel_train(lane)->embed_bwd(lane, out, token, start, row, x, TOKENS, N);
}

static void run_rows(struct kernel_ctx *lane, float *out, const float *x, const float *w)
{
    const struct kernel_train_ops *k = kernel_train(lane);
    int32_t at[ROWS], bad = 0;

    for (int r = 0; r < ROWS; r++)
        at[r] = r;
    k->norm_bwd(lane, out, out + ROWS * N, x, w, w, 1e-5f, false, ROWS, 1, N, N, N, N);
    out += ROWS * N + N;
    k->swiglu_bwd(lane, out, x, w, ROWS / 2, N);
    out += ROWS * N;
    memcpy(out, x, ROWS * N * sizeof(*out));
    k->rope_bwd(lane, out, w, at, ROWS, 5, N / 5, N);
    out += ROWS * N;
    run_embed(lane, out, x);
    out += TOKENS * N;
    memcpy(out + ROWS, x, ROWS * N * sizeof(*out));
    k->cross_entropy(lane, out, out + ROWS, &bad, out + ROWS, at, 0.5f, ROWS, N);
    assert_int_equal(bad, 0);
    out += ROWS + ROWS * N;
    k->copy_rows(lane, out, x, ROWS, K, K, N);
}

/* All kernels but attention, which kernels-train-attn has. */
static void test_threads(void **state)
{
    size_t n = OF_PRODUCTS + OF_FLAT + OF_ROWS;
    float *x = random_floats(&rng, ROWS * N, 1), *w = random_floats(&rng, ROWS * N, 1);
    float *first = NULL;

    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct kernel_ctx *lane;
        float *out = test_alloc(n * sizeof(*out));
        assert_int_equal(kernel_cpu_create(&lane, threads, NULL), 0);
        run_products(lane, out, x, w);
        run_flat(lane, out + OF_PRODUCTS, x, w);
        run_rows(lane, out + OF_PRODUCTS + OF_FLAT, x, w);
        assert_int_equal(kernel_error(lane), 0);
        kernel_destroy(lane);
        if (!first)
            first = out;
        assert_memory_equal(first, out, n * sizeof(*out));
        if (out != first)
            free(out);
    }
    free(first);
    free(x);
    free(w);
}

/* Nothing to do: nothing is read or written. */
static void test_nothing(void **state)
{
    struct kernel_adamw p = adamw_at(1);

    (void)state;
    ops->adamw(ctx, NULL, NULL, NULL, NULL, NULL, &p, 0);
    ops->accumulate(ctx, NULL, NULL, 0);
    ops->copy_rows(ctx, NULL, NULL, 0, 8, 8, 8);
    assert_int_equal(kernel_error(ctx), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),       cmocka_unit_test(test_adamw_first),
        cmocka_unit_test(test_sum_squares), cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_copy_rows),   cmocka_unit_test(test_loops),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
