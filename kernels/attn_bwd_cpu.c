/* Causal attention of whole sequences and its backward pass: matrix products of blocks of
 * queries and chunks of keys, read where they lie in qkv. With P = softmax(S), S = scale
 * q k^T and dP = dout v^T: dS = P (dP - delta), delta = dout . o; dq = scale dS k, dk =
 * scale dS^T q, dv = P^T dout. */
#include "kernels/blas.h"
#include "kernels/train_cpu.h"

#include <math.h>
#include <string.h>

#define ROWS 64  /* queries of a block */
#define KEYS 512 /* keys of a chunk in the backward pass */
#define STEP 16  /* scores are softened in whole steps */

struct attn_train {
    const struct vec_ops *vec;
    const struct kernel_rows *rows;
    const struct kernel_attn *attn;
    const float *qkv, *dout; /* (R, ld), (R, H * D) */
    float *o, *lse, *delta;  /* (R, H * D), (R, H), (R, H) */
    float *dqkv;             /* (R, ld) */
    float *dkv; /* (2, R, H * D) by query head: dk, dv; NULL if every head has its own */
    int group, blocks; /* G = H / K; most blocks of a segment */
    int ld, ldo;       /* of qkv and o */
    char *scratch;
    size_t scratch_stride;
};

/* A block of queries of one head: rows first .. first + count - 1 of the batch, in a
 * segment that starts at row `start`. */
struct query_block {
    int head, start, first, count;
};

/* An element of row r of a (R, H * D) array, and of q, k and v in a (R, ld) one. */
static size_t in_o(const struct attn_train *a, int row, int head)
{
    return (size_t)row * a->ldo + (size_t)head * a->attn->head_dim;
}

static size_t in_q(const struct attn_train *a, int row, int head)
{
    return (size_t)row * a->ld + (size_t)head * a->attn->head_dim;
}

static size_t in_k(const struct attn_train *a, int row, int kv_head)
{
    return in_q(a, row, a->attn->heads + kv_head);
}

static size_t in_v(const struct attn_train *a, int row, int kv_head)
{
    return in_q(a, row, a->attn->heads + a->attn->kv_heads + kv_head);
}

static int steps(int n)
{
    return (n + STEP - 1) / STEP * STEP;
}

static float *work_of(const struct attn_train *a, int thread)
{
    return (float *)(a->scratch + (size_t)thread * a->scratch_stride);
}

/* s (count, n) = the block's queries against n keys from row `key` on. */
static void scores(const struct attn_train *a, const struct query_block *b, float *s,
                   int lds, int key, int n)
{
    blas_sgemm(true, b->count, n, a->attn->head_dim, a->attn->scale,
               a->qkv + in_q(a, b->first, b->head), a->ld,
               a->qkv + in_k(a, key, b->head / a->group), a->ld, 0.0f, s, lds);
}

/* ---- Forward ---- */

/* Scores of the whole block at once: (count, keys up to its last row). */
static void attend(const struct attn_train *a, const struct query_block *b, float *s)
{
    int D = a->attn->head_dim, before = b->first - b->start, n = before + b->count;
    float sums[ROWS];

    scores(a, b, s, steps(n), b->start, n);
    for (int r = 0; r < b->count; r++) {
        float max = -INFINITY;
        sums[r] =
            a->vec->soften(s + (size_t)r * steps(n), before + r + 1, steps(n), &max);
        a->lse[(size_t)(b->first + r) * a->attn->heads + b->head] = max + logf(sums[r]);
    }
    blas_sgemm(false, b->count, D, n, 1.0f, s, steps(n),
               a->qkv + in_v(a, b->start, b->head / a->group), a->ld, 0.0f,
               a->o + in_o(a, b->first, b->head), a->ldo);
    for (int r = 0; r < b->count; r++) {
        float *o = a->o + in_o(a, b->first + r, b->head), inverse = 1.0f / sums[r];
        for (int i = 0; i < D; i++)
            o[i] *= inverse;
    }
}

static void attend_tile(void *arg, int tile, int thread)
{
    const struct attn_train *a = arg;
    int H = a->attn->heads, block = tile / H % a->blocks, seg = tile / H / a->blocks;
    int start = a->rows->seg_row[seg], rows = a->rows->seg_row[seg + 1] - start;
    struct query_block b = {tile % H, start, start + block * ROWS, 0};

    if (block * ROWS >= rows)
        return;
    b.count = cpu_piece(rows, ROWS, block);
    attend(a, &b, work_of(a, thread));
}

static struct attn_train make(struct kernel_ctx *ctx, const void *qkv,
                              const struct kernel_rows *rows,
                              const struct kernel_attn *attn)
{
    return (struct attn_train){
        .vec = cpu_vec(ctx),
        .rows = rows,
        .attn = attn,
        .qkv = qkv,
        .group = attn->heads / attn->kv_heads,
        .blocks = cpu_pieces(rows->max_rows, ROWS),
        .ld = (attn->heads + 2 * attn->kv_heads) * attn->head_dim,
        .ldo = attn->heads * attn->head_dim,
    };
}

void attn_train_fwd_cpu(struct kernel_ctx *ctx, void *o, float *lse, const void *qkv,
                        const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    struct attn_train a = make(ctx, qkv, rows, attn);
    size_t row = (size_t)steps(rows->max_rows) * sizeof(float);

    if (rows->rows <= 0)
        return;
    a.o = o;
    a.lse = lse;
    if (cpu_scratch(ctx, &a.scratch, &a.scratch_stride, ROWS * row))
        cpu_run(ctx, attend_tile, &a, rows->segs * a.blocks * attn->heads);
}

/* ---- Backward ---- */

/* Where the gradients of a query head's keys and values are summed, from the segment's
 * first row on. */
struct key_grads {
    float *dk, *dv;
    int ld;
};

static struct key_grads key_grads(const struct attn_train *a, int head, int start)
{
    size_t half = (size_t)a->rows->rows * a->ldo;

    if (!a->dkv)
        return (struct key_grads){a->dqkv + in_k(a, start, head),
                                  a->dqkv + in_v(a, start, head), a->ld};
    return (struct key_grads){a->dkv + in_o(a, start, head),
                              a->dkv + half + in_o(a, start, head), a->ldo};
}

/* s (count, n) becomes P of the keys from row `key` on. The largest score counts as lse
 * at least, so that the sum of a row of P is 1 but for rounding. */
static void probabilities(const struct attn_train *a, const struct query_block *b,
                          float *s, int key, int n)
{
    scores(a, b, s, KEYS, key, n);
    for (int r = 0; r < b->count; r++) {
        int row = b->first + r, seen = row + 1 - key;
        float max = a->lse[(size_t)row * a->attn->heads + b->head];
        seen = seen < 0 ? 0 : seen < n ? seen : n;
        a->vec->soften(s + (size_t)r * KEYS, seen, steps(n), &max);
    }
}

/* The block meets n keys from row `key` on; p and ds (ROWS, KEYS) are work space. */
static void chunk_bwd(const struct attn_train *a, const struct query_block *b,
                      const struct key_grads *g, float *p, float *ds, int key, int n)
{
    int D = a->attn->head_dim, H = a->attn->heads, kv = b->head / a->group;
    const float *dout = a->dout + in_o(a, b->first, b->head);
    size_t at = (size_t)(key - b->start) * g->ld;

    probabilities(a, b, p, key, n);
    blas_sgemm_tn(n, D, b->count, 1.0f, p, KEYS, dout, a->ldo, 1.0f, g->dv + at, g->ld);
    blas_sgemm(true, b->count, n, D, 1.0f, dout, a->ldo, a->qkv + in_v(a, key, kv), a->ld,
               0.0f, ds, KEYS);
    for (int r = 0; r < b->count; r++)
        a->vec->softmax_bwd(ds + (size_t)r * KEYS, p + (size_t)r * KEYS,
                            a->delta[(size_t)(b->first + r) * H + b->head],
                            a->attn->scale, (size_t)n);
    blas_sgemm(false, b->count, D, n, 1.0f, ds, KEYS, a->qkv + in_k(a, key, kv), a->ld,
               key > b->start ? 1.0f : 0.0f, a->dqkv + in_q(a, b->first, b->head), a->ld);
    blas_sgemm_tn(n, D, b->count, 1.0f, ds, KEYS, a->qkv + in_q(a, b->first, b->head),
                  a->ld, 1.0f, g->dk + at, g->ld);
}

static void block_bwd(const struct attn_train *a, const struct query_block *b,
                      const struct key_grads *g, float *work)
{
    int D = a->attn->head_dim, H = a->attn->heads, end = b->first + b->count;

    for (int r = b->first; r < end; r++)
        a->vec->dots(a->delta + (size_t)r * H + b->head, 1, a->dout + in_o(a, r, b->head),
                     (size_t)D, a->o + in_o(a, r, b->head), 1, 1, D);
    for (int key = b->start; key < end; key += KEYS)
        chunk_bwd(a, b, g, work, work + ROWS * KEYS, key,
                  end - key < KEYS ? end - key : KEYS);
}

/* One query head of a segment. */
static void attn_bwd_tile(void *arg, int tile, int thread)
{
    const struct attn_train *a = arg;
    int head = tile % a->attn->heads, seg = tile / a->attn->heads;
    int start = a->rows->seg_row[seg], rows = a->rows->seg_row[seg + 1] - start;
    struct key_grads g = key_grads(a, head, start);
    size_t bytes = (size_t)a->attn->head_dim * sizeof(float);

    for (int r = 0; r < rows; r++) {
        memset(g.dk + (size_t)r * g.ld, 0, bytes);
        memset(g.dv + (size_t)r * g.ld, 0, bytes);
    }
    for (int r = 0; r < rows; r += ROWS) {
        struct query_block b = {head, start, start + r, cpu_piece(rows, ROWS, r / ROWS)};
        block_bwd(a, &b, &g, work_of(a, thread));
    }
}

/* Sums the query heads of each KV head, rows ROWS * tile .. */
static void sum_heads_tile(void *arg, int tile, int thread)
{
    const struct attn_train *a = arg;
    size_t D = (size_t)a->attn->head_dim, half = (size_t)a->rows->rows * a->ldo;
    int first = tile * ROWS, end = first + cpu_piece(a->rows->rows, ROWS, tile);

    (void)thread;
    for (int i = first * a->attn->kv_heads; i < end * a->attn->kv_heads; i++) {
        int row = i / a->attn->kv_heads, kv = i % a->attn->kv_heads;
        float *dk = a->dqkv + in_k(a, row, kv), *dv = a->dqkv + in_v(a, row, kv);
        const float *from = a->dkv + in_o(a, row, kv * a->group);
        memcpy(dk, from, D * sizeof(float));
        memcpy(dv, from + half, D * sizeof(float));
        for (int g = 1; g < a->group; g++) {
            a->vec->add(dk, from + (size_t)g * D, D);
            a->vec->add(dv, from + half + (size_t)g * D, D);
        }
    }
}

void attn_bwd_cpu(struct kernel_ctx *ctx, void *dqkv, float *delta, const void *dout,
                  const void *qkv, const void *o, const float *lse,
                  const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    struct attn_train a = make(ctx, qkv, rows, attn);
    size_t by_head = a.group > 1 ? 2 * (size_t)rows->rows * a.ldo : 0;
    float *dkv;

    if (rows->rows <= 0)
        return;
    if (!train_scratch(ctx, &a.scratch, &a.scratch_stride,
                       2 * ROWS * KEYS * sizeof(float), &dkv, by_head))
        return;
    a.dkv = a.group > 1 ? dkv : NULL;
    a.dqkv = dqkv;
    a.delta = delta;
    a.dout = dout;
    a.o = (float *)o;
    a.lse = (float *)lse;
    cpu_run(ctx, attn_bwd_tile, &a, rows->segs * attn->heads);
    if (a.dkv)
        cpu_run(ctx, sum_heads_tile, &a, cpu_pieces(rows->rows, ROWS));
}
