/* Sampling on the CPU: every filter against a sorted reference in double precision,
 * and the draws against the distribution. */
#include <errno.h>

#include "tests/kernels.h"

static struct kernel_ctx *ctx;
static uint64_t rng = 11;

static const struct kernel_sampling plain = {1.0f, 1.0f, 0.0f, 1.0f, 0, 1};

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

/* Draws one token from a copy of x (V) for stream and pos. */
static int32_t draw(const float *x, int V, const struct kernel_sampling *p, int stream,
                    int pos)
{
    struct kernel_sample_row row = {.slot = 0, .pos = pos, .stream = stream};
    int32_t token = -1, recent[KERNEL_RECENT], bad = 0;
    float *copy = test_alloc((size_t)V * sizeof(*copy));

    memcpy(copy, x, (size_t)V * sizeof(*copy));
    ctx->ops->sample(ctx, &token, recent, &bad, copy, &row, p, 1, V);
    assert_int_equal(recent[pos % KERNEL_RECENT], token);
    assert_in_range(token, 0, V - 1);
    free(copy);
    return token;
}

struct candidate {
    double logit, p;
    int id;
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    return ((const struct candidate *)a)->id - ((const struct candidate *)b)->id;
}

/* Softmax over the first n at a temperature. */
static void softmax(struct candidate *c, int n, double temperature)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        c[i].p = exp((c[i].logit - c[0].logit) / temperature);
        sum += c[i].p;
    }
    for (int i = 0; i < n; i++)
        c[i].p /= sum;
}

/* Fills p (V) with the probability of every token; sorting is done the simple way. */
static void reference(double *prob, const float *x, int V,
                      const struct kernel_sampling *p)
{
    struct candidate *c = test_alloc((size_t)V * sizeof(*c));
    int n = V, keep = 0;
    double sum = 0;

    for (int i = 0; i < V; i++)
        c[i] = (struct candidate){x[i], 0, i};
    qsort(c, (size_t)V, sizeof(*c), by_logit);
    if (p->top_k > 0 && p->top_k < n)
        n = p->top_k;
    softmax(c, n, 1);
    if (p->top_p < 1) {
        do
            sum += c[keep].p;
        while (++keep < n && sum < (double)p->top_p);
        n = keep;
    }
    while (p->min_p > 0 && n > 1 && c[n - 1].p < (double)p->min_p * c[0].p)
        n--;
    softmax(c, n, (double)p->temperature);
    for (int i = n; i < V; i++)
        c[i].p = 0;
    qsort(c, (size_t)V, sizeof(*c), by_id);
    for (int i = 0; i < V; i++)
        prob[i] = c[i].p;
    free(c);
}

/* 99.9 % point of chi-square with n degrees of freedom (Wilson and Hilferty, 1931). */
static double chi_square_bound(int n)
{
    double a = 2.0 / (9.0 * n);

    return n * pow(1 - a + 3.09 * sqrt(a), 3);
}

/* Many draws: none has probability 0, and the counts fit. Rare tokens are put
 * together. */
static void check_distribution(const char *what, const float *x, int V,
                               const struct kernel_sampling *p, int draws)
{
    double *prob = test_alloc((size_t)V * sizeof(*prob)), chi = 0, rest = 0,
           rest_seen = 0;
    int *seen = test_alloc((size_t)V * sizeof(*seen)), freedom = -1;

    reference(prob, x, V, p);
    for (int i = 0; i < draws; i++)
        seen[draw(x, V, p, i % 7, i / 7)]++;
    for (int i = 0; i < V; i++) {
        double want = prob[i] * draws;
        if (prob[i] == 0 && seen[i])
            fail_msg("%s: token %d was drawn but is filtered out", what, i);
        if (want < 8) {
            rest += want;
            rest_seen += seen[i];
            continue;
        }
        chi += (seen[i] - want) * (seen[i] - want) / want;
        freedom++;
    }
    if (rest >= 8) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        freedom++;
    }
    if (freedom > 0 && chi > chi_square_bound(freedom))
        fail_msg("%s: chi-square %.1f with %d degrees of freedom", what, chi, freedom);
    free(prob);
    free(seen);
}

static void test_filters(void **state)
{
    float *x = random_floats(&rng, 100, 4);

    (void)state;
    check_distribution("plain", x, 100, &plain, 20000);
    check_distribution("hot", x, 100, &(struct kernel_sampling){2, 1, 0, 1, 0, 2}, 20000);
    check_distribution("cold", x, 100, &(struct kernel_sampling){0.5f, 1, 0, 1, 0, 3},
                       20000);
    check_distribution("top-k", x, 100, &(struct kernel_sampling){1, 1, 0, 1, 7, 4},
                       10000);
    check_distribution("top-1", x, 100, &(struct kernel_sampling){1, 1, 0, 1, 1, 4}, 100);
    check_distribution("top-p", x, 100, &(struct kernel_sampling){1, 0.7f, 0, 1, 0, 5},
                       10000);
    check_distribution("top-0", x, 100, &(struct kernel_sampling){1, 0, 0, 1, 0, 5}, 100);
    check_distribution("min-p", x, 100, &(struct kernel_sampling){1, 1, 0.1f, 1, 0, 6},
                       10000);
    check_distribution("all", x, 100,
                       &(struct kernel_sampling){0.8f, 0.9f, 0.05f, 1, 30, 7}, 20000);
    free(x);
}

/* Few values, so that every cut falls among equal logits. */
static void test_ties(void **state)
{
    float x[64];

    (void)state;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 64; i++)
            x[i] = (float)random_int(&rng, -1, 1);
        x[round] = 0.0f;
        x[round + 20] = -0.0f;
        check_distribution(
            "tied top-k", x, 64,
            &(struct kernel_sampling){1, 1, 0, 1, random_int(&rng, 2, 60), 9}, 4000);
        check_distribution("tied top-p", x, 64,
                           &(struct kernel_sampling){1, 0.313f, 0, 1, 0, 9}, 4000);
        check_distribution("tied both", x, 64,
                           &(struct kernel_sampling){1, 0.613f, 0, 1, 40, 9}, 4000);
    }
}

/* Random sizes and filters: nothing that is filtered out is ever drawn. */
static void test_random_filters(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int V = random_int(&rng, 1, 3000);
        float *x = random_floats(&rng, (size_t)V, 6);
        struct kernel_sampling p = {(float)random_int(&rng, 1, 20) / 10,
                                    (float)random_int(&rng, 1, 100) / 100,
                                    (float)random_int(&rng, 0, 30) / 100,
                                    1,
                                    random_int(&rng, 0, V),
                                    rng};
        check_distribution("random", x, V, &p, 300);
        free(x);
    }
}

static void test_greedy(void **state)
{
    const struct kernel_sampling greedy = {0, 0.5f, 0.1f, 1, 3, 1};
    float x[70] = {0};

    (void)state;
    assert_int_equal(draw(x, 70, &greedy, 0, 0), 0);
    x[69] = 2;
    assert_int_equal(draw(x, 70, &greedy, 0, 0), 69);
    x[33] = x[40] = 2;
    assert_int_equal(draw(x, 70, &greedy, 0, 0), 33);
    for (int i = 0; i < 70; i++)
        x[i] = -INFINITY;
    x[51] = -1e30f;
    assert_int_equal(draw(x, 70, &greedy, 0, 0), 51);
    assert_int_equal(draw(x, 70, &plain, 0, 0), 51);
    x[7] = -1;
    assert_int_equal(draw(x, 70, &(struct kernel_sampling){1e-37f, 1, 0, 1, 0, 1}, 0, 0),
                     7);
    assert_int_equal(draw(x, 70, &(struct kernel_sampling){1e-44f, 1, 0, 1, 0, 1}, 0, 0),
                     7);
}

/* -inf is a masked token and legal; NaN, +inf and nothing finite are errors. */
static void test_bad(void **state)
{
    struct kernel_sample_row row[2] = {{.slot = 0}, {.slot = 1}};
    int32_t tokens[2], recent[2 * KERNEL_RECENT], bad;
    const float values[] = {NAN, INFINITY, -INFINITY};
    float x[2][50];

    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 50; j++) {
            x[0][j] = (float)j;
            x[1][j] = i == 2 ? -INFINITY : 1;
        }
        x[1][17] = values[i];
        bad = 0;
        ctx->ops->sample(ctx, tokens, recent, &bad, x[0], row, &plain, 2, 50);
        assert_int_equal(bad, 1);
        assert_in_range(tokens[1], 0, 49);
        assert_int_equal(kernel_error(ctx), -EDOM);
    }
    bad = 0;
    ctx->ops->sample(ctx, tokens, recent, &bad, x[0], row, &plain, 1, 50);
    assert_int_equal(bad, 0);
    assert_int_equal(kernel_error(ctx), 0);
}

/* Penalised once per distinct token, only those within the window. */
static void test_penalty(void **state)
{
    const struct kernel_sampling greedy = {0, 1, 0, 2, 0, 1};
    struct kernel_sample_row row = {.slot = 1, .pos = 130, .recent = 3};
    int32_t tokens[2], recent[2 * KERNEL_RECENT] = {0}, bad = 0;
    float x[10] = {1, 1, 4, 4.5f, 2.1f, -1, 1, 1, 1, 1};

    (void)state;
    recent[KERNEL_RECENT + 129 % KERNEL_RECENT] = 3;
    recent[KERNEL_RECENT + 128 % KERNEL_RECENT] = 3;
    recent[KERNEL_RECENT + 127 % KERNEL_RECENT] = 5;
    recent[KERNEL_RECENT + 126 % KERNEL_RECENT] = 2;
    ctx->ops->sample(ctx, tokens, recent, &bad, x, &row, &greedy, 1, 10);
    assert_int_equal(tokens[1], 2);
    assert_true(x[3] == 2.25f && x[2] == 4 && x[5] == -2);
    assert_int_equal(recent[KERNEL_RECENT + 130 % KERNEL_RECENT], 2);
}

/* The draw depends on seed, stream and pos, and on nothing else. */
static void test_streams(void **state)
{
    enum { V = 1000, ROWS = 6 };
    float *x = random_floats(&rng, V, 1),
          *copies = test_alloc(V * ROWS * sizeof(*copies));
    struct kernel_sample_row row[ROWS];
    int32_t tokens[ROWS], recent[ROWS * KERNEL_RECENT], bad = 0;
    struct kernel_sampling other = plain;
    int differ = 0;

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        memcpy(copies + r * V, x, V * sizeof(*x));
        row[r] = (struct kernel_sample_row){
            .slot = ROWS - 1 - r, .pos = 9 * r, .stream = r / 2};
    }
    ctx->ops->sample(ctx, tokens, recent, &bad, copies, row, &plain, ROWS, V);
    other.seed = 2;
    for (int r = 0; r < ROWS; r++) {
        assert_int_equal(tokens[row[r].slot],
                         draw(x, V, &plain, row[r].stream, row[r].pos));
        differ += draw(x, V, &other, row[r].stream, row[r].pos) != tokens[row[r].slot];
    }
    assert_true(differ >= 4);
    free(x);
    free(copies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_greedy),  cmocka_unit_test(test_random_filters),
        cmocka_unit_test(test_bad),     cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_streams),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
