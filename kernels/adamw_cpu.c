/* The optimizer: AdamW's step, the sum of squares for clipping, and sums of gradients. */
#include "kernels/train_cpu.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define TILE ((size_t)16384) /* elements */

struct flat {
    const struct vec_ops *vec;
    float *y; /* accumulate: y += x */
    const float *x;
    double *part;              /* sum_squares: (tiles) of x */
    float *weight, *m, *v, *g; /* adamw: y is the master */
    const struct kernel_adamw *adamw;
    size_t n;
};

static size_t piece(const struct flat *f, int tile)
{
    size_t left = f->n - (size_t)tile * TILE;

    return left < TILE ? left : TILE;
}

/* Tiles of n elements; -EOVERFLOW in ctx->err and 0 if there are too many to count. */
static int tiles_of(struct kernel_ctx *ctx, size_t n)
{
    size_t tiles = n / TILE + (n % TILE != 0);

    if (tiles <= INT_MAX)
        return (int)tiles;
    kernel_fail(ctx, -EOVERFLOW);
    return 0;
}

static void squares_tile(void *arg, int tile, int thread)
{
    const struct flat *f = arg;

    (void)thread;
    f->part[tile] = f->vec->square_total(f->x + (size_t)tile * TILE, piece(f, tile));
}

void sum_squares_cpu(struct kernel_ctx *ctx, double *out, const float *g, size_t n)
{
    struct flat f = {.vec = cpu_vec(ctx), .x = g, .n = n};
    int tiles = tiles_of(ctx, n);
    double sum = 0;
    size_t stride;
    float *part;
    char *base;

    if (!train_scratch(ctx, &base, &stride, 0, &part, 2 * (size_t)tiles))
        return;
    f.part = (double *)part;
    cpu_run(ctx, squares_tile, &f, tiles);
    for (int i = 0; i < tiles; i++)
        sum += f.part[i];
    *out += sum;
}

static void adamw_tile(void *arg, int tile, int thread)
{
    const struct flat *f = arg;
    size_t at = (size_t)tile * TILE, n = piece(f, tile);

    (void)thread;
    f->vec->adamw(f->y + at, f->m + at, f->v + at, f->g + at, f->adamw, n);
    if (f->weight != f->y)
        memcpy(f->weight + at, f->y + at, n * sizeof(float));
}

void adamw_cpu(struct kernel_ctx *ctx, float *master, void *weight, float *m, float *v,
               float *g, const struct kernel_adamw *p, size_t n)
{
    struct flat f = {.vec = cpu_vec(ctx),
                     .y = master,
                     .weight = weight,
                     .m = m,
                     .v = v,
                     .g = g,
                     .adamw = p,
                     .n = n};

    cpu_run(ctx, adamw_tile, &f, tiles_of(ctx, n));
}

static void accumulate_tile(void *arg, int tile, int thread)
{
    const struct flat *f = arg;
    size_t at = (size_t)tile * TILE;

    (void)thread;
    f->vec->add(f->y + at, f->x + at, piece(f, tile));
}

void accumulate_cpu(struct kernel_ctx *ctx, float *y, const float *x, size_t n)
{
    struct flat f = {.vec = cpu_vec(ctx), .y = y, .x = x, .n = n};

    cpu_run(ctx, accumulate_tile, &f, tiles_of(ctx, n));
}
