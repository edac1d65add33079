/* Attention in training: CUDA against the CPU. Both get the same o and lse for the way
 * back, so that each kernel is judged by itself. Results start as NaN. */
#include "kernels/train.h"
#include "tests/kernels-twin.h"

static uint64_t rng = 71;

/* Host and device side of one batch of whole sequences. */
struct fixture {
    struct test_batch batch;
    struct kernel_rows gpu_rows;
    struct kernel_attn attn;
    size_t R, ld, ldo;
    float *qkv, *o, *lse, *dout, *dqkv, *delta;
    void *gqkv, *go, *glse, *gdout, *gdqkv, *gdelta;
};

/* n elements of NaN on the GPU. */
static void *poison(const struct twin *t, size_t n)
{
    uint8_t *x = test_alloc(n * sizeof(float));
    void *p;

    memset(x, 0xff, n * sizeof(float));
    p = up(t, x, n * sizeof(float));
    free(x);
    return p;
}

/* What the twin's type holds of x (n), towards zero. */
static void truncate_all(const struct twin *t, float *x, size_t n)
{
    for (size_t i = 0; i < n && t->dtype == DTYPE_BF16; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        x[i] = bf16_to_float((uint16_t)(bits >> 16));
    }
}

static void make(const struct twin *t, struct fixture *f, const int *rows, int segs,
                 int H, int K, int D)
{
    struct test_segment seg[16];

    for (int s = 0; s < segs; s++)
        seg[s] = (struct test_segment){0, rows[s]};
    test_batch_make(&f->batch, seg, segs, &rng);
    f->attn = (struct kernel_attn){H, K, D, 1.0f / sqrtf((float)D)};
    f->R = (size_t)f->batch.rows.rows;
    f->ld = (size_t)(H + 2 * K) * D;
    f->ldo = (size_t)H * D;
    f->qkv = numbers(t, &rng, f->R * f->ld, 2);
    f->dout = numbers(t, &rng, f->R * f->ldo, 1);
    f->o = test_alloc(f->R * f->ldo * sizeof(float));
    f->lse = test_alloc(f->R * H * sizeof(float));
    f->dqkv = test_alloc(f->R * f->ld * sizeof(float));
    f->delta = test_alloc(f->R * H * sizeof(float));
    f->gpu_rows = f->batch.rows;
    f->gpu_rows.pos = f->gpu_rows.row_seg = f->gpu_rows.table = NULL;
    f->gpu_rows.seg_row =
        up(t, f->batch.rows.seg_row, (size_t)(segs + 1) * sizeof(int32_t));
    f->gqkv = up_numbers(t, f->qkv, f->R * f->ld);
    f->gdout = up_numbers(t, f->dout, f->R * f->ldo);
    f->go = poison(t, f->R * f->ldo);
    f->glse = poison(t, f->R * H);
    f->gdqkv = poison(t, f->R * f->ld);
    f->gdelta = poison(t, f->R * H);
}

static void unmake(const struct twin *t, struct fixture *f)
{
    void *gpu[] = {f->gqkv,
                   f->go,
                   f->glse,
                   f->gdout,
                   f->gdqkv,
                   f->gdelta,
                   (void *)f->gpu_rows.seg_row};
    float *cpu[] = {f->qkv, f->o, f->lse, f->dout, f->dqkv, f->delta};

    for (size_t i = 0; i < ARRAY_LEN(gpu); i++)
        drop(t, gpu[i]);
    for (size_t i = 0; i < ARRAY_LEN(cpu); i++)
        free(cpu[i]);
    test_batch_free(&f->batch);
}

/* Vectors of D, one by one, so that one wrong one is not lost among the others. One that
 * is small beside the mean, or the floor, is measured by them, since it is a difference of
 * larger numbers. */
static void compare_vectors(const struct twin *t, const char *what, const float *x,
                            const float *y, size_t vectors, int D, int heads,
                            double floor)
{
    double bound = t->dtype == DTYPE_F32 ? 1e-5 : 2e-2, mean = floor;

    for (size_t i = 0; i < vectors * D; i++)
        mean += (double)y[i] * y[i] / (double)vectors;
    for (size_t v = 0; v < vectors; v++) {
        double error = 0, norm = 0;
        for (size_t i = v * D; i < (v + 1) * D; i++) {
            error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            norm += (double)y[i] * y[i];
        }
        if (!(sqrt(error) <= bound * (sqrt(norm) + sqrt(mean))))
            fail_msg("%s, %s: row %zu, vector %zu differs by %.3g of %.3g", what,
                     dtype_name(t->dtype), v / heads, v % heads, sqrt(error), sqrt(norm));
    }
}

/* q, k and v apart, since their sizes differ. */
static void compare_grads(const struct twin *t, const struct fixture *f, const char *what)
{
    static const char part[] = {'q', 'k', 'v'};
    float *x = down_numbers(t, f->gdqkv, f->R * f->ld);
    int D = f->attn.head_dim, first = 0;
    double floor = 0;
    char name[120];

    /* A row that sees one key alone has a dq and dk of 0: what is left there is rounding of
     * numbers as large as the rest. */
    for (size_t i = 0; i < f->R * f->ld; i++)
        floor += (double)f->dqkv[i] * f->dqkv[i] / ((double)f->R * f->ld / D);
    for (int p = 0; p < 3; p++) {
        int heads = p ? f->attn.kv_heads : f->attn.heads;
        size_t width = (size_t)heads * D;
        float *a = test_alloc(f->R * width * sizeof(*a));
        float *b = test_alloc(f->R * width * sizeof(*b));
        for (size_t r = 0; r < f->R; r++) {
            size_t at = r * f->ld + (size_t)first * D;
            memcpy(a + r * width, x + at, width * sizeof(*a));
            memcpy(b + r * width, f->dqkv + at, width * sizeof(*b));
        }
        snprintf(name, sizeof(name), "%s, d%c", what, part[p]);
        compare_vectors(t, name, a, b, f->R * heads, D, heads, floor);
        first += heads;
        free(a);
        free(b);
    }
    free(x);
}

static void run_forward(struct twin *t, struct fixture *f)
{
    kernel_train(t->gpu)->attn_train_fwd(t->gpu, f->go, f->glse, f->gqkv, &f->gpu_rows,
                                         &f->attn);
}

static void run_backward(struct twin *t, struct fixture *f)
{
    kernel_train(t->gpu)->attn_bwd(t->gpu, f->gdqkv, f->gdelta, f->gdout, f->gqkv, f->go,
                                   f->glse, &f->gpu_rows, &f->attn);
}

static void check(struct twin *t, const int *rows, int segs, int H, int K, int D)
{
    const struct kernel_train_ops *cpu = kernel_train(t->cpu);
    struct fixture f;
    float *x;
    char what[100];

    make(t, &f, rows, segs, H, K, D);
    snprintf(what, sizeof(what), "attention H %d K %d D %d, %zu rows", H, K, D, f.R);
    cpu->attn_train_fwd(t->cpu, f.o, f.lse, f.qkv, &f.batch.rows, &f.attn);
    run_forward(t, &f);
    x = down_numbers(t, f.go, f.R * f.ldo);
    compare_vectors(t, what, x, f.o, f.R * H, D, H, 0);
    down(t, x, f.glse, f.R * H * sizeof(float));
    compare_floats(t, "attention's lse", x, f.lse, f.R * H, 1e-5);
    truncate_all(t, f.o, f.R * f.ldo);
    t->gpu->ops->upload_f32(t->gpu, f.go, f.o, f.R * f.ldo);
    t->gpu->ops->upload(t->gpu, f.glse, f.lse, f.R * H * sizeof(float));
    cpu->attn_bwd(t->cpu, f.dqkv, f.delta, f.dout, f.qkv, f.o, f.lse, &f.batch.rows,
                  &f.attn);
    run_backward(t, &f);
    compare_grads(t, &f, what);
    free(x);
    unmake(t, &f);
}

static void test_shapes(void **state)
{
    static const int shapes[][3] = {{1, 1, 8},   {9, 3, 64},  {4, 4, 128}, {8, 2, 128},
                                    {8, 1, 256}, {14, 2, 64}, {6, 2, 72},  {4, 2, 24},
                                    {2, 1, 40},  {4, 2, 160}, {3, 3, 16},  {2, 2, 200}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int *s = shapes[i];
        check(*state, (int[]){1}, 1, s[0], s[1], s[2]);
        check(*state, (int[]){48, 48}, 2, s[0], s[1], s[2]);
        check(*state, (int[]){150}, 1, s[0], s[1], s[2]);
        check(*state, (int[]){65, 1, 33, 64}, 4, s[0], s[1], s[2]);
    }
}

static void test_random(void **state)
{
    for (int i = 0; i < 10; i++) {
        int rows[4], K = random_int(&rng, 1, 3), G = random_int(&rng, 1, 5);
        for (int s = 0; s < 4; s++)
            rows[s] = random_int(&rng, 1, 100);
        check(*state, rows, 4, K * G, K, 8 * random_int(&rng, 1, 32));
    }
}

static void test_long(void **state)
{
    check(*state, (int[]){700, 300}, 2, 4, 2, 64);
    check(*state, (int[]){600}, 1, 2, 1, 128);
}

/* The same again gives the same bits. */
static void test_bits(void **state)
{
    struct twin *t = *state;
    struct fixture f;
    float *o[2], *dqkv[2];

    make(t, &f, (int[]){200, 77}, 2, 6, 2, 64);
    for (int i = 0; i < 2; i++) {
        run_forward(t, &f);
        run_backward(t, &f);
        o[i] = down_numbers(t, f.go, f.R * f.ldo);
        dqkv[i] = down_numbers(t, f.gdqkv, f.R * f.ld);
    }
    assert_memory_equal(o[0], o[1], f.R * f.ldo * sizeof(float));
    assert_memory_equal(dqkv[0], dqkv[1], f.R * f.ld * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(o[i]);
        free(dqkv[i]);
    }
    unmake(t, &f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_F32(test_shapes),  IN_BF16(test_shapes), IN_F32(test_random),
        IN_BF16(test_random), IN_F32(test_long),    IN_BF16(test_long),
        IN_F32(test_bits),    IN_BF16(test_bits),
    };

    if (device_count() == 0)
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
