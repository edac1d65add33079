/* How fast the CPU kernels are on one core, beside what the machine can do in the same
 * run: one plain call of sgemm of the same shape, and a plain read of memory. The
 * shapes are those of SmolLM2-135M. usage: kernels [gemm|few|attn ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/blas.h"
#include "kernels/kernel.h"

#define HEADS      9
#define KV_HEADS   3
#define HEAD_DIM   64
#define TRIES      7
#define READ_BYTES ((size_t)256 << 20)

static struct kernel_ctx *ctx;

struct shape {
    int rows, N, K;
};

static const struct shape gemms[] = {
    {256, 960, 576},   {256, 576, 576},   {256, 3072, 576},  {256, 576, 1536},
    {256, 49152, 576}, {512, 960, 576},   {512, 576, 576},   {512, 3072, 576},
    {512, 576, 1536},  {512, 49152, 576}, {2048, 3072, 576}, {64, 3072, 576},
};

/* n floats near 1. */
static float *numbers(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);

    if (!x) {
        fprintf(stderr, "no memory for the benchmark\n");
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        x[i] = 1.0f + (float)(i * 2654435761u % 1024) * 1e-4f;
    return x;
}

/* Everything that a measured function may need. */
struct work {
    struct shape s;
    float *x, *w, *y;
    struct kernel_rows rows;
    struct kernel_attn attn;
};

/* Seconds of processor time of this thread: what else runs on the machine counts less. */
static double cpu_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef void run_fn(const struct work *work);

/* Time of one run; short ones are repeated. */
static double one_time(run_fn *run, const struct work *work)
{
    double start = cpu_time(), t;
    int n = 0;

    do {
        run(work);
        t = cpu_time() - start;
    } while (++n < 1000 && t < 0.01);
    return t / n;
}

/* Shortest times (n) of n functions, which take turns, so that all meet the same
 * machine. */
static void best_times(double *best, run_fn *const *runs, int n, const struct work *work)
{
    for (int i = 0; i < TRIES * n; i++) {
        double t = one_time(runs[i % n], work);
        if (i < n || t < best[i % n])
            best[i % n] = t;
    }
}

static double best_time(run_fn *run, const struct work *work)
{
    double best;

    best_times(&best, &run, 1, work);
    return best;
}

static void plain_sgemm(const struct work *a)
{
    blas_sgemm(true, a->s.rows, a->s.N, a->s.K, 1.0f, a->x, a->s.K, a->w, a->s.K, 0.0f,
               a->y, a->s.N);
}

static void kernel_gemm(const struct work *a)
{
    ctx->ops->gemm_fwd(ctx, a->y, a->x, a->w, NULL, false, a->s.rows, a->s.N, a->s.K);
}

static struct work gemm_work(struct shape s)
{
    return (struct work){.s = s,
                         .x = numbers((size_t)s.rows * s.K),
                         .w = numbers((size_t)s.N * s.K),
                         .y = numbers((size_t)s.rows * s.N)};
}

static void work_free(struct work *a)
{
    free(a->x);
    free(a->w);
    free(a->y);
}

static void bench_gemm(void)
{
    printf("%6s %6s %6s %14s %14s %8s\n", "rows", "N", "K", "sgemm GFLOP/s",
           "kernel GFLOP/s", "share");
    for (size_t i = 0; i < ARRAY_LEN(gemms); i++) {
        struct work a = gemm_work(gemms[i]);
        double flop = 2.0 * a.s.rows * a.s.N * a.s.K;
        double t[2];
        best_times(t, (run_fn *const[]){plain_sgemm, kernel_gemm}, 2, &a);
        printf("%6d %6d %6d %14.1f %14.1f %7.0f%%\n", a.s.rows, a.s.N, a.s.K,
               flop / t[0] * 1e-9, flop / t[1] * 1e-9, 100 * t[0] / t[1]);
        work_free(&a);
    }
}

/* A read of memory that nothing else slows: eight sums, one word of every cache line
 * and more. */
static void plain_read(const struct work *a)
{
    const uint64_t *p = (const uint64_t *)a->w;
    uint64_t sum[8] = {0};

    for (size_t i = 0; i < READ_BYTES / sizeof(*p); i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += p[i + j];
    }
    memcpy(a->y, sum, sizeof(sum));
}

static void bench_few(void)
{
    const int rows[] = {1, 2, 4, 8, 16, 32};
    struct work memory = {.w = numbers(READ_BYTES / sizeof(float)), .y = numbers(64)};

    printf("weights streamed, N 49152, K 576; plain read %.1f GB/s\n%6s %8s %10s\n",
           READ_BYTES / best_time(plain_read, &memory) * 1e-9, "rows", "GB/s", "GFLOP/s");
    work_free(&memory);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct work a = gemm_work((struct shape){rows[i], 49152, 576});
        double t = best_time(kernel_gemm, &a), bytes = 4.0 * a.s.N * a.s.K;
        printf("%6d %8.1f %10.1f\n", rows[i], bytes / t * 1e-9,
               bytes / 2 * rows[i] / t * 1e-9);
        work_free(&a);
    }
}

static void kernel_attn(const struct work *a)
{
    ctx->ops->attn_fwd(ctx, a->y, a->x, a->w, a->w, &a->rows, &a->attn);
}

/* `segs` sequences that each have `prefix` tokens in the cache and `count` rows. */
static void bench_attention(int segs, int prefix, int count)
{
    int width = (HEADS + 2 * KV_HEADS) * HEAD_DIM, len = prefix + count, R = segs * count;
    int blocks = (len + KERNEL_KV_BLOCK - 1) / KERNEL_KV_BLOCK;
    int32_t *pos = malloc(sizeof(*pos) * R), *row_seg = malloc(sizeof(*row_seg) * R);
    int32_t *seg_row = calloc(segs + 1, sizeof(*seg_row));
    int32_t *table = malloc(sizeof(*table) * segs * blocks);
    struct work a = {
        .x = numbers((size_t)R * width),
        .w = numbers((size_t)segs * blocks * KV_HEADS * KERNEL_KV_BLOCK * HEAD_DIM),
        .y = numbers((size_t)R * HEADS * HEAD_DIM),
        .rows = {R, segs, count, len, blocks, pos, row_seg, seg_row, table},
        .attn = {HEADS, KV_HEADS, HEAD_DIM, 0.125f},
    };
    double seen = (prefix + (count + 1) / 2.0) * R, t;

    for (int r = 0; r < R; r++) {
        pos[r] = prefix + r % count;
        row_seg[r] = r / count;
        seg_row[r / count + 1] = r + 1;
    }
    for (int i = 0; i < segs * blocks; i++)
        table[i] = i;
    t = best_time(kernel_attn, &a);
    printf("%6d %6d %6d %10.1f %10.1f\n", segs, prefix, count, t * 1e6,
           4.0 * seen * HEADS * HEAD_DIM / t * 1e-9);
    work_free(&a);
    free(pos);
    free(row_seg);
    free(seg_row);
    free(table);
}

static void bench_attn(void)
{
    printf("attention, H %d K %d D %d\n%6s %6s %6s %10s %10s\n", HEADS, KV_HEADS,
           HEAD_DIM, "segs", "prefix", "rows", "us", "GFLOP/s");
    bench_attention(1, 0, 256);
    bench_attention(1, 0, 512);
    bench_attention(1, 1792, 256);
    bench_attention(8, 0, 64);
    bench_attention(1, 512, 1);
    bench_attention(8, 512, 1);
    bench_attention(8, 2048, 1);
}

static bool wanted(int argc, char **argv, const char *name)
{
    bool found = argc == 1;

    for (int i = 1; i < argc; i++)
        found |= !strcmp(argv[i], name);
    return found;
}

int main(int argc, char **argv)
{
    if (kernel_cpu_create(&ctx, 1, NULL))
        return 1;
    if (wanted(argc, argv, "gemm"))
        bench_gemm();
    if (wanted(argc, argv, "few"))
        bench_few();
    if (wanted(argc, argv, "attn"))
        bench_attn();
    kernel_destroy(ctx);
    return 0;
}
