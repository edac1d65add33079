/* Gradients of matrix products: OpenBLAS on tiles whose sizes depend on the shape
 * alone. */
#include "kernels/blas.h"
#include "kernels/train_cpu.h"

#define TILE_ROWS 256
#define TILE_COLS 192

struct gemm_bwd {
    float *out; /* (M, N) */
    const float *a, *b;
    bool add;
    int M, N, K; /* K: what is summed over */
    int tile_rows, tile_cols, col_tiles;
};

/* The tile's place in the result. */
struct gemm_tile {
    int row, rows, col, cols;
};

static struct gemm_tile place(const struct gemm_bwd *g, int tile)
{
    int i = tile / g->col_tiles, j = tile % g->col_tiles;

    return (struct gemm_tile){i * g->tile_rows, cpu_piece(g->M, g->tile_rows, i),
                              j * g->tile_cols, cpu_piece(g->N, g->tile_cols, j)};
}

/* dx (R, K) = dy (R, N) w (N, K). */
static void input_tile(void *arg, int tile, int thread)
{
    const struct gemm_bwd *g = arg;
    struct gemm_tile t = place(g, tile);

    (void)thread;
    blas_sgemm(false, t.rows, t.cols, g->K, 1.0f, g->a + (size_t)t.row * g->K, g->K,
               g->b + t.col, g->N, g->add ? 1.0f : 0.0f,
               g->out + (size_t)t.row * g->N + t.col, g->N);
}

/* dw (N, K) += dy^T (N, R) x (R, K). */
static void weight_tile(void *arg, int tile, int thread)
{
    const struct gemm_bwd *g = arg;
    struct gemm_tile t = place(g, tile);

    (void)thread;
    blas_sgemm_tn(t.rows, t.cols, g->K, 1.0f, g->a + t.row, g->M, g->b + t.col, g->N,
                  1.0f, g->out + (size_t)t.row * g->N + t.col, g->N);
}

/* About equal pieces of at most `most`, a multiple of 16. */
static int equal_tile(int n, int most)
{
    return (cpu_pieces(n, cpu_pieces(n, most)) + 15) / 16 * 16;
}

static void run(struct kernel_ctx *ctx, struct gemm_bwd *g, pool_fn *tile)
{
    if (g->M <= 0 || g->N <= 0)
        return;
    g->tile_rows = equal_tile(g->M, TILE_ROWS);
    g->tile_cols = equal_tile(g->N, TILE_COLS);
    g->col_tiles = cpu_pieces(g->N, g->tile_cols);
    cpu_run(ctx, tile, g, g->col_tiles * cpu_pieces(g->M, g->tile_rows));
}

void gemm_bwd_input_cpu(struct kernel_ctx *ctx, void *dx, const void *dy, const void *w,
                        bool add, int rows, int N, int K)
{
    struct gemm_bwd g = {
        .out = dx, .a = dy, .b = w, .add = add, .M = rows, .N = K, .K = N};

    run(ctx, &g, input_tile);
}

void gemm_bwd_weight_cpu(struct kernel_ctx *ctx, float *dw, float *dbias, const void *dy,
                         const void *x, int rows, int N, int K)
{
    struct gemm_bwd g = {.out = dw, .a = dy, .b = x, .M = N, .N = K, .K = rows};

    if (rows <= 0)
        return;
    run(ctx, &g, weight_tile);
    if (dbias)
        add_columns_cpu(ctx, dbias, dy, rows, N, (size_t)N);
}
