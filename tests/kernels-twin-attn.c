/* The KV cache and attention: CUDA against the CPU. What no row may see is filled with
 * NaN. */
#include "tests/kernels-twin.h"

static uint64_t rng = 31;

/* Host and device side of one batch. */
struct fixture {
    struct test_batch batch;
    struct kernel_rows gpu_rows;
    struct kernel_attn attn;
    size_t nq, nkv, no; /* elements of qkv, of k and v, of o */
    float *qkv, *k, *v, *o;
    void *gqkv, *gk, *gv, *go;
};

/* Keys and values at the positions before the rows; NaN elsewhere. */
static float *make_cache(const struct twin *t, const struct fixture *f,
                         const struct test_segment *seg)
{
    float *cache = test_alloc(f->nkv * sizeof(*cache)), *x;
    int D = f->attn.head_dim, K = f->attn.kv_heads;

    memset(cache, 0xff, f->nkv * sizeof(*cache));
    for (int s = 0; s < f->batch.rows.segs; s++) {
        for (int i = 0; i < seg[s].prefix * K; i++) {
            int at = i / K, head = i % K;
            size_t id = (size_t)f->batch.rows
                            .table[s * f->batch.rows.table_ld + at / KERNEL_KV_BLOCK];
            x = numbers(t, &rng, (size_t)D, 2);
            memcpy(cache + ((id * K + head) * KERNEL_KV_BLOCK + at % KERNEL_KV_BLOCK) * D,
                   x, (size_t)D * sizeof(*x));
            free(x);
        }
    }
    return cache;
}

static void upload_rows(const struct twin *t, struct fixture *f)
{
    const struct kernel_rows *rows = &f->batch.rows;

    f->gpu_rows = *rows;
    f->gpu_rows.pos = up(t, rows->pos, (size_t)rows->rows * sizeof(int32_t));
    f->gpu_rows.row_seg = up(t, rows->row_seg, (size_t)rows->rows * sizeof(int32_t));
    f->gpu_rows.seg_row =
        up(t, rows->seg_row, (size_t)(rows->segs + 1) * sizeof(int32_t));
    f->gpu_rows.table =
        up(t, rows->table, (size_t)rows->segs * rows->table_ld * sizeof(int32_t));
}

static void make(const struct twin *t, struct fixture *f, const struct test_segment *seg,
                 int segs, int H, int K, int D)
{
    test_batch_make(&f->batch, seg, segs, &rng);
    f->attn = (struct kernel_attn){H, K, D, 1.0f / sqrtf((float)D)};
    f->nq = (size_t)f->batch.rows.rows * (H + 2 * K) * D;
    f->no = (size_t)f->batch.rows.rows * H * D;
    f->nkv = (size_t)f->batch.blocks * K * KERNEL_KV_BLOCK * D;
    f->qkv = numbers(t, &rng, f->nq, 2);
    f->o = test_alloc(f->no * sizeof(float));
    f->k = make_cache(t, f, seg);
    f->v = make_cache(t, f, seg);
    upload_rows(t, f);
    f->gqkv = up_numbers(t, f->qkv, f->nq);
    f->gk = up_numbers(t, f->k, f->nkv);
    f->gv = up_numbers(t, f->v, f->nkv);
    f->go = up_numbers(t, f->o, f->no);
}

static void unmake(const struct twin *t, struct fixture *f)
{
    drop(t, (void *)f->gpu_rows.pos);
    drop(t, (void *)f->gpu_rows.row_seg);
    drop(t, (void *)f->gpu_rows.seg_row);
    drop(t, (void *)f->gpu_rows.table);
    drop(t, f->gqkv);
    drop(t, f->gk);
    drop(t, f->gv);
    drop(t, f->go);
    test_batch_free(&f->batch);
    free(f->qkv);
    free(f->k);
    free(f->v);
    free(f->o);
}

/* Both caches are equal, NaN for NaN. */
static void compare_cache(const struct twin *t, const char *what, const void *gpu,
                          const float *cpu, size_t n)
{
    float *x = down_numbers(t, gpu, n);

    for (size_t i = 0; i < n; i++) {
        if (!(x[i] == cpu[i] || (isnan(x[i]) && isnan(cpu[i]))))
            fail_msg("%s, %s: element %zu is %g, not %g", what, dtype_name(t->dtype), i,
                     x[i], cpu[i]);
    }
    free(x);
}

/* Row by row, so that one wrong row is not lost among the others. */
static void compare_rows(const struct twin *t, const struct fixture *f, const char *what)
{
    size_t width = f->no / f->batch.rows.rows;
    float *x = down_numbers(t, f->go, f->no);
    char name[200];

    for (int r = 0; r < f->batch.rows.rows; r++) {
        snprintf(name, sizeof(name), "%s, row %d at position %d", what, r,
                 f->batch.rows.pos[r]);
        compare_floats(t, name, x + r * width, f->o + r * width, width, t->bound);
    }
    free(x);
}

static void check(struct twin *t, const struct test_segment *seg, int segs, int H, int K,
                  int D)
{
    struct fixture f;
    char what[100];

    make(t, &f, seg, segs, H, K, D);
    snprintf(what, sizeof(what), "attention H %d K %d D %d", H, K, D);
    t->cpu->ops->kv_store(t->cpu, f.k, f.v, f.qkv, &f.batch.rows, &f.attn);
    t->gpu->ops->kv_store(t->gpu, f.gk, f.gv, f.gqkv, &f.gpu_rows, &f.attn);
    compare_cache(t, "kv_store of k", f.gk, f.k, f.nkv);
    compare_cache(t, "kv_store of v", f.gv, f.v, f.nkv);
    t->cpu->ops->attn_fwd(t->cpu, f.o, f.qkv, f.k, f.v, &f.batch.rows, &f.attn);
    t->gpu->ops->attn_fwd(t->gpu, f.go, f.gqkv, f.gk, f.gv, &f.gpu_rows, &f.attn);
    compare_rows(t, &f, what);
    unmake(t, &f);
}

static void test_decode(void **state)
{
    static const int shapes[][3] = {{1, 1, 8},   {9, 3, 64},   {4, 4, 128}, {32, 8, 128},
                                    {8, 1, 256}, {14, 2, 64},  {6, 2, 72},  {40, 2, 24},
                                    {32, 1, 40}, {16, 8, 160}, {3, 3, 16}};
    const struct test_segment seg[] = {{0, 1},  {63, 1},  {64, 1},
                                       {65, 1}, {500, 1}, {10, 3}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        check(*state, seg, ARRAY_LEN(seg), shapes[i][0], shapes[i][1], shapes[i][2]);
    check(*state, (struct test_segment[]){{4095, 1}}, 1, 32, 8, 128);
}

static void test_prefill(void **state)
{
    static const int shapes[][3] = {{1, 1, 8},   {9, 3, 64},  {4, 4, 128}, {32, 8, 128},
                                    {8, 1, 256}, {14, 2, 64}, {6, 2, 72},  {4, 2, 24},
                                    {2, 1, 40},  {4, 2, 160}, {3, 3, 16},  {2, 2, 200}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int *s = shapes[i];
        check(*state, (struct test_segment[]){{0, 5}}, 1, s[0], s[1], s[2]);
        check(*state, (struct test_segment[]){{0, 150}}, 1, s[0], s[1], s[2]);
        check(*state, (struct test_segment[]){{64, 64}, {127, 65}}, 2, s[0], s[1], s[2]);
    }
    check(*state, (struct test_segment[]){{1800, 256}}, 1, 32, 8, 128);
}

static void test_mixed(void **state)
{
    const struct test_segment seg[] = {{100, 1}, {0, 90}, {512, 1},
                                       {70, 7},  {3, 5},  {9, 2}};

    check(*state, seg, ARRAY_LEN(seg), 9, 3, 64);
    check(*state, seg, ARRAY_LEN(seg), 32, 8, 128);
    for (int i = 0; i < 10; i++) {
        struct test_segment some[4];
        int K = random_int(&rng, 1, 4), G = random_int(&rng, 1, 9);
        for (int s = 0; s < 4; s++)
            some[s] =
                (struct test_segment){random_int(&rng, 0, 200), random_int(&rng, 1, 40)};
        check(*state, some, 4, K * G, K, 8 * random_int(&rng, 1, 32));
    }
}

/* The same again, and each decode row as a batch of its own: equal to the bit. */
static void test_bits(void **state)
{
    const struct test_segment seg[] = {{100, 1}, {0, 90}, {512, 1}, {63, 1}, {0, 1}};
    struct twin *t = *state;
    struct fixture f;
    const int32_t zero[] = {0}, ends[] = {0, 1};
    float *first, *again;
    size_t width = (size_t)9 * 64;
    void *gzero = up(t, zero, sizeof(zero)), *gends = up(t, ends, sizeof(ends)), *go;

    make(t, &f, seg, ARRAY_LEN(seg), 9, 3, 64);
    go = up_numbers(t, f.o, width);
    t->gpu->ops->kv_store(t->gpu, f.gk, f.gv, f.gqkv, &f.gpu_rows, &f.attn);
    t->gpu->ops->attn_fwd(t->gpu, f.go, f.gqkv, f.gk, f.gv, &f.gpu_rows, &f.attn);
    first = down_numbers(t, f.go, f.no);
    t->gpu->ops->attn_fwd(t->gpu, f.go, f.gqkv, f.gk, f.gv, &f.gpu_rows, &f.attn);
    again = down_numbers(t, f.go, f.no);
    assert_memory_equal(first, again, f.no * sizeof(*first));
    free(again);
    for (size_t s = 0; s < ARRAY_LEN(seg); s++) {
        int row = f.batch.rows.seg_row[s], B = f.batch.rows.table_ld;
        size_t bytes = t->dtype == DTYPE_BF16 ? 2 : 4;
        struct kernel_rows one = {1,
                                  1,
                                  1,
                                  seg[s].prefix + 1,
                                  B,
                                  f.gpu_rows.pos + row,
                                  gzero,
                                  gends,
                                  f.gpu_rows.table + s * B};
        if (seg[s].count > 1)
            continue;
        t->gpu->ops->attn_fwd(t->gpu, go, (char *)f.gqkv + row * (size_t)15 * 64 * bytes,
                              f.gk, f.gv, &one, &f.attn);
        again = down_numbers(t, go, width);
        assert_memory_equal(again, first + row * width, width * sizeof(*again));
        free(again);
    }
    free(first);
    drop(t, go);
    drop(t, gzero);
    drop(t, gends);
    unmake(t, &f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_F32(test_decode),   IN_BF16(test_decode), IN_F32(test_prefill),
        IN_BF16(test_prefill), IN_F32(test_mixed),   IN_BF16(test_mixed),
        IN_F32(test_bits),     IN_BF16(test_bits),
    };

    if (device_count() == 0)
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
