/* Attention and the KV cache on the CPU against plain loops in double precision. */
#include "tests/kernels.h"

#define BOUND 1e-6

static uint64_t rng = 5;

/* A batch with its data. Keys of the prefix are random; those of the rows come from
 * qkv. */
struct fixture {
    struct test_batch batch;
    struct kernel_attn attn;
    size_t ld, cache;       /* elements of a row of qkv, of k and of v */
    float *qkv, *k, *v, *o; /* (R, ld), two caches, (R, H * D) */
};

static void fixture_make(struct fixture *f, const struct test_segment *seg, int segs,
                         int H, int K, int D)
{
    test_batch_make(&f->batch, seg, segs, &rng);
    f->attn = (struct kernel_attn){H, K, D, 1.0f / sqrtf((float)D)};
    f->ld = (size_t)(H + 2 * K) * D;
    f->cache = (size_t)f->batch.blocks * K * KERNEL_KV_BLOCK * D;
    f->qkv = random_floats(&rng, f->batch.rows.rows * f->ld, 2);
    f->k = random_floats(&rng, f->cache, 2);
    f->v = random_floats(&rng, f->cache, 2);
    f->o = random_floats(&rng, (size_t)f->batch.rows.rows * H * D, 1);
}

static void fixture_free(struct fixture *f)
{
    test_batch_free(&f->batch);
    free(f->qkv);
    free(f->k);
    free(f->v);
    free(f->o);
}

/* Element 0 of token t of a head in a cache, by the layout of the header. */
static size_t cached(const struct fixture *f, int seg, int head, int t)
{
    int D = f->attn.head_dim, K = f->attn.kv_heads;
    int id = f->batch.rows.table[seg * f->batch.rows.table_ld + t / KERNEL_KV_BLOCK];

    return (size_t)id * K * KERNEL_KV_BLOCK * D +
           ((size_t)head * KERNEL_KV_BLOCK + t % KERNEL_KV_BLOCK) * D;
}

/* o (D) of one row and query head. */
static void plain_attention(const struct fixture *f, double *o, int row, int head)
{
    int D = f->attn.head_dim, seg = f->batch.rows.row_seg[row];
    int kv_head = head / (f->attn.heads / f->attn.kv_heads),
        len = f->batch.rows.pos[row] + 1;
    const float *q = f->qkv + row * f->ld + (size_t)head * D;
    double *score = test_alloc((size_t)len * sizeof(*score)), top = -INFINITY, sum = 0;

    for (int t = 0; t < len; t++) {
        for (int i = 0; i < D; i++)
            score[t] += (double)q[i] * f->k[cached(f, seg, kv_head, t) + i];
        score[t] *= (double)f->attn.scale;
        top = score[t] > top ? score[t] : top;
    }
    for (int t = 0; t < len; t++) {
        score[t] = exp(score[t] - top);
        sum += score[t];
    }
    for (int i = 0; i < D; i++) {
        o[i] = 0;
        for (int t = 0; t < len; t++)
            o[i] += score[t] / sum * f->v[cached(f, seg, kv_head, t) + i];
    }
    free(score);
}

/* The rows' own keys and values are where they belong, and nothing else has changed. */
static void check_store(const struct fixture *f, const float *k, const float *v)
{
    int D = f->attn.head_dim, K = f->attn.kv_heads;
    float *want_k = test_alloc(f->cache * sizeof(float));
    float *want_v = test_alloc(f->cache * sizeof(float));

    memcpy(want_k, k, f->cache * sizeof(float));
    memcpy(want_v, v, f->cache * sizeof(float));
    for (int r = 0; r < f->batch.rows.rows; r++) {
        for (int h = 0; h < K; h++) {
            size_t at = cached(f, f->batch.rows.row_seg[r], h, f->batch.rows.pos[r]);
            const float *row = f->qkv + r * f->ld + (size_t)(f->attn.heads + h) * D;
            memcpy(want_k + at, row, (size_t)D * sizeof(float));
            memcpy(want_v + at, row + (size_t)K * D, (size_t)D * sizeof(float));
        }
    }
    assert_memory_equal(f->k, want_k, f->cache * sizeof(float));
    assert_memory_equal(f->v, want_v, f->cache * sizeof(float));
    free(want_k);
    free(want_v);
}

static void store(struct kernel_ctx *ctx, struct fixture *f)
{
    float *k = test_alloc(f->cache * sizeof(float)),
          *v = test_alloc(f->cache * sizeof(float));

    memcpy(k, f->k, f->cache * sizeof(float));
    memcpy(v, f->v, f->cache * sizeof(float));
    ctx->ops->kv_store(ctx, f->k, f->v, f->qkv, &f->batch.rows, &f->attn);
    check_store(f, k, v);
    free(k);
    free(v);
}

static void check_attention(const struct test_segment *seg, int segs, int H, int K, int D)
{
    struct fixture f;
    struct kernel_ctx *ctx;
    double *ref;
    char what[120];

    fixture_make(&f, seg, segs, H, K, D);
    assert_int_equal(kernel_cpu_create(&ctx, 2, NULL), 0);
    store(ctx, &f);
    ctx->ops->attn_fwd(ctx, f.o, f.qkv, f.k, f.v, &f.batch.rows, &f.attn);
    assert_int_equal(kernel_error(ctx), 0);
    ref = test_alloc((size_t)H * D * sizeof(*ref));
    for (int r = 0; r < f.batch.rows.rows; r++) {
        for (int h = 0; h < H; h++)
            plain_attention(&f, ref + (size_t)h * D, r, h);
        snprintf(what, sizeof(what), "attention H %d K %d D %d, row %d at %d", H, K, D, r,
                 f.batch.rows.pos[r]);
        check_error(what, f.o + (size_t)r * H * D, ref, (size_t)H * D, 2 * BOUND);
    }
    free(ref);
    kernel_destroy(ctx);
    fixture_free(&f);
}

static void test_prefill(void **state)
{
    (void)state;
    check_attention((struct test_segment[]){{0, 5}}, 1, 1, 1, 8);
    check_attention((struct test_segment[]){{0, 130}}, 1, 9, 3, 64);
    check_attention((struct test_segment[]){{200, 100}}, 1, 4, 4, 32);
    check_attention((struct test_segment[]){{63, 300}}, 1, 8, 1, 24);
    check_attention((struct test_segment[]){{0, 64}, {64, 64}}, 2, 2, 1, 128);
    check_attention((struct test_segment[]){{17, 20}}, 1, 2, 2, 256);
    check_attention((struct test_segment[]){{255, 17}}, 1, 32, 1, 40);
}

static void test_decode(void **state)
{
    (void)state;
    check_attention((struct test_segment[]){{0, 1}}, 1, 1, 1, 8);
    check_attention((struct test_segment[]){{0, 1}, {63, 1}, {64, 1}, {65, 1}, {777, 1}},
                    5, 9, 3, 64);
    check_attention((struct test_segment[]){{300, 2}, {5, 4}, {127, 3}}, 3, 8, 2, 72);
}

static void test_mixed(void **state)
{
    (void)state;
    check_attention((struct test_segment[]){{100, 1}, {0, 90}, {512, 1}, {70, 7}, {3, 5}},
                    5, 6, 3, 48);
    for (int i = 0; i < 12; i++) {
        struct test_segment seg[4];
        int K = random_int(&rng, 1, 4), G = random_int(&rng, 1, 5);
        for (int s = 0; s < 4; s++)
            seg[s] =
                (struct test_segment){random_int(&rng, 0, 200), random_int(&rng, 1, 40)};
        check_attention(seg, 4, K * G, K, 8 * random_int(&rng, 1, 16));
    }
}

/* Decode rows of one batch, each computed again as a batch of its own: equal to the
 * bit. */
static void test_row_alone(void **state)
{
    const struct test_segment seg[] = {{100, 1}, {0, 1},  {513, 1},
                                       {64, 1},  {0, 33}, {63, 1}};
    struct fixture f;
    struct kernel_ctx *ctx;
    size_t width;

    (void)state;
    fixture_make(&f, seg, ARRAY_LEN(seg), 9, 3, 64);
    width = (size_t)f.attn.heads * f.attn.head_dim;
    assert_int_equal(kernel_cpu_create(&ctx, 1, NULL), 0);
    store(ctx, &f);
    ctx->ops->attn_fwd(ctx, f.o, f.qkv, f.k, f.v, &f.batch.rows, &f.attn);
    for (size_t s = 0; s < ARRAY_LEN(seg); s++) {
        int row = f.batch.rows.seg_row[s];
        const int32_t zero[] = {0}, ends[] = {0, 1};
        struct kernel_rows alone = {1,
                                    1,
                                    1,
                                    seg[s].prefix + 1,
                                    f.batch.rows.table_ld,
                                    f.batch.rows.pos + row,
                                    zero,
                                    ends,
                                    f.batch.rows.table + s * f.batch.rows.table_ld};
        float *o = test_alloc(width * sizeof(*o));
        ctx->ops->attn_fwd(ctx, o, f.qkv + row * f.ld, f.k, f.v, &alone, &f.attn);
        if (seg[s].count == 1)
            assert_memory_equal(o, f.o + row * width, width * sizeof(*o));
        free(o);
    }
    kernel_destroy(ctx);
    fixture_free(&f);
}

static void test_threads(void **state)
{
    const struct test_segment seg[] = {{100, 150}, {40, 1}, {0, 90}};
    struct fixture f;
    float *first = NULL;
    size_t bytes;

    (void)state;
    fixture_make(&f, seg, ARRAY_LEN(seg), 6, 2, 32);
    bytes = (size_t)f.batch.rows.rows * 6 * 32 * sizeof(float);
    first = test_alloc(bytes);
    for (int threads = 1; threads <= 4; threads++) {
        struct kernel_ctx *ctx;
        assert_int_equal(kernel_cpu_create(&ctx, threads, NULL), 0);
        ctx->ops->kv_store(ctx, f.k, f.v, f.qkv, &f.batch.rows, &f.attn);
        ctx->ops->attn_fwd(ctx, f.o, f.qkv, f.k, f.v, &f.batch.rows, &f.attn);
        if (threads == 1)
            memcpy(first, f.o, bytes);
        assert_memory_equal(first, f.o, bytes);
        kernel_destroy(ctx);
    }
    free(first);
    fixture_free(&f);
}

/* Scores so far apart that exp underflows: the largest one alone counts. */
static void test_sharp(void **state)
{
    const struct test_segment seg[] = {{300, 20}, {300, 1}};
    struct fixture f;
    struct kernel_ctx *ctx;
    double ref[32];

    (void)state;
    fixture_make(&f, seg, ARRAY_LEN(seg), 1, 1, 32);
    f.attn.scale = 50;
    assert_int_equal(kernel_cpu_create(&ctx, 1, NULL), 0);
    ctx->ops->kv_store(ctx, f.k, f.v, f.qkv, &f.batch.rows, &f.attn);
    ctx->ops->attn_fwd(ctx, f.o, f.qkv, f.k, f.v, &f.batch.rows, &f.attn);
    for (int r = 0; r < f.batch.rows.rows; r++) {
        plain_attention(&f, ref, r, 0);
        check_error("sharp", f.o + r * 32, ref, 32, 1e-3);
    }
    kernel_destroy(ctx);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefill), cmocka_unit_test(test_decode),
        cmocka_unit_test(test_mixed),   cmocka_unit_test(test_row_alone),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_sharp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
