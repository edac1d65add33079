/* Sampling and log-probabilities: CUDA against the CPU. Equal logits must give equal
 * tokens. */
#include <errno.h>

#include "tests/kernels-twin.h"

static uint64_t rng = 41;

/* Rows of logits and where they belong, on both sides. */
struct fixture {
    int rows, V;
    float *logits;
    struct kernel_sample_row *row;
    int32_t *tokens, *recent, bad;
    void *glogits, *grow, *gtokens, *grecent, *gbad;
};

/* `values` different logits, or any if that is 0: few values make many ties. */
static void make(const struct twin *t, struct fixture *f, int rows, int V, int values)
{
    size_t n = (size_t)rows * V;

    *f = (struct fixture){.rows = rows, .V = V};
    f->logits = random_floats(&rng, n, 12);
    for (size_t i = 0; values && i < n; i++)
        f->logits[i] = (float)random_int(&rng, 0, values - 1) - 1;
    f->row = test_alloc((size_t)rows * sizeof(*f->row));
    f->tokens = test_alloc((size_t)rows * sizeof(int32_t));
    f->recent = test_alloc((size_t)rows * KERNEL_RECENT * sizeof(int32_t));
    for (int i = 0; i < rows * KERNEL_RECENT; i++)
        f->recent[i] = random_int(&rng, 0, V - 1);
    for (int r = 0; r < rows; r++) {
        int pos = random_int(&rng, 0, 300);
        f->row[r] = (struct kernel_sample_row){
            .slot = rows - 1 - r,
            .pos = pos,
            .stream = random_int(&rng, 0, 9),
            .recent = pos < KERNEL_RECENT ? pos : random_int(&rng, 0, KERNEL_RECENT)};
    }
    f->glogits = up(t, f->logits, n * sizeof(float));
    f->grow = up(t, f->row, (size_t)rows * sizeof(*f->row));
    f->gtokens = up(t, f->tokens, (size_t)rows * sizeof(int32_t));
    f->grecent = up(t, f->recent, (size_t)rows * KERNEL_RECENT * sizeof(int32_t));
    f->gbad = up(t, &f->bad, sizeof(f->bad));
}

static void unmake(const struct twin *t, struct fixture *f)
{
    drop(t, f->glogits);
    drop(t, f->grow);
    drop(t, f->gtokens);
    drop(t, f->grecent);
    drop(t, f->gbad);
    free(f->logits);
    free(f->row);
    free(f->tokens);
    free(f->recent);
}

static void sample(const struct twin *t, struct fixture *f,
                   const struct kernel_sampling *p)
{
    t->cpu->ops->sample(t->cpu, f->tokens, f->recent, &f->bad, f->logits, f->row, p,
                        f->rows, f->V);
    t->gpu->ops->sample(t->gpu, f->gtokens, f->grecent, f->gbad, f->glogits, f->grow, p,
                        f->rows, f->V);
}

static void check(struct twin *t, int rows, int V, int values,
                  const struct kernel_sampling *p)
{
    struct fixture f;
    int32_t *tokens = test_alloc((size_t)rows * sizeof(*tokens));
    int32_t *recent = test_alloc((size_t)rows * KERNEL_RECENT * sizeof(*recent));

    make(t, &f, rows, V, values);
    sample(t, &f, p);
    down(t, tokens, f.gtokens, (size_t)rows * sizeof(*tokens));
    down(t, recent, f.grecent, (size_t)rows * KERNEL_RECENT * sizeof(*recent));
    for (int r = 0; r < rows; r++) {
        if (tokens[r] != f.tokens[r])
            fail_msg(
                "V %d, T %g, k %d, p %g, min-p %g, penalty %g: slot %d drew %d, not %d",
                V, p->temperature, p->top_k, p->top_p, p->min_p, p->repeat_penalty, r,
                tokens[r], f.tokens[r]);
    }
    assert_memory_equal(recent, f.recent, (size_t)rows * KERNEL_RECENT * sizeof(*recent));
    unmake(t, &f);
    free(tokens);
    free(recent);
}

static void test_draws(void **state)
{
    static const struct kernel_sampling settings[] = {
        {0, 1, 0, 1, 0, 1},
        {1, 1, 0, 1, 0, 2},
        {0.7f, 1, 0, 1, 0, 3},
        {1, 1, 0, 1, 40, 4},
        {1, 1, 0, 1, 1, 5},
        {1, 0.9f, 0, 1, 0, 6},
        {1, 0, 0, 1, 0, 7},
        {1, 1, 0.05f, 1, 0, 8},
        {0.8f, 0.95f, 0.02f, 1.3f, 50, 9},
        {1.5f, 0.99f, 0, 0.8f, 900, 10},
        {0, 1, 0, 1.5f, 0, 11},
        {2, 0.5f, 1, 1, 0, 12},
    };
    static const int sizes[] = {1, 5, 31, 32, 33, 1000, 1024, 1025, 49152, 128256};

    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        for (size_t j = 0; j < ARRAY_LEN(sizes); j++) {
            check(*state, sizes[j] > 2000 ? 2 : 6, sizes[j], 0, &settings[i]);
            check(*state, 3, sizes[j], 3, &settings[i]);
        }
    }
}

/* A bad row is told at the next sync, and only once; the others are drawn. */
static void test_bad(void **state)
{
    const float values[] = {NAN, INFINITY};
    const struct kernel_sampling p = {1, 1, 0, 1, 0, 1};
    struct twin *t = *state;
    struct fixture f;
    int32_t tokens[3], bad = 0;

    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        make(t, &f, 3, 500, 0);
        f.logits[500 + 123] = values[i];
        t->gpu->ops->upload(t->gpu, f.glogits, f.logits, sizeof(float) * 1500);
        sample(t, &f, &p);
        assert_int_equal(kernel_error(t->cpu), -EDOM);
        t->gpu->ops->download(t->gpu, tokens, f.gtokens, sizeof(tokens));
        t->gpu->ops->download(t->gpu, &bad, f.gbad, sizeof(bad));
        t->gpu->ops->sync(t->gpu);
        assert_int_equal(kernel_error(t->gpu), -EDOM);
        assert_int_equal(bad, 1);
        assert_memory_equal(tokens, f.tokens, sizeof(tokens));
        t->gpu->ops->sync(t->gpu);
        assert_int_equal(kernel_error(t->gpu), 0);
        unmake(t, &f);
    }
}

static void test_logprob(void **state)
{
    enum { ROWS = 7, V = 49152 };
    struct twin *t = *state;
    float *x = random_floats(&rng, ROWS * V, 15), want[ROWS], got[ROWS];
    int32_t target[ROWS];
    void *gx = up(t, x, ROWS * V * sizeof(*x)), *gtarget, *gout = up(t, x, sizeof(got));

    for (int r = 0; r < ROWS; r++)
        target[r] = r == 3 ? -1 : random_int(&rng, 0, V - 1);
    gtarget = up(t, target, sizeof(target));
    t->cpu->ops->logprob(t->cpu, want, x, target, ROWS, V);
    t->gpu->ops->logprob(t->gpu, gout, gx, gtarget, ROWS, V);
    down(t, got, gout, sizeof(got));
    for (int r = 0; r < ROWS; r++) {
        if (!(fabsf(got[r] - want[r]) <= 1e-6f * (1 + fabsf(want[r]))))
            fail_msg("log-probability of row %d is %.9g, not %.9g", r, got[r], want[r]);
    }
    drop(t, gx);
    drop(t, gtarget);
    drop(t, gout);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_F32(test_draws),
        IN_F32(test_bad),
        IN_F32(test_logprob),
    };

    if (device_count() == 0)
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
