/* RMSNorm over rows, or over groups of a row. */
#include "kernels/cpu.h"

#include <math.h>

struct norm {
    const struct vec_ops *vec;
    float *y;
    const float *x, *weight;
    float eps;
    int rows, groups, C, row_tile;
    size_t ldy, ldx;
};

static void norm_tile(void *arg, int tile, int thread)
{
    const struct norm *n = arg;
    int first = tile * n->row_tile, count = cpu_piece(n->rows, n->row_tile, tile);

    (void)thread;
    for (int r = first; r < first + count; r++) {
        for (int g = 0; g < n->groups; g++) {
            const float *x = n->x + (size_t)r * n->ldx + (size_t)g * n->C;
            float *y = n->y + (size_t)r * n->ldy + (size_t)g * n->C;
            float mean = n->vec->squares(x, (size_t)n->C) / (float)n->C;
            n->vec->scale(y, x, n->weight, 1.0f / sqrtf(mean + n->eps), (size_t)n->C);
        }
    }
}

void norm_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const void *weight,
                  float eps, int rows, int groups, int C, size_t ldy, size_t ldx)
{
    struct norm norm = {
        .vec = cpu_vec(ctx),
        .y = y,
        .x = x,
        .weight = weight,
        .eps = eps,
        .rows = rows,
        .groups = groups,
        .C = C,
        .ldy = ldy,
        .ldx = ldx,
        .row_tile = cpu_row_tile((size_t)groups * C),
    };

    cpu_run(ctx, norm_tile, &norm, cpu_pieces(rows, norm.row_tile));
}
