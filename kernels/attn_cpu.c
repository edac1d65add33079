/* Causal attention over the paged KV cache. Segments of few rows (decode) take dot
 * products row by row; longer ones (prefill) take blocked matrix products with an
 * online softmax, the G query heads of a KV head stacked into one matrix. Either way a
 * row's result does not depend on the other rows. */
#include "kernels/cpu.h"

#include <math.h>
#include <string.h>

#define DIRECT_ROWS  4   /* longest segment that goes row by row */
#define STACK_ROWS   256 /* about how many rows the stacked query matrix has */
#define CHUNK        256 /* keys of one step of the online softmax */
#define GROUP_TOKENS 6   /* tokens that see about the same keys and go together */
#define KEY_STEP     16  /* keys that are multiplied together whether seen or not */

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
    float *q, *o;     /* (M, D), q times the scale */
    float *scores;    /* (GROUP_TOKENS * G, CHUNK), or (G, len) row by row */
    float *k;         /* (D, CHUNK): keys transposed */
    float *max, *sum; /* (M) */
};

/* Block of keys or values of positions block * KERNEL_KV_BLOCK .. : (KERNEL_KV_BLOCK,
 * D). */
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

/* n keys rounded up to whole steps. */
static int key_steps(int n)
{
    return (n + KEY_STEP - 1) / KEY_STEP * KEY_STEP;
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
    size_t ld = (size_t)key_steps(job->rows->max_len);

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
        float max = -INFINITY;
        w->sum[g] = job->vec->soften(w->scores + g * ld, len, key_steps(len), &max);
    }
    for (int t = 0; t < len; t += KERNEL_KV_BLOCK) {
        int n = cpu_piece(len, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK);
        const float *v = kv_block(job, job->v, seg, head, t / KERNEL_KV_BLOCK);
        job->vec->sums(w->o, (size_t)D, w->scores + t, ld, v, G, n, D);
    }
    for (int g = 0; g < G; g++)
        divide(output(job, row, head) + g * D, w->o + g * D, w->sum[g], D);
}

/* The keys from position first, which starts a block, as columns; zeros up to a whole
 * KEY_STEP. */
static void fetch_keys(const struct attn_job *job, struct attn_work *w, int seg, int head,
                       int first, int n)
{
    int D = job->attn->head_dim, rest = n % KEY_STEP ? KEY_STEP - n % KEY_STEP : 0;

    for (int t = 0; t < n; t += KERNEL_KV_BLOCK) {
        int have = cpu_piece(n, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK);
        const float *k = kv_block(job, job->k, seg, head, (first + t) / KERNEL_KV_BLOCK);
        job->vec->transpose(w->k + t, CHUNK, k, (size_t)D, have, D);
    }
    for (int d = 0; rest && d < D; d++)
        memset(w->k + d * CHUNK + n, 0, (size_t)rest * sizeof(float));
}

/* Scores of stacked row m become exp(score - max), of the first `seen` keys; those up
 * to n become 0. What was summed before is scaled to the new maximum. */
static void soften(const struct attn_job *job, struct attn_work *w, float *s, int m,
                   int seen, int n)
{
    int D = job->attn->head_dim;
    float *o = w->o + (size_t)m * D, old = w->max[m], shrink;
    float sum = job->vec->soften(s, seen, n, &w->max[m]);

    if (w->max[m] > old && w->sum[m] > 0) {
        shrink = expf(old - w->max[m]);
        w->sum[m] *= shrink;
        for (int i = 0; i < D; i++)
            o[i] *= shrink;
    }
    w->sum[m] += sum;
}

/* `count` tokens, the first one at pos and in stacked row m, meet the keys of a chunk:
 * positions first .. first + n - 1, all of which the last token sees. */
static void attend_group(const struct attn_job *job, struct attn_work *w, int seg,
                         int head, int m, int count, int pos, int first, int n)
{
    int G = job->group, D = job->attn->head_dim;
    float *o = w->o + (size_t)m * D;

    job->vec->multiply(w->scores, CHUNK, w->q + (size_t)m * D, (size_t)D, w->k, CHUNK,
                       count * G, key_steps(n), D, false);
    for (int r = 0; r < count * G; r++) {
        int seen = pos + r / G + 1 - first;
        seen = seen < 0 ? 0 : seen < n ? seen : n;
        soften(job, w, w->scores + (size_t)r * CHUNK, m + r, seen, key_steps(n));
    }
    for (int t = 0; t < n; t += KERNEL_KV_BLOCK) {
        const float *v = kv_block(job, job->v, seg, head, (first + t) / KERNEL_KV_BLOCK);
        job->vec->multiply(o, (size_t)D, w->scores + t, CHUNK, v, (size_t)D, count * G, D,
                           cpu_piece(n, KERNEL_KV_BLOCK, t / KERNEL_KV_BLOCK), true);
    }
}

/* The stacked queries of a block, and nothing summed yet. */
static void begin_block(const struct attn_job *job, struct attn_work *w, int row,
                        int count, int head)
{
    int G = job->group, D = job->attn->head_dim;

    for (int r = 0; r < count; r++) {
        const float *q = query(job, row + r, head);
        for (int i = 0; i < G * D; i++)
            w->q[(size_t)r * G * D + i] = q[i] * job->attn->scale;
    }
    memset(w->o, 0, (size_t)count * G * D * sizeof(float));
    for (int m = 0; m < count * G; m++) {
        w->max[m] = -INFINITY;
        w->sum[m] = 0;
    }
}

/* `count` consecutive rows of a segment, one KV head. */
static void attend_block(const struct attn_job *job, struct attn_work *w, int seg,
                         int row, int count, int head)
{
    int G = job->group, D = job->attn->head_dim, pos = job->rows->pos[row];
    int len = pos + count;

    begin_block(job, w, row, count, head);
    for (int first = 0; first < len; first += CHUNK) {
        fetch_keys(job, w, seg, head, first, cpu_piece(len, CHUNK, first / CHUNK));
        for (int r = 0; r < count; r += GROUP_TOKENS) {
            int tokens = cpu_piece(count, GROUP_TOKENS, r / GROUP_TOKENS);
            int n = pos + r + tokens - first;
            if (n > 0)
                attend_group(job, w, seg, head, r * G, tokens, pos + r, first,
                             n < CHUNK ? n : CHUNK);
        }
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
    size_t scores =
        most(GROUP_TOKENS * G * chunk, G * (size_t)key_steps(job->rows->max_len));

    if (w) {
        w->scores = base;
        w->k = w->scores + scores;
        w->q = w->k + D * chunk;
        w->o = w->q + M * D;
        w->max = w->o + M * D;
        w->sum = w->max + M;
    }
    return scores + D * chunk + 2 * M * D + 2 * M;
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

/* Tokens of a row block: whole groups, G rows a token, about STACK_ROWS rows in all. */
static int block_tokens(int group)
{
    int groups = STACK_ROWS / (group * GROUP_TOKENS);

    return (groups < 2 ? 2 : groups) * GROUP_TOKENS;
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
