/* Attention in training on the CPU: forward against plain loops in double precision,
 * backward against their central differences. */
#include "tests/kernels-train.h"

#define BOUND 2e-6

static uint64_t rng = 21;

/* A batch of whole sequences. */
struct fixture {
    struct test_batch batch;
    struct kernel_attn attn;
    size_t ld, ldo;
    float *qkv, *o, *lse, *dout, *dqkv, *delta;
    double *x, *weight; /* qkv and dout again */
};

static void fixture_make(struct fixture *f, const int *rows, int segs, int H, int K,
                         int D, float spread)
{
    struct test_segment seg[16];
    size_t R;

    for (int s = 0; s < segs; s++)
        seg[s] = (struct test_segment){0, rows[s]};
    test_batch_make(&f->batch, seg, segs, &rng);
    R = (size_t)f->batch.rows.rows;
    f->attn = (struct kernel_attn){H, K, D, 1.0f / sqrtf((float)D)};
    f->ld = (size_t)(H + 2 * K) * D;
    f->ldo = (size_t)H * D;
    f->qkv = random_floats(&rng, R * f->ld, spread);
    f->o = random_floats(&rng, R * f->ldo, 1);
    f->lse = random_floats(&rng, R * H, 1);
    f->dout = random_floats(&rng, R * f->ldo, 1);
    f->dqkv = random_floats(&rng, R * f->ld, 1);
    f->delta = random_floats(&rng, R * H, 1);
    f->x = doubles(f->qkv, R * f->ld);
    f->weight = doubles(f->dout, R * f->ldo);
}

static void fixture_free(struct fixture *f)
{
    test_batch_free(&f->batch);
    for (int i = 0; i < 6; i++)
        free((float *[]){f->qkv, f->o, f->lse, f->dout, f->dqkv, f->delta}[i]);
    free(f->x);
    free(f->weight);
}

/* o (D) of one row and query head; returns the log of the sum of exp(score). */
static double plain_attention(const struct fixture *f, double *o, int row, int head)
{
    int D = f->attn.head_dim, H = f->attn.heads, K = f->attn.kv_heads;
    int kv = head / (H / K), n = f->batch.rows.pos[row] + 1;
    const double *q = f->x + row * f->ld + (size_t)head * D;
    const double *k = f->x + (row + 1 - n) * f->ld + (size_t)(H + kv) * D;
    double sum = 0, top = -INFINITY, score[1000];

    for (int t = 0; t < n; t++) {
        score[t] = 0;
        for (int i = 0; i < D; i++)
            score[t] += (double)f->attn.scale * q[i] * k[t * f->ld + i];
        top = score[t] > top ? score[t] : top;
    }
    memset(o, 0, (size_t)D * sizeof(*o));
    for (int t = 0; t < n; t++) {
        double p = exp(score[t] - top);
        sum += p;
        for (int i = 0; i < D; i++)
            o[i] += p * k[t * f->ld + (size_t)K * D + i];
    }
    for (int i = 0; i < D; i++)
        o[i] /= sum;
    return top + log(sum);
}

static double attention_loss(const void *arg)
{
    const struct fixture *f = arg;
    int D = f->attn.head_dim, H = f->attn.heads;
    double loss = 0, o[KERNEL_MAX_HEAD_DIM];

    for (int i = 0; i < f->batch.rows.rows * H; i++) {
        plain_attention(f, o, i / H, i % H);
        for (int d = 0; d < D; d++)
            loss += o[d] * f->weight[(size_t)i * D + d];
    }
    return loss;
}

static void check_forward(const struct fixture *f, const char *what)
{
    int D = f->attn.head_dim, H = f->attn.heads;
    double o[KERNEL_MAX_HEAD_DIM];

    for (int i = 0; i < f->batch.rows.rows * H; i++) {
        double lse = plain_attention(f, o, i / H, i % H);
        check_error(what, f->o + (size_t)i * D, o, (size_t)D, 4e-6);
        if (fabs(f->lse[i] - lse) > 2e-6 * (1 + fabs(lse)))
            fail_msg("%s: lse of row %d, head %d is %.9g, not %.9g", what, i / H, i % H,
                     f->lse[i], lse);
    }
}

static void run(struct kernel_ctx *ctx, struct fixture *f)
{
    const struct kernel_train_ops *ops = kernel_train(ctx);

    ops->attn_train_fwd(ctx, f->o, f->lse, f->qkv, &f->batch.rows, &f->attn);
    ops->attn_bwd(ctx, f->dqkv, f->delta, f->dout, f->qkv, f->o, f->lse, &f->batch.rows,
                  &f->attn);
    assert_int_equal(kernel_error(ctx), 0);
}

static void check(const int *rows, int segs, int H, int K, int D, float spread)
{
    struct kernel_ctx *ctx;
    struct fixture f;
    char what[100];

    fixture_make(&f, rows, segs, H, K, D, spread);
    assert_int_equal(kernel_cpu_create(&ctx, 2, NULL), 0);
    run(ctx, &f);
    snprintf(what, sizeof(what), "attention H %d K %d D %d, %d rows", H, K, D,
             f.batch.rows.rows);
    check_forward(&f, what);
    check_gradient(what, attention_loss, &f, f.x, f.dqkv, f.batch.rows.rows * f.ld,
                   BOUND);
    kernel_destroy(ctx);
    fixture_free(&f);
}

static void test_small(void **state)
{
    (void)state;
    check((int[]){1}, 1, 1, 1, 8, 2);
    check((int[]){3}, 1, 2, 1, 8, 2);
    check((int[]){5, 1, 4}, 3, 1, 1, 8, 2);
    check((int[]){2, 3}, 2, 3, 3, 8, 2);
}

static void test_shapes(void **state)
{
    (void)state;
    check((int[]){48, 48}, 2, 4, 2, 16, 2);
    check((int[]){65}, 1, 3, 1, 24, 2);
    check((int[]){64, 20}, 2, 2, 2, 40, 2);
    check((int[]){17, 130, 1}, 3, 6, 2, 8, 1);
    check((int[]){30}, 1, 9, 3, 64, 2);
    check((int[]){20}, 1, 2, 1, 256, 2);
    check((int[]){600}, 1, 1, 1, 8, 2);
    check((int[]){520}, 1, 2, 1, 8, 2);
}

static void test_random(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        int rows[4], K = random_int(&rng, 1, 3), G = random_int(&rng, 1, 4);
        for (int s = 0; s < 4; s++)
            rows[s] = random_int(&rng, 1, 40);
        check(rows, 4, K * G, K, 8 * random_int(&rng, 1, 5), 2);
    }
}

/* Scores so far apart that exp underflows. */
static void test_sharp(void **state)
{
    struct kernel_ctx *ctx;
    struct fixture f;
    double loss;

    (void)state;
    fixture_make(&f, (int[]){70}, 1, 2, 1, 32, 2);
    f.attn.scale = 40;
    assert_int_equal(kernel_cpu_create(&ctx, 1, NULL), 0);
    run(ctx, &f);
    loss = attention_loss(&f);
    for (size_t i = 0; i < f.batch.rows.rows * f.ldo; i++)
        loss -= (double)f.o[i] * f.weight[i];
    assert_true(fabs(loss) < 1e-2);
    for (size_t i = 0; i < f.batch.rows.rows * f.ld; i++)
        assert_true(isfinite(f.dqkv[i]));
    kernel_destroy(ctx);
    fixture_free(&f);
}

static void test_threads(void **state)
{
    struct fixture f;
    float *o = NULL, *dqkv = NULL;
    size_t no, nx;

    (void)state;
    fixture_make(&f, (int[]){150, 1, 90, 33}, 4, 6, 2, 32, 2);
    no = f.batch.rows.rows * f.ldo;
    nx = f.batch.rows.rows * f.ld;
    for (int threads = 1; threads <= 4; threads++) {
        struct kernel_ctx *ctx;
        assert_int_equal(kernel_cpu_create(&ctx, threads, NULL), 0);
        run(ctx, &f);
        if (threads == 1) {
            o = copy_of(f.o, no);
            dqkv = copy_of(f.dqkv, nx);
        }
        assert_memory_equal(o, f.o, no * sizeof(*o));
        assert_memory_equal(dqkv, f.dqkv, nx * sizeof(*dqkv));
        kernel_destroy(ctx);
    }
    free(o);
    free(dqkv);
    fixture_free(&f);
}

static void test_nothing(void **state)
{
    const struct kernel_attn attn = {2, 1, 8, 1};
    const struct kernel_rows rows = {0};
    const struct kernel_train_ops *ops;
    struct kernel_ctx *ctx;

    (void)state;
    assert_int_equal(kernel_cpu_create(&ctx, 1, NULL), 0);
    ops = kernel_train(ctx);
    ops->attn_train_fwd(ctx, NULL, NULL, NULL, &rows, &attn);
    ops->attn_bwd(ctx, NULL, NULL, NULL, NULL, NULL, NULL, &rows, &attn);
    assert_int_equal(kernel_error(ctx), 0);
    kernel_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),   cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_sharp),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
