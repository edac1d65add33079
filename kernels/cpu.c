/* The CPU backend: its context, memory and table of kernels. */
#include "kernels/cpu.h"
#include "kernels/train_cpu.h"
#include "kernels/blas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN             64
#define ROW_TILE_ELEMENTS 16384

const struct vec_ops *cpu_vec(const struct kernel_ctx *ctx)
{
    return ((const struct cpu_ctx *)ctx)->vec;
}

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

bool cpu_scratch(struct kernel_ctx *ctx, char **base, size_t *stride, size_t bytes)
{
    size_t total;
    void *p;

    if (bytes > SIZE_MAX - ALIGN ||
        size_mul(&total, round_up(bytes), (size_t)pool_threads(ctx->pool))) {
        kernel_fail(ctx, -EOVERFLOW);
        return false;
    }
    if (total > ctx->scratch_bytes) {
        p = aligned_alloc(ALIGN, total);
        if (!p) {
            log_error("no memory for %zu bytes of work space of a CPU lane", total);
            kernel_fail(ctx, -ENOMEM);
            return false;
        }
        free(ctx->scratch);
        ctx->scratch = p;
        ctx->scratch_bytes = total;
    }
    *base = ctx->scratch;
    *stride = round_up(bytes);
    return true;
}

void cpu_run(struct kernel_ctx *ctx, pool_fn *fn, void *arg, int tiles)
{
    pool_run(ctx->pool, fn, arg, tiles);
}

int cpu_pieces(int n, int size)
{
    return n / size + (n % size != 0);
}

int cpu_piece(int n, int size, int i)
{
    return n - i * size < size ? n - i * size : size;
}

int cpu_row_tile(size_t elements_per_row)
{
    size_t rows = elements_per_row ? ROW_TILE_ELEMENTS / elements_per_row : 1;

    return rows ? (int)rows : 1;
}

static int mem_alloc(struct kernel_ctx *ctx, void **p, size_t bytes)
{
    (void)ctx;
    *p =
        bytes <= SIZE_MAX - ALIGN ? aligned_alloc(ALIGN, round_up(bytes + !bytes)) : NULL;
    if (*p)
        return 0;
    log_error(
        "no memory for %zu bytes on a CPU lane: use more lanes or a smaller context",
        bytes);
    return -ENOMEM;
}

static void mem_free(struct kernel_ctx *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static void copy(struct kernel_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memcpy(dst, src, bytes);
}

static void upload_f32(struct kernel_ctx *ctx, void *dst, const float *src, size_t n)
{
    copy(ctx, dst, src, n * sizeof(float));
}

static void zero(struct kernel_ctx *ctx, void *dst, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memset(dst, 0, bytes);
}

static void sync(struct kernel_ctx *ctx)
{
    (void)ctx;
}

static void destroy(struct kernel_ctx *ctx)
{
    pool_destroy(ctx->pool);
    free(ctx->scratch);
    free(ctx);
}

static const struct kernel_ops cpu_ops = {
    .name = "cpu",
    .destroy = destroy,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .upload = copy,
    .upload_f32 = upload_f32,
    .download = copy,
    .zero = zero,
    .sync = sync,
    .embed_fwd = embed_fwd_cpu,
    .norm_fwd = norm_fwd_cpu,
    .gemm_fwd = gemm_fwd_cpu,
    .head_fwd = head_fwd_cpu,
    .rope_fwd = rope_fwd_cpu,
    .kv_store = kv_store_cpu,
    .attn_fwd = attn_fwd_cpu,
    .swiglu_fwd = swiglu_fwd_cpu,
    .gather_fwd = gather_fwd_cpu,
    .sample = sample_cpu,
    .logprob = logprob_cpu,
    .train = &train_ops_cpu,
};

int kernel_cpu_create(struct kernel_ctx **out, int n_threads, const int *cpus)
{
    struct cpu_ctx *ctx = calloc(1, sizeof(*ctx));
    int err;

    if (!ctx)
        return -ENOMEM;
    err = blas_open();
    if (!err)
        err = pool_create(&ctx->base.pool, n_threads, cpus);
    if (err) {
        free(ctx);
        return err;
    }
    ctx->base.ops = &cpu_ops;
    ctx->base.dtype = DTYPE_F32;
    ctx->base.device = -1;
    ctx->vec = vec_select();
    *out = &ctx->base;
    return 0;
}
