/* Matrix products: OpenBLAS on tiles for many rows, own dot products for few, because
 * a BLAS packs the whole weight matrix anew for every call. */
#include "kernels/blas.h"
#include "kernels/cpu.h"

#include <string.h>

#define FEW_ROWS  32  /* up to here a row's result does not depend on the other rows */
#define FEW_TILE  64  /* columns of a tile then */
#define TILE_ROWS 512 /* the tile of a BLAS call: sizes depend on the shape alone */
#define TILE_COLS 256

struct gemm {
    const struct vec_ops *vec;
    float *y;           /* (rows, N) */
    const float *x, *w; /* (rows, K), (N, K) */
    const float *bias;  /* (N) or NULL */
    bool add;
    int rows, N, K;
    int tile_cols, col_tiles;
};

/* y (rows, cols) (+)= dots + bias. */
static void few_finish(const struct gemm *g, const float *dots, int first, int cols)
{
    for (int r = 0; r < g->rows; r++) {
        float *y = g->y + (size_t)r * g->N + first;
        const float *d = dots + r * FEW_TILE;
        for (int j = 0; j < cols; j++) {
            float v = g->bias ? d[j] + g->bias[first + j] : d[j];
            y[j] = g->add ? y[j] + v : v;
        }
    }
}

static void few_tile(void *arg, int tile, int thread)
{
    const struct gemm *g = arg;
    int first = tile * FEW_TILE, cols = cpu_piece(g->N, FEW_TILE, tile);
    const float *w = g->w + (size_t)first * g->K;
    float dots[FEW_ROWS * FEW_TILE];

    (void)thread;
    g->vec->dots(dots, FEW_TILE, g->x, (size_t)g->K, w, g->rows, cols, g->K);
    few_finish(g, dots, first, cols);
}

/* Makes y what the product is added to; returns beta. */
static float blas_begin(const struct gemm *g, float *y, int rows, int first, int cols)
{
    if (!g->bias)
        return g->add ? 1.0f : 0.0f;
    for (int r = 0; r < rows; r++) {
        float *row = y + (size_t)r * g->N;
        if (!g->add)
            memcpy(row, g->bias + first, (size_t)cols * sizeof(float));
        for (int j = 0; g->add && j < cols; j++)
            row[j] += g->bias[first + j];
    }
    return 1.0f;
}

static void blas_tile(void *arg, int tile, int thread)
{
    const struct gemm *g = arg;
    int row_tile = tile / g->col_tiles, col_tile = tile % g->col_tiles;
    int row = row_tile * TILE_ROWS, rows = cpu_piece(g->rows, TILE_ROWS, row_tile);
    int col = col_tile * g->tile_cols, cols = cpu_piece(g->N, g->tile_cols, col_tile);
    float *y = g->y + (size_t)row * g->N + col;
    float beta = blas_begin(g, y, rows, col, cols);

    (void)thread;
    blas_sgemm(true, rows, cols, g->K, 1.0f, g->x + (size_t)row * g->K, g->K,
               g->w + (size_t)col * g->K, g->K, beta, y, g->N);
}

/* Equal column tiles near TILE_COLS, a multiple of 32 wide. */
static int equal_tile_cols(int N)
{
    int tiles = cpu_pieces(N, TILE_COLS);

    return (cpu_pieces(N, tiles) + 31) / 32 * 32;
}

static void gemm(struct kernel_ctx *ctx, struct gemm *g)
{
    if (g->rows <= 0 || g->N <= 0)
        return;
    g->vec = cpu_vec(ctx);
    if (g->rows <= FEW_ROWS) {
        cpu_run(ctx, few_tile, g, cpu_pieces(g->N, FEW_TILE));
        return;
    }
    g->tile_cols = equal_tile_cols(g->N);
    g->col_tiles = cpu_pieces(g->N, g->tile_cols);
    cpu_run(ctx, blas_tile, g, g->col_tiles * cpu_pieces(g->rows, TILE_ROWS));
}

void gemm_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const void *w,
                  const void *bias, bool add, int rows, int N, int K)
{
    struct gemm g = {
        .y = y, .x = x, .w = w, .bias = bias, .add = add, .rows = rows, .N = N, .K = K};

    gemm(ctx, &g);
}

void head_fwd_cpu(struct kernel_ctx *ctx, float *logits, const void *x, const void *w,
                  int rows, int V, int C)
{
    struct gemm g = {.y = logits, .x = x, .w = w, .rows = rows, .N = V, .K = C};

    gemm(ctx, &g);
}
