/* Attention in training in fp32: blocks with a tile of TILE rows, 8 threads a row, which
 * go over tiles of as many rows. attn_bwd_cuda.cu has the formulas. */
#include "kernels/f32_cuda.h"
#include "kernels/train_cuda.h"

/* The thread's columns of its row of the tile. */
template <int MOST>
static __device__ __forceinline__ void store_row(float *dst, const float *x, float scale,
                                                 int D)
{
    int j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < MOST / 8; i++) {
        if (i * 8 < D)
            dst[j + 8 * i] = x[i] * scale;
    }
}

/* Block (tile of queries, query head, segment), the longest tile first. */
template <int MOST, int TILE>
static __global__ void __launch_bounds__(TILE * 8) train_fwd_f32(attn_train_args<float> a)
{
    extern __shared__ float shared[];
    int D = a.head_dim, ld = D + 1, head = blockIdx.y, r = threadIdx.x / 8;
    int k_head = a.heads + head / (a.heads / a.kv_heads);
    float *q = shared, *k = q + TILE * ld, *v = k + TILE * ld;
    float *p = v + TILE * ld + r * (TILE + 1);
    float s[TILE / 8], o[MOST / 8] = {}, max = -INFINITY, sum = 0;
    train_tile t;

    if (!find_train_tile(&t, a, gridDim.x - 1 - blockIdx.x, TILE))
        return;
    int last = t.first + min(r, t.count - 1);
    size_t row = t.start + t.first + r;
    load_floats(q, ld, row_of(a.qkv, a.ld, t.start + t.first, head, D), a.ld, TILE,
                t.count, D);
    for (int key = 0; key < t.first + t.count; key += TILE) {
        const float *from = row_of(a.qkv, a.ld, t.start + key, k_head, D);
        int valid = t.first + t.count - key;
        __syncthreads();
        load_floats(k, ld, from, a.ld, TILE, valid, D);
        load_floats(v, ld, from + (size_t)a.kv_heads * D, a.ld, TILE, valid, D);
        __syncthreads();
        f32_scores<TILE>(s, q + r * ld, k, ld, D);
        float shrink = f32_soften<TILE>(s, p, &max, &sum, a.scale, key, last);
        __syncwarp();
        f32_values<MOST>(o, p, v, ld, shrink, TILE, D);
    }
    if (r >= t.count)
        return;
    store_row<MOST>(a.o + row * a.ldo + (size_t)head * D, o, 1.0f / sum, D);
    if (threadIdx.x % 8 == 0)
        a.lse[row * a.heads + head] = max + logf(sum);
}

/* dq: block (tile of queries, query head, segment), the longest tile first. */
template <int MOST, int TILE>
static __global__ void __launch_bounds__(TILE * 8) dq_f32(attn_train_args<float> a)
{
    extern __shared__ float shared[];
    int D = a.head_dim, ld = D + 1, head = blockIdx.y, r = threadIdx.x / 8;
    int k_head = a.heads + head / (a.heads / a.kv_heads), j = threadIdx.x % 8;
    float *q = shared, *dout = q + TILE * ld, *k = dout + TILE * ld, *v = k + TILE * ld;
    float *ds = v + TILE * ld + r * (TILE + 1);
    float s[TILE / 8], dp[TILE / 8], dq[MOST / 8] = {};
    train_tile t;

    if (!find_train_tile(&t, a, gridDim.x - 1 - blockIdx.x, TILE))
        return;
    int first = t.start + t.first;
    size_t row = first + min(r, t.count - 1);
    float lse = a.lse[row * a.heads + head], delta = a.delta[row * a.heads + head];
    load_floats(q, ld, row_of(a.qkv, a.ld, first, head, D), a.ld, TILE, t.count, D);
    load_floats(dout, ld, row_of(a.dout, a.ldo, first, head, D), a.ldo, TILE, t.count, D);
    for (int key = 0; key < t.first + t.count; key += TILE) {
        const float *from = row_of(a.qkv, a.ld, t.start + key, k_head, D);
        int valid = t.first + t.count - key;
        __syncthreads();
        load_floats(k, ld, from, a.ld, TILE, valid, D);
        load_floats(v, ld, from + (size_t)a.kv_heads * D, a.ld, TILE, valid, D);
        __syncthreads();
        f32_scores<TILE>(s, q + r * ld, k, ld, D);
        f32_scores<TILE>(dp, dout + r * ld, v, ld, D);
#pragma unroll
        for (int i = 0; i < TILE / 8; i++) {
            bool seen = key + j + 8 * i <= t.first + r && r < t.count;
            float p = seen ? expf(s[i] * a.scale - lse) : 0.0f;
            ds[j + 8 * i] = p * (dp[i] - delta);
        }
        __syncwarp();
        f32_values<MOST>(dq, ds, k, ld, 1.0f, TILE, D);
    }
    if (r < t.count)
        store_row<MOST>(a.dqkv + row * a.ld + (size_t)head * D, dq, a.scale, D);
}

/* P and dS of the thread's key, the tile's row r, and its TILE queries from `query` on,
 * by their products with k and v. p and ds (TILE). Queries past the end give zeros. */
template <int TILE>
static __device__ __forceinline__ void
key_shares(const attn_train_args<float> &a, const train_tile &t, float *p, float *ds,
           const float *s, const float *dp, int query, int head)
{
    int r = threadIdx.x / 8, j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        int at = query + j + 8 * i;
        size_t of = (size_t)(t.start + min(at, t.rows - 1)) * a.heads + head;
        bool seen = t.first + r <= at && at < t.rows;
        p[j + 8 * i] = seen ? expf(s[i] * a.scale - a.lse[of]) : 0.0f;
        ds[j + 8 * i] = p[j + 8 * i] * (dp[i] - a.delta[of]);
    }
    __syncwarp();
}

/* dk and dv: block (tile of keys, KV head, segment). The query heads of the group follow
 * one another, each with its queries from the tile on. */
template <int MOST, int TILE>
static __global__ void __launch_bounds__(TILE * 8) dkv_f32(attn_train_args<float> a)
{
    extern __shared__ float shared[];
    int D = a.head_dim, ld = D + 1, kv = blockIdx.y, group = a.heads / a.kv_heads;
    int r = threadIdx.x / 8;
    float *k = shared, *v = k + TILE * ld, *q = v + TILE * ld, *dout = q + TILE * ld;
    float *p = dout + TILE * ld + r * (TILE + 1), *ds = p + TILE * (TILE + 1);
    float s[TILE / 8], dp[TILE / 8], dk[MOST / 8] = {}, dv[MOST / 8] = {};
    train_tile t;

    if (!find_train_tile(&t, a, blockIdx.x, TILE))
        return;
    const float *from = row_of(a.qkv, a.ld, t.start + t.first, a.heads + kv, D);
    load_floats(k, ld, from, a.ld, TILE, t.count, D);
    load_floats(v, ld, from + (size_t)a.kv_heads * D, a.ld, TILE, t.count, D);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        for (int query = t.first; query < t.rows; query += TILE) {
            int row = t.start + query, valid = t.rows - query;
            __syncthreads();
            load_floats(q, ld, row_of(a.qkv, a.ld, row, head, D), a.ld, TILE, valid, D);
            load_floats(dout, ld, row_of(a.dout, a.ldo, row, head, D), a.ldo, TILE, valid,
                        D);
            __syncthreads();
            f32_scores<TILE>(s, k + r * ld, q, ld, D);
            f32_scores<TILE>(dp, v + r * ld, dout, ld, D);
            key_shares<TILE>(a, t, p, ds, s, dp, query, head);
            f32_values<MOST>(dv, p, dout, ld, 1.0f, TILE, D);
            f32_values<MOST>(dk, ds, q, ld, 1.0f, TILE, D);
        }
    }
    if (r >= t.count)
        return;
    float *to =
        a.dqkv + (size_t)(t.start + t.first + r) * a.ld + (size_t)(a.heads + kv) * D;
    store_row<MOST>(to, dk, a.scale, D);
    store_row<MOST>(to + (size_t)a.kv_heads * D, dv, 1.0f, D);
}

/* Floats of shared memory: tiles of rows and of scores. */
static size_t shared_bytes(int tile, int tiles, int scores, int D)
{
    return sizeof(float) * tile * ((size_t)tiles * (D + 1) + (size_t)scores * (tile + 1));
}

template <int MOST, int TILE>
static void forward(struct kernel_ctx *ctx, const attn_train_args<float> &a)
{
    attn_train_launch(ctx, train_fwd_f32<MOST, TILE>, a, TILE, a.heads, TILE * 8,
                      shared_bytes(TILE, 3, 1, a.head_dim), "attn_train_fwd");
}

template <int MOST, int TILE>
static void backward(struct kernel_ctx *ctx, const attn_train_args<float> &a)
{
    attn_train_launch(ctx, dq_f32<MOST, TILE>, a, TILE, a.heads, TILE * 8,
                      shared_bytes(TILE, 4, 1, a.head_dim), "attn_bwd (dq)");
    attn_train_launch(ctx, dkv_f32<MOST, TILE>, a, TILE, a.kv_heads, TILE * 8,
                      shared_bytes(TILE, 4, 2, a.head_dim), "attn_bwd (dk and dv)");
}

void attn_train_fwd_f32(struct kernel_ctx *ctx, const attn_train_args<float> &a)
{
    if (a.head_dim <= 64)
        forward<64, 32>(ctx, a);
    else if (a.head_dim <= 128)
        forward<128, 32>(ctx, a);
    else
        forward<256, 16>(ctx, a);
}

void attn_bwd_f32(struct kernel_ctx *ctx, const attn_train_args<float> &a)
{
    if (a.head_dim <= 64)
        backward<64, 32>(ctx, a);
    else if (a.head_dim <= 128)
        backward<128, 32>(ctx, a);
    else
        backward<256, 16>(ctx, a);
}
