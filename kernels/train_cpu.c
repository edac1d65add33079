/* The CPU's table of training kernels, and what they share. */
#include "kernels/train_cpu.h"

#include <errno.h>
#include <string.h>

#define COLUMNS      256 /* of a tile of add_columns_cpu */
/* Rows that are summed by themselves, so that fp32 loses little. */
#define COLUMN_BLOCK 64

bool train_scratch(struct kernel_ctx *ctx, char **base, size_t *stride, size_t bytes,
                   float **shared, size_t n)
{
    size_t threads = (size_t)pool_threads(ctx->pool), total;

    if (size_mul(&total, n, sizeof(float)) ||
        size_add(&total, total / threads + sizeof(float), (bytes + 63) / 64 * 64)) {
        kernel_fail(ctx, -EOVERFLOW);
        return false;
    }
    if (!cpu_scratch(ctx, base, stride, total))
        return false;
    *stride = (bytes + 63) / 64 * 64;
    *shared = (float *)(*base + threads * *stride);
    return true;
}

struct columns {
    const struct vec_ops *vec;
    float *y;
    const float *x;
    int rows, n;
    size_t ld;
};

static void columns_tile(void *arg, int tile, int thread)
{
    const struct columns *c = arg;
    int first = tile * COLUMNS;
    size_t count = (size_t)cpu_piece(c->n, COLUMNS, tile);
    float total[COLUMNS] = {0}, part[COLUMNS];

    (void)thread;
    for (int r = 0; r < c->rows; r += COLUMN_BLOCK) {
        int end = r + cpu_piece(c->rows, COLUMN_BLOCK, r / COLUMN_BLOCK);
        memset(part, 0, count * sizeof(float));
        for (int i = r; i < end; i++)
            c->vec->add(part, c->x + (size_t)i * c->ld + first, count);
        c->vec->add(total, part, count);
    }
    c->vec->add(c->y + first, total, count);
}

void add_columns_cpu(struct kernel_ctx *ctx, float *y, const float *x, int rows, int n,
                     size_t ld)
{
    struct columns columns = {cpu_vec(ctx), y, x, rows, n, ld};

    cpu_run(ctx, columns_tile, &columns, cpu_pieces(n, COLUMNS));
}

static void copy_rows_cpu(struct kernel_ctx *ctx, void *y, const void *x, int rows, int n,
                          size_t ldy, size_t ldx)
{
    (void)ctx;
    for (int r = 0; r < rows; r++)
        memcpy((float *)y + (size_t)r * ldy, (const float *)x + (size_t)r * ldx,
               (size_t)n * sizeof(float));
}

const struct kernel_train_ops train_ops_cpu = {
    .norm_bwd = norm_bwd_cpu,
    .gemm_bwd_input = gemm_bwd_input_cpu,
    .gemm_bwd_weight = gemm_bwd_weight_cpu,
    .rope_bwd = rope_bwd_cpu,
    .attn_train_fwd = attn_train_fwd_cpu,
    .attn_bwd = attn_bwd_cpu,
    .swiglu_bwd = swiglu_bwd_cpu,
    .embed_bwd = embed_bwd_cpu,
    .cross_entropy = cross_entropy_cpu,
    .sum_squares = sum_squares_cpu,
    .adamw = adamw_cpu,
    .copy_rows = copy_rows_cpu,
    .accumulate = accumulate_cpu,
};
