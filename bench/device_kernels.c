/* The ceilings of a GPU, and its kernels alone at the sizes of prefill, of decode and of training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device.h"
#include "kernels/device.h"
#include "kernels/train.h"

#define POSITIONS          2048
#define SEQUENCES          4
#define ROWS               (SEQUENCES * POSITIONS)
#define CONTEXT            512
#define MILLISECONDS_A_TRY 20

static struct {
    void *stream, *begin, *end;
    struct kernel_ctx *k;
    uint8_t *noise; /* (noise_bytes) random numbers as bf16, on the host */
} gpu;

#define NOISE_BYTES ((size_t)16 << 20)

static void *check(int err, void *p)
{
    if (err)
        exit(1);
    return p;
}

static void open_gpu(void)
{
    uint64_t x = 88172645463325252ull;
    uint16_t *h = check(0, malloc(NOISE_BYTES));

    if (gpu.k)
        return;
    check(device_stream_create(&gpu.stream, 0, false), NULL);
    check(device_event_create(&gpu.begin, 0, true), NULL);
    check(device_event_create(&gpu.end, 0, true), NULL);
    struct device_info info;
    check(device_query(&info, 0), NULL);
    check(kernel_cuda_create(&gpu.k, 0, gpu.stream, info.sm_count, DTYPE_BF16), NULL);
    for (size_t i = 0; i < NOISE_BYTES / 2;
         i++) { /* sums of 4 uniform numbers, about (-1, 1) */
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            sum += (float)(x >> 40) * 0x1p-25f - 0.25f;
        }
        uint32_t bits;
        memcpy(&bits, &sum, sizeof(bits));
        h[i] = (uint16_t)(bits >> 16);
    }
    gpu.noise = (uint8_t *)h;
}

/* Device memory full of random bf16 numbers. */
static void *noise(size_t bytes)
{
    void *p;

    check(device_alloc(&p, 0, bytes), NULL);
    for (size_t at = 0; at < bytes; at += NOISE_BYTES) {
        size_t n = bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES;
        check(device_copy((uint8_t *)p + at, gpu.noise, n, gpu.stream), NULL);
    }
    check(device_stream_sync(gpu.stream), NULL);
    return p;
}

/* Everything that a measured call needs. */
struct call {
    const struct bench_shape *s;
    struct kernel_rows rows;
    struct kernel_attn attn;
    int R, N, K;
    void *x, *y, *w, *z;
    float *f, *g, *m, *v;
    int32_t *ints;
    size_t bytes;
};

typedef void run_fn(const struct call *c);

static double once(run_fn *run, const struct call *c, int n)
{
    double seconds;

    check(device_event_record(gpu.begin, gpu.stream), NULL);
    for (int i = 0; i < n; i++)
        run(c);
    check(device_event_record(gpu.end, gpu.stream), NULL);
    check(device_event_sync(gpu.end), NULL);
    check(device_event_elapsed(&seconds, gpu.begin, gpu.end), NULL);
    check(kernel_error(gpu.k), NULL);
    return seconds / n;
}

/* Median seconds of one call; short ones are repeated within a try. */
static double time_of(run_fn *run, const struct call *c)
{
    double t[BENCH_TRIES], first;

    once(run, c, 1);
    first = once(run, c, 2);
    int n = (int)(MILLISECONDS_A_TRY * 1e-3 / first) + 1;
    for (int i = 0; i < BENCH_TRIES; i++)
        t[i] = once(run, c, n < 1000 ? n : 1000);
    return bench_median(t, BENCH_TRIES);
}

static void run_gemm(const struct call *c)
{
    gpu.k->ops->gemm_fwd(gpu.k, c->y, c->x, c->w, NULL, false, c->R, c->N, c->K);
}

static void run_gemm_add(const struct call *c)
{
    gpu.k->ops->gemm_fwd(gpu.k, c->y, c->x, c->w, NULL, true, c->R, c->N, c->K);
}

static void run_copy(const struct call *c)
{
    check(device_copy(c->y, c->x, c->bytes, gpu.stream), NULL);
}

void bench_ceilings(struct ceilings *ceilings)
{
    const size_t n = 8192, copy = (size_t)4 << 30;

    open_gpu();
    struct call c = {.R = (int)n, .N = (int)n, .K = (int)n, .bytes = copy};
    c.x = noise(copy);
    c.y = noise(copy);
    c.w = noise(n * n * 2);
    ceilings->flops = 2.0 * n * n * n / time_of(run_gemm, &c);
    ceilings->bytes = 2.0 * copy / time_of(run_copy, &c);
    device_free(0, c.x);
    device_free(0, c.y);
    device_free(0, c.w);
}

/* ---- Kernels ----------------------------------------------------------------------------------- */

static void run_norm(const struct call *c)
{
    gpu.k->ops->norm_fwd(gpu.k, c->y, c->x, c->w, 1e-5f, c->R, 1, c->s->C, c->s->C,
                         c->s->C);
}

static void run_rope(const struct call *c)
{
    gpu.k->ops->rope_fwd(gpu.k, c->x, c->f, c->rows.pos, c->R, c->s->H + c->s->K, c->s->D,
                         (size_t)(c->s->H + 2 * c->s->K) * c->s->D);
}

static void run_store(const struct call *c)
{
    gpu.k->ops->kv_store(gpu.k, c->w, c->z, c->x, &c->rows, &c->attn);
}

static void run_attn(const struct call *c)
{
    gpu.k->ops->attn_fwd(gpu.k, c->y, c->x, c->w, c->z, &c->rows, &c->attn);
}

static void run_swiglu(const struct call *c)
{
    gpu.k->ops->swiglu_fwd(gpu.k, c->y, c->x, c->R, c->s->F);
}

static void run_train_attn(const struct call *c)
{
    gpu.k->ops->train->attn_train_fwd(gpu.k, c->y, c->f, c->x, &c->rows, &c->attn);
}

static void run_attn_bwd(const struct call *c)
{
    gpu.k->ops->train->attn_bwd(gpu.k, c->z, c->g, c->w, c->x, c->y, c->f, &c->rows,
                                &c->attn);
}

static void run_input(const struct call *c)
{
    gpu.k->ops->train->gemm_bwd_input(gpu.k, c->y, c->x, c->w, false, c->R, c->N, c->K);
}

static void run_weight(const struct call *c)
{
    gpu.k->ops->train->gemm_bwd_weight(gpu.k, c->f, NULL, c->x, c->y, c->R, c->N, c->K);
}

static void run_swiglu_bwd(const struct call *c)
{
    gpu.k->ops->train->swiglu_bwd(gpu.k, c->y, c->z, c->x, c->R, c->s->F);
}

static void run_norm_bwd(const struct call *c)
{
    int C = c->s->C;
    gpu.k->ops->train->norm_bwd(gpu.k, c->y, c->f, c->z, c->x, c->w, 1e-5f, true, c->R, 1,
                                C, C, C, C);
}

static void run_rows(const struct call *c)
{
    gpu.k->ops->train->copy_rows(gpu.k, c->y, c->x, c->R, c->s->C, c->s->C, c->s->C);
}

static void run_head(const struct call *c)
{
    gpu.k->ops->head_fwd(gpu.k, c->f, c->x, c->w, c->R, c->N, c->K);
}

static void run_loss(const struct call *c)
{
    gpu.k->ops->train->cross_entropy(gpu.k, c->g, c->y, c->ints, c->f, c->ints, 1e-4f,
                                     c->R, c->N);
}

static void run_adamw(const struct call *c)
{
    const struct kernel_adamw p = {1e-6f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.1f, 0.1f, 1.0f};
    gpu.k->ops->train->adamw(gpu.k, c->f, c->w, c->m, c->v, c->g, &p, c->bytes);
}

/* `segs` sequences of `rows` new tokens at position `from`. */
static struct kernel_rows make_rows(int segs, int rows, int from)
{
    int R = segs * rows, blocks = (from + rows + KERNEL_KV_BLOCK - 1) / KERNEL_KV_BLOCK;
    size_t n = 2 * (size_t)R + segs + 1 + (size_t)segs * blocks;
    int32_t *host = check(0, malloc(n * sizeof(*host))), *pos = host, *row_seg = pos + R;
    int32_t *seg_row = row_seg + R, *table = seg_row + segs + 1;
    void *p;

    for (int s = 0; s <= segs; s++)
        seg_row[s] = s * rows;
    for (int r = 0; r < R; r++) {
        pos[r] = from + r % rows;
        row_seg[r] = r / rows;
    }
    for (int b = 0; b < segs * blocks; b++)
        table[b] = b;
    check(device_alloc(&p, 0, n * sizeof(*host)), NULL);
    check(device_copy(p, host, n * sizeof(*host), gpu.stream), NULL);
    check(device_stream_sync(gpu.stream), NULL);
    free(host);
    int32_t *d = p;
    return (struct kernel_rows){.rows = R,
                                .segs = segs,
                                .max_rows = rows,
                                .max_len = from + rows,
                                .table_ld = blocks,
                                .pos = d,
                                .row_seg = d + R,
                                .seg_row = d + 2 * R,
                                .table = d + 2 * R + segs + 1};
}

static struct kernel_attn attn_of(const struct bench_shape *s)
{
    return (struct kernel_attn){s->H, s->K, s->D, 0.1f};
}

struct product {
    const char *name;
    int N, K;
    bool add;
};

static void products(const struct bench_shape *s, const struct ceilings *ceilings,
                     int rows, bool train)
{
    int ld = (s->H + 2 * s->K) * s->D, HD = s->H * s->D;
    const struct product list[] = {{"qkv", ld, s->C, false},
                                   {"o, added", s->C, HD, true},
                                   {"gate, up", 2 * s->F, s->C, false},
                                   {"down, added", s->C, s->F, true}};

    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct product *p = &list[i];
        struct call c = {.s = s, .R = rows, .N = p->N, .K = p->K};
        double weight = (double)p->N * p->K, flops = 2 * weight * rows;
        char text[96];
        c.x = noise((size_t)rows * (p->N > p->K ? p->N : p->K) * 2);
        c.y = noise((size_t)rows * (p->N > p->K ? p->N : p->K) * 2);
        c.w = noise((size_t)weight * 2);
        c.f = noise((size_t)weight * 4);
        snprintf(text, sizeof(text), "product %s, %d rows", p->name, rows);
        double t = time_of(p->add ? run_gemm_add : run_gemm, &c);
        if (rows >= 1024)
            bench_row_flops(text, t, flops, ceilings);
        else
            bench_row_bytes(text, t, 2 * (weight + (double)rows * (p->N + p->K)),
                            ceilings);
        if (train) {
            snprintf(text, sizeof(text), "  its input gradient");
            bench_row_flops(text, time_of(run_input, &c), flops, ceilings);
            snprintf(text, sizeof(text), "  its weight gradient");
            bench_row_flops(text, time_of(run_weight, &c), flops, ceilings);
        }
        device_free(0, c.x);
        device_free(0, c.y);
        device_free(0, c.w);
        device_free(0, c.f);
    }
}

static void prefill_kernels(const struct bench_shape *s, const struct ceilings *ceilings)
{
    double R = ROWS, HD = (double)s->H * s->D, ld = HD + 2.0 * s->K * s->D;
    size_t wide = (size_t)ROWS * 2 * s->F * 2;
    struct call c = {.s = s, .R = ROWS, .attn = attn_of(s)};

    c.rows = make_rows(SEQUENCES, POSITIONS, 0);
    c.x = noise(wide);
    c.y = noise(wide);
    c.w = noise((size_t)ROWS * s->K * s->D * 2 + (size_t)s->C * 2);
    c.z = noise(wide);
    c.f = noise((size_t)ROWS * (size_t)(s->D > s->H ? s->D : s->H) * 4);
    c.g = noise((size_t)ROWS * s->H * 4);
    bench_row_bytes("norm", time_of(run_norm, &c), 4 * R * s->C, ceilings);
    bench_row_bytes("copy_rows", time_of(run_rows, &c), 4 * R * s->C, ceilings);
    bench_row_bytes("rope", time_of(run_rope, &c), 4 * R * (HD + s->K * s->D), ceilings);
    bench_row_bytes("kv_store", time_of(run_store, &c), 8 * R * s->K * s->D, ceilings);
    bench_row_bytes("swiglu", time_of(run_swiglu, &c), 6 * R * s->F, ceilings);
    bench_row_flops("attention, causal", time_of(run_attn, &c), 2 * R * POSITIONS * HD,
                    ceilings);
    bench_row_flops("attention in training", time_of(run_train_attn, &c),
                    2 * R * POSITIONS * HD, ceilings);
    device_free(0, c.w);
    c.w = noise((size_t)ROWS * (size_t)ld * 2);
    bench_row_flops("  its gradient", time_of(run_attn_bwd, &c), 5 * R * POSITIONS * HD,
                    ceilings);
    bench_row_bytes("swiglu gradient", time_of(run_swiglu_bwd, &c), 10 * R * s->F,
                    ceilings);
    bench_row_bytes("norm gradient", time_of(run_norm_bwd, &c), 8 * R * s->C, ceilings);
    device_free(0, c.x);
    device_free(0, c.y);
    device_free(0, c.w);
    device_free(0, c.z);
    device_free(0, c.f);
    device_free(0, c.g);
}

static void head_kernels(const struct bench_shape *s, const struct ceilings *ceilings)
{
    struct call c = {.s = s, .R = 1024, .N = s->V, .K = s->C};
    double R = c.R, V = s->V;

    c.x = noise((size_t)c.R * s->V * 2);
    c.w = noise((size_t)s->V * s->C * 2);
    c.f = noise((size_t)s->V * s->C * 4);
    c.y = noise((size_t)c.R * s->V * 2);
    c.g = noise((size_t)c.R * 4);
    check(device_alloc((void **)&c.ints, 0, c.R * 4), NULL);
    gpu.k->ops->zero(gpu.k, c.ints, c.R * 4);
    bench_row_flops("head, 1024 rows", time_of(run_head, &c), 2 * R * V * s->C, ceilings);
    bench_row_bytes("cross-entropy, 1024 rows", time_of(run_loss, &c), 6 * R * V,
                    ceilings);
    bench_row_flops("  input gradient", time_of(run_input, &c), 2 * R * V * s->C,
                    ceilings);
    bench_row_flops("  weight gradient", time_of(run_weight, &c), 2 * R * V * s->C,
                    ceilings);
    device_free(0, c.x);
    device_free(0, c.w);
    device_free(0, c.f);
    device_free(0, c.y);
    device_free(0, c.g);
    device_free(0, c.ints);
}

static void adamw_kernel(const struct ceilings *ceilings)
{
    const size_t n = (size_t)64 << 20;
    struct call c = {.bytes = n};

    c.f = noise(4 * n);
    c.g = noise(4 * n);
    c.m = noise(4 * n);
    c.v = noise(4 * n);
    c.w = noise(2 * n);
    gpu.k->ops->zero(gpu.k, c.v, 4 * n);
    bench_row_bytes("adamw", time_of(run_adamw, &c), 34.0 * n, ceilings);
    device_free(0, c.f);
    device_free(0, c.g);
    device_free(0, c.m);
    device_free(0, c.v);
    device_free(0, c.w);
}

static void decode_kernels(const struct bench_shape *s, const struct ceilings *ceilings,
                           int sequences)
{
    int ld = (s->H + 2 * s->K) * s->D;
    size_t cache = (size_t)sequences * (CONTEXT + KERNEL_KV_BLOCK) * s->K * s->D * 2;
    struct call c = {.s = s, .R = sequences, .N = s->V, .K = s->C, .attn = attn_of(s)};
    char text[96];

    products(s, ceilings, sequences, false);
    c.rows = make_rows(sequences, 1, CONTEXT - 1);
    c.x = noise((size_t)sequences * ld * 2);
    c.y = noise((size_t)sequences * ld * 2);
    c.w = noise(cache);
    c.z = noise(cache);
    snprintf(text, sizeof(text), "attention at 512, %d rows", sequences);
    bench_row_bytes(text, time_of(run_attn, &c), 4.0 * sequences * CONTEXT * s->K * s->D,
                    ceilings);
    device_free(0, c.w);
    c.w = noise((size_t)s->V * s->C * 2);
    c.f = noise((size_t)sequences * s->V * 4);
    snprintf(text, sizeof(text), "head, %d rows", sequences);
    bench_row_bytes(text, time_of(run_head, &c), 2.0 * s->V * s->C, ceilings);
    device_free(0, c.w);
    device_free(0, c.x);
    device_free(0, c.y);
    device_free(0, c.z);
    device_free(0, c.f);
}

void bench_kernels(const struct bench_shape *s, const struct ceilings *c)
{
    products(s, c, ROWS, true);
    prefill_kernels(s, c);
    head_kernels(s, c);
    adamw_kernel(c);
    decode_kernels(s, c, 1);
    decode_kernels(s, c, 32);
}
