/* RMSNorm backwards. With r = 1 / sqrt(mean(x^2) + eps): dx = r w dy - x r^3 mean(w dy
 * x), and the weight's gradient is the sum of dy x r over all rows and groups. */
#include "kernels/train_cpu.h"

#include <math.h>
#include <string.h>

#define LEAST_ROWS 32 /* of a tile, so that there are few partial sums */

struct norm_bwd {
    const struct vec_ops *vec;
    float *dx, *partial; /* (R, lddx), (tiles, C); either may be NULL */
    const float *dy, *x, *weight;
    float eps;
    bool add;
    int rows, groups, C, row_tile;
    size_t lddx, lddy, ldx;
};

/* One vector of C. dy is read before dx is written, which may be the same. */
static void norm_bwd_vector(const struct norm_bwd *n, float *dx, float *partial,
                            const float *dy, const float *x)
{
    size_t C = (size_t)n->C;
    float scale = 1.0f / sqrtf(n->vec->squares(x, C) / (float)n->C + n->eps);

    if (partial)
        n->vec->add_product(partial, dy, x, scale, C);
    if (dx) {
        float mean = n->vec->dot_three(dy, x, n->weight, C) / (float)n->C;
        n->vec->norm_bwd(dx, dy, x, n->weight, scale, scale * scale * scale * mean,
                         n->add, C);
    }
}

static void norm_bwd_tile(void *arg, int tile, int thread)
{
    const struct norm_bwd *n = arg;
    int first = tile * n->row_tile, count = cpu_piece(n->rows, n->row_tile, tile);
    float *partial = n->partial ? n->partial + (size_t)tile * n->C : NULL;

    (void)thread;
    if (partial)
        memset(partial, 0, (size_t)n->C * sizeof(float));
    for (int r = first; r < first + count; r++) {
        for (int g = 0; g < n->groups; g++) {
            size_t at = (size_t)g * n->C;
            float *dx = n->dx ? n->dx + (size_t)r * n->lddx + at : NULL;
            norm_bwd_vector(n, dx, partial, n->dy + (size_t)r * n->lddy + at,
                            n->x + (size_t)r * n->ldx + at);
        }
    }
}

void norm_bwd_cpu(struct kernel_ctx *ctx, void *dx, float *dweight, const void *dy,
                  const void *x, const void *weight, float eps, bool add, int rows,
                  int groups, int C, size_t lddx, size_t lddy, size_t ldx)
{
    struct norm_bwd norm = {
        .vec = cpu_vec(ctx),
        .dx = dx,
        .dy = dy,
        .x = x,
        .weight = weight,
        .eps = eps,
        .add = add,
        .rows = rows,
        .groups = groups,
        .C = C,
        .lddx = lddx,
        .lddy = lddy,
        .ldx = ldx,
        .row_tile = cpu_row_tile((size_t)groups * C),
    };
    size_t stride;
    char *base;
    int tiles;

    if (rows <= 0)
        return;
    if (norm.row_tile < LEAST_ROWS)
        norm.row_tile = LEAST_ROWS;
    tiles = cpu_pieces(rows, norm.row_tile);
    if (dweight &&
        !train_scratch(ctx, &base, &stride, 0, &norm.partial, (size_t)tiles * C))
        return;
    cpu_run(ctx, norm_bwd_tile, &norm, tiles);
    if (dweight)
        add_columns_cpu(ctx, dweight, norm.partial, tiles, C, (size_t)C);
}
