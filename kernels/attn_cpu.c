/* Causal attention over the paged KV cache. Segments of few rows (decode) take dot products row by
 * row, so that a row's result does not depend on the batch; longer ones (prefill) take blocked matrix
 * products with an online softmax, the G query heads of a KV head stacked into one matrix. */
#include "kernels/blas.h"
#include "kernels/cpu.h"

#include <math.h>
#include <string.h>

#define DIRECT_ROWS 4   /* longest segment that goes row by row */
#define STACK_ROWS  256 /* about how many rows the stacked query matrix has */
#define CHUNK       256 /* keys of one step of the online softmax */

struct attn_job {
    const struct vec_ops *vec;
    const struct kernel_rows *rows;
    const struct kernel_attn *attn;
    float *o; /* (R, H * D) */
    const float *qkv, *k, *v;
    int group;              /* G = H / K: query heads of a KV head */
    int block_rows, blocks; /* tokens of a row block; most blocks of a segment */
    size_t ld;              /* of qkv */
    char *scratch;
    size_t scratch_stride;
};

/* Where one thread works: M = block_rows * G rows of the stacked matrix. */
struct attn_work {
    float *q, *o;     /* (M, D) */
    float *scores;    /* (M, CHUNK), or (G, len) row by row */
    float *k, *v;     /* (CHUNK, D) */
    float *max, *sum; /* (M) */
};

/* Block of keys or values of positions block * KERNEL_KV_BLOCK .. : (KERNEL_KV_BLOCK, D). */
static const float *kv_block(const struct attn_job *job, const float *cache, int seg,
                             int head, int block)
{
    size_t elements = (size_t)KERNEL_KV_BLOCK * job->attn->head_dim;
    size_t id = (size_t)job->rows->table[(size_t)seg * job->rows->table_ld + block];

    return cache + (id * job->attn->kv_heads + head) * elements;
}

static const float *query(const struct attn_job *job, int row, int head)
{
    return job->qkv + (size_t)row * job->ld +
           (size_t)head * job->group * job->attn->head_dim;
}

static float *output(const struct attn_job *job, int row, int head)
{
    size_t D = (size_t)job->attn->head_dim;

    return job->o + (size_t)row * job->attn->heads * D + (size_t)head * job->group * D;
}

/* o = x / sum for n elements. */
static void divide(float *o, const float *x, float sum, int n)
{
    float inverse = 1.0f / sum;

    for (int i = 0; i < n; i++)
        o[i] = x[i] * inverse;
}

/* One row, one KV head: G query heads by dot products. */
static void attend_row(const struct attn_job *job, struct attn_work *w, int seg, int row,
                       int head)
{
    int G = job->group, D = job->attn->head_dim, len = job->rows->pos[row] + 1;
    const float *q = query(job, row, head);
    size_t ld = (size_t)job->rows->max_len;

    for (int i = 0; i < G * D; i++) {
        w->q[i] = q[i] * job->attn->scale;
        w->o[i] = 0;
    }
    for (int t = 0; t < len; t += KERNEL_KV_BLOCK) {
        int n = cpu_piece(len, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK);
        const float *k = kv_block(job, job->k, seg, head, t / KERNEL_KV_BLOCK);
        job->vec->dots(w->scores + t, ld, w->q, (size_t)D, k, G, n, D);
    }
    for (int g = 0; g < G; g++) {
        float *s = w->scores + g * ld;
        bool nan = false;
        w->sum[g] =
            job->vec->exp_sum(s, (size_t)len, job->vec->max(s, (size_t)len, &nan));
    }
    for (int t = 0; t < len; t += KERNEL_KV_BLOCK) {
        int n = cpu_piece(len, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK);
        const float *v = kv_block(job, job->v, seg, head, t / KERNEL_KV_BLOCK);
        job->vec->sums(w->o, (size_t)D, w->scores + t, ld, v, G, n, D);
    }
    for (int g = 0; g < G; g++)
        divide(output(job, row, head) + g * D, w->o + g * D, w->sum[g], D);
}

/* Copies n keys or values from position first, which starts a block. */
static void fetch(const struct attn_job *job, float *dst, const float *cache, int seg,
                  int head, int first, int n)
{
    size_t D = (size_t)job->attn->head_dim;

    for (int t = 0; t < n; t += KERNEL_KV_BLOCK) {
        int have = cpu_piece(n, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK);
        memcpy(dst + t * D,
               kv_block(job, cache, seg, head, (first + t) / KERNEL_KV_BLOCK),
               have * D * sizeof(float));
    }
}

/* Row m of the scores of n keys, of which it sees the first `seen`, becomes exp(score - max); what
 * was summed before is scaled to the new maximum. */
static void soften(const struct attn_job *job, struct attn_work *w, int m, int seen,
                   int n)
{
    int D = job->attn->head_dim;
    float *s = w->scores + (size_t)m * CHUNK, *o = w->o + (size_t)m * D;
    bool nan = false;
    float max, shrink;

    if (seen < n)
        memset(s + seen, 0, (size_t)(n - seen) * sizeof(float));
    if (seen == 0)
        return;
    max = job->vec->max(s, (size_t)seen, &nan);
    if (max > w->max[m]) {
        shrink = expf(w->max[m] - max);
        w->max[m] = max;
        w->sum[m] *= shrink;
        for (int i = 0; i < D; i++)
            o[i] *= shrink;
    }
    w->sum[m] += job->vec->exp_sum(s, (size_t)seen, w->max[m]);
}

/* Keys first .. first + n - 1 for the stacked rows of `count` tokens whose first is at pos. */
static void attend_chunk(const struct attn_job *job, struct attn_work *w, int count,
                         int pos, int first, int n)
{
    int G = job->group, D = job->attn->head_dim;

    blas_sgemm(true, count * G, n, D, job->attn->scale, w->q, D, w->k, D, 0.0f, w->scores,
               CHUNK);
    for (int m = 0; m < count * G; m++) {
        int seen = pos + m / G + 1 - first;
        soften(job, w, m, seen < 0 ? 0 : seen < n ? seen : n, n);
    }
    blas_sgemm(false, count * G, D, n, 1.0f, w->scores, CHUNK, w->v, D, 1.0f, w->o, D);
}

/* `count` consecutive rows of a segment, one KV head. */
static void attend_block(const struct attn_job *job, struct attn_work *w, int seg,
                         int row, int count, int head)
{
    int G = job->group, D = job->attn->head_dim, pos = job->rows->pos[row];
    int len = pos + count;

    for (int r = 0; r < count; r++)
        memcpy(w->q + (size_t)r * G * D, query(job, row + r, head),
               (size_t)G * D * sizeof(float));
    memset(w->o, 0, (size_t)count * G * D * sizeof(float));
    for (int m = 0; m < count * G; m++) {
        w->max[m] = -INFINITY;
        w->sum[m] = 0;
    }
    for (int first = 0; first < len; first += CHUNK) {
        int n = cpu_piece(len, CHUNK, first / CHUNK);
        fetch(job, w->k, job->k, seg, head, first, n);
        fetch(job, w->v, job->v, seg, head, first, n);
        attend_chunk(job, w, count, pos, first, n);
    }
    for (int m = 0; m < count * G; m++)
        divide(output(job, row + m / G, head) + m % G * D, w->o + (size_t)m * D,
               w->sum[m], D);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Floats that one thread needs; sets where they lie if w is not NULL. */
static size_t work_layout(struct attn_work *w, const struct attn_job *job, float *base)
{
    size_t D = (size_t)job->attn->head_dim, G = (size_t)job->group;
    size_t M = most((size_t)job->block_rows, 1) * G, chunk = job->block_rows ? CHUNK : 0;
    size_t scores = most(M * chunk, G * (size_t)job->rows->max_len);

    if (w) {
        w->q = base;
        w->o = w->q + M * D;
        w->k = w->o + M * D;
        w->v = w->k + chunk * D;
        w->max = w->v + chunk * D;
        w->sum = w->max + M;
        w->scores = w->sum + M;
    }
    return 2 * (M + chunk) * D + 2 * M + scores;
}

static void attn_tile(void *arg, int tile, int thread)
{
    const struct attn_job *job = arg;
    int K = job->attn->kv_heads, head = tile % K, block = tile / K % job->blocks;
    int seg = tile / K / job->blocks, first = job->rows->seg_row[seg];
    int count = job->rows->seg_row[seg + 1] - first;
    struct attn_work w;

    work_layout(&w, job, (float *)(job->scratch + (size_t)thread * job->scratch_stride));
    if (count <= DIRECT_ROWS) {
        for (int r = 0; block == 0 && r < count; r++)
            attend_row(job, &w, seg, first + r, head);
    } else if (block * job->block_rows < count) {
        attend_block(job, &w, seg, first + block * job->block_rows,
                     cpu_piece(count, job->block_rows, block), head);
    }
}

/* Tokens of a row block: G of them stacked make about STACK_ROWS rows. */
static int block_tokens(int group)
{
    int tokens = STACK_ROWS / group / 8 * 8;

    return tokens < 16 ? 16 : tokens;
}

static size_t qkv_width(const struct kernel_attn *attn)
{
    return (size_t)(attn->heads + 2 * attn->kv_heads) * attn->head_dim;
}

void attn_fwd_cpu(struct kernel_ctx *ctx, void *o, const void *qkv, const void *k,
                  const void *v, const struct kernel_rows *rows,
                  const struct kernel_attn *attn)
{
    struct attn_job job = {
        .vec = cpu_vec(ctx),
        .rows = rows,
        .attn = attn,
        .o = o,
        .qkv = qkv,
        .k = k,
        .v = v,
        .group = attn->heads / attn->kv_heads,
        .blocks = 1,
        .ld = qkv_width(attn),
    };

    if (rows->max_rows > DIRECT_ROWS) {
        job.block_rows = block_tokens(job.group);
        job.blocks = cpu_pieces(rows->max_rows, job.block_rows);
    }
    if (!cpu_scratch(ctx, &job.scratch, &job.scratch_stride,
                     work_layout(NULL, &job, NULL) * sizeof(float)))
        return;
    cpu_run(ctx, attn_tile, &job, rows->segs * job.blocks * attn->kv_heads);
}

void kv_store_cpu(struct kernel_ctx *ctx, void *k, void *v, const void *qkv,
                  const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    size_t D = (size_t)attn->head_dim, K = (size_t)attn->kv_heads, ld = qkv_width(attn);

    (void)ctx;
    for (int r = 0; r < rows->rows; r++) {
        const float *row = (const float *)qkv + (size_t)r * ld + (size_t)attn->heads * D;
        int block = rows->pos[r] / KERNEL_KV_BLOCK, t = rows->pos[r] % KERNEL_KV_BLOCK;
        size_t id =
            (size_t)rows->table[(size_t)rows->row_seg[r] * rows->table_ld + block];
        for (size_t h = 0; h < K; h++) {
            size_t at = ((id * K + h) * KERNEL_KV_BLOCK + (size_t)t) * D;
            memcpy((float *)k + at, row + h * D, D * sizeof(float));
            memcpy((float *)v + at, row + (K + h) * D, D * sizeof(float));
        }
    }
}
