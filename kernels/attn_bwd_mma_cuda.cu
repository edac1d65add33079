/* Attention in training in bf16 with matrix instructions: blocks with a tile of MMA_ROWS
 * rows, 16 a warp, which go over tiles of N rows. attn_bwd_cuda.cu has the formulas. */
#include "kernels/mma_cuda.h"
#include "kernels/train_cuda.h"

/* Row i (0 or 1) of the lane in the block's tile. */
static __device__ __forceinline__ int lane_row(int i)
{
    return threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + 8 * i;
}

/* The warp's rows of x * scale[row of the lane] to dst, row stride ld, the tile's first
 * `count` rows. */
template <int MOST>
static __device__ __forceinline__ void store_rows(bf16 *dst, size_t ld,
                                                  const float (*x)[4], const float *scale,
                                                  int count, int D)
{
    int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        int r = lane_row(i);
#pragma unroll
        for (int n = 0; n < MOST / 8; n++) {
            if (r < count && n * 8 < D)
                *(__nv_bfloat162 *)(dst + r * ld + n * 8 + column) =
                    __floats2bfloat162_rn(x[n][2 * i] * scale[i],
                                          x[n][2 * i + 1] * scale[i]);
        }
    }
}

/* Block (tile of queries, query head, segment), the longest tile first. */
template <int MOST, int N>
static __global__ void __launch_bounds__(MMA_THREADS)
    train_fwd_mma(attn_train_args<bf16> a)
{
    extern __shared__ uint4 shared[];
    int D = a.head_dim, ld = mma_ld(D), head = blockIdx.y, last[2];
    int warp = threadIdx.x / WARP, k_head = a.heads + head / (a.heads / a.kv_heads);
    bf16 *q = (bf16 *)shared, *k = q + MMA_ROWS * ld, *v = k + N * ld;
    float s[N / 8][4], o[MOST / 8][4] = {}, inverse[2];
    row_state row = {{-INFINITY, -INFINITY}, {0, 0}};
    train_tile t;

    if (!find_train_tile(&t, a, gridDim.x - 1 - blockIdx.x, MMA_ROWS))
        return;
    for (int i = 0; i < 2; i++)
        last[i] = t.first + min(lane_row(i), t.count - 1);
    int first = t.start + t.first;
    load_tile(q, ld, row_of(a.qkv, a.ld, first, head, D), a.ld, MMA_ROWS, t.count, D);
    for (int key = 0; key < t.first + t.count; key += N) {
        const bf16 *from = row_of(a.qkv, a.ld, t.start + key, k_head, D);
        int valid = t.first + t.count - key;
        __syncthreads();
        load_tile(k, ld, from, a.ld, N, valid, D);
        load_tile(v, ld, from + (size_t)a.kv_heads * D, a.ld, N, valid, D);
        __syncthreads();
        mma_scores<MOST, N>(s, q + warp * 16 * ld, k, ld, D);
        mma_soften<MOST, N>(s, o, &row, a.scale * LOG2E, key, last);
        mma_values<MOST, N>(o, s, v, ld, D);
    }
    for (int i = 0; i < 2; i++) {
        float sum = row_reduce(row.sum[i], reduce_sum());
        inverse[i] = 1.0f / sum;
        if (lane_row(i) < t.count && threadIdx.x % 4 == 0)
            a.lse[(size_t)(first + lane_row(i)) * a.heads + head] =
                (row.max[i] + log2f(sum)) / LOG2E;
    }
    store_rows<MOST>(a.o + (size_t)first * a.ldo + (size_t)head * D, a.ldo, o, inverse,
                     t.count, D);
}

/* What the backward pass knows of a query: the log of its sum in units of log 2, infinite
 * where there is no query, so that P becomes 0; and delta. */
struct query_state {
    float lse, delta;
};

static __device__ __forceinline__ query_state query_of(const attn_train_args<bf16> &a,
                                                       const train_tile &t, int query,
                                                       int head)
{
    size_t at = (size_t)(t.start + query) * a.heads + head;

    if (query >= t.rows)
        return {INFINITY, 0};
    return {a.lse[at] * LOG2E, a.delta[at]};
}

/* dq: block (tile of queries, query head, segment), the longest tile first. */
template <int MOST, int N>
static __global__ void __launch_bounds__(MMA_THREADS) dq_mma(attn_train_args<bf16> a)
{
    extern __shared__ uint4 shared[];
    int D = a.head_dim, ld = mma_ld(D), head = blockIdx.y, column = threadIdx.x % 4 * 2;
    int warp = threadIdx.x / WARP, k_head = a.heads + head / (a.heads / a.kv_heads);
    bf16 *q = (bf16 *)shared, *dout = q + MMA_ROWS * ld, *k = dout + MMA_ROWS * ld;
    bf16 *v = k + N * ld;
    float p[N / 8][4], ds[N / 8][4], dq[MOST / 8][4] = {}, scale[2] = {a.scale, a.scale};
    query_state state[2];
    train_tile t;

    if (!find_train_tile(&t, a, gridDim.x - 1 - blockIdx.x, MMA_ROWS))
        return;
    for (int i = 0; i < 2; i++)
        state[i] = query_of(a, t, t.first + lane_row(i), head);
    int first = t.start + t.first;
    load_tile(q, ld, row_of(a.qkv, a.ld, first, head, D), a.ld, MMA_ROWS, t.count, D);
    load_tile(dout, ld, row_of(a.dout, a.ldo, first, head, D), a.ldo, MMA_ROWS, t.count,
              D);
    for (int key = 0; key < t.first + t.count; key += N) {
        const bf16 *from = row_of(a.qkv, a.ld, t.start + key, k_head, D);
        int valid = t.first + t.count - key;
        __syncthreads();
        load_tile(k, ld, from, a.ld, N, valid, D);
        load_tile(v, ld, from + (size_t)a.kv_heads * D, a.ld, N, valid, D);
        __syncthreads();
        mma_scores<MOST, N>(p, q + warp * 16 * ld, k, ld, D);
        mma_scores<MOST, N>(ds, dout + warp * 16 * ld, v, ld, D);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = key + n * 8 + column + i % 2 <= t.first + lane_row(i / 2);
                float x = exp2f(p[n][i] * a.scale * LOG2E - state[i / 2].lse);
                ds[n][i] = seen ? x * (ds[n][i] - state[i / 2].delta) : 0.0f;
            }
        }
        mma_values<MOST, N>(dq, ds, k, ld, D);
    }
    store_rows<MOST>(a.dqkv + (size_t)first * a.ld + (size_t)head * D, a.ld, dq, scale,
                     t.count, D);
}

/* P of the lane's two keys and the N queries from `query` on, from their products. */
template <int N>
static __device__ __forceinline__ void key_shares(float (*p)[4], const query_state *state,
                                                  float scale, int key, int query)
{
    int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < N / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int c = n * 8 + column + i % 2;
            bool seen = key + lane_row(i / 2) <= query + c;
            p[n][i] = seen ? exp2f(p[n][i] * scale - state[c].lse) : 0.0f;
        }
    }
}

/* dk, dv or both: block (tile of keys, KV head, segment). The query heads of the group
 * follow one another, each with its queries from the tile on. */
template <int MOST, int N, bool DK, bool DV>
static __global__ void __launch_bounds__(MMA_THREADS) dkv_mma(attn_train_args<bf16> a)
{
    extern __shared__ uint4 shared[];
    __shared__ query_state state[N];
    int D = a.head_dim, ld = mma_ld(D), kv = blockIdx.y, group = a.heads / a.kv_heads;
    int warp = threadIdx.x / WARP, column = threadIdx.x % 4 * 2;
    bf16 *k = (bf16 *)shared, *v = k + MMA_ROWS * ld, *q = v + MMA_ROWS * ld;
    bf16 *dout = q + N * ld;
    float p[N / 8][4], ds[N / 8][4], dk[MOST / 8][4] = {}, dv[MOST / 8][4] = {};
    float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
    train_tile t;

    if (!find_train_tile(&t, a, blockIdx.x, MMA_ROWS))
        return;
    const bf16 *from = row_of(a.qkv, a.ld, t.start + t.first, a.heads + kv, D);
    load_tile(k, ld, from, a.ld, MMA_ROWS, t.count, D);
    if (DK)
        load_tile(v, ld, from + (size_t)a.kv_heads * D, a.ld, MMA_ROWS, t.count, D);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        for (int query = t.first; query < t.rows; query += N) {
            int row = t.start + query, valid = t.rows - query;
            __syncthreads();
            load_tile(q, ld, row_of(a.qkv, a.ld, row, head, D), a.ld, N, valid, D);
            load_tile(dout, ld, row_of(a.dout, a.ldo, row, head, D), a.ldo, N, valid, D);
            if (threadIdx.x < N)
                state[threadIdx.x] = query_of(a, t, query + threadIdx.x, head);
            __syncthreads();
            mma_scores<MOST, N>(p, k + warp * 16 * ld, q, ld, D);
            key_shares<N>(p, state, a.scale * LOG2E, t.first, query);
            if (DV)
                mma_values<MOST, N>(dv, p, dout, ld, D);
            if (!DK)
                continue;
            mma_scores<MOST, N>(ds, v + warp * 16 * ld, dout, ld, D);
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ds[n][i] = p[n][i] * (ds[n][i] - state[n * 8 + column + i % 2].delta);
            }
            mma_values<MOST, N>(dk, ds, q, ld, D);
        }
    }
    bf16 *to = a.dqkv + (size_t)(t.start + t.first) * a.ld + (size_t)(a.heads + kv) * D;
    if (DK)
        store_rows<MOST>(to, a.ld, dk, scale, t.count, D);
    if (DV)
        store_rows<MOST>(to + (size_t)a.kv_heads * D, a.ld, dv, one, t.count, D);
}

/* ---- Launching ---- */

/* Shared memory for that many rows. */
static size_t shared_bytes(int rows, int D)
{
    return (size_t)rows * mma_ld(D) * sizeof(bf16);
}

template <int MOST, int N>
static void forward(struct kernel_ctx *ctx, const attn_train_args<bf16> &a)
{
    attn_train_launch(ctx, train_fwd_mma<MOST, N>, a, MMA_ROWS, a.heads, MMA_THREADS,
                      shared_bytes(MMA_ROWS + 2 * N, a.head_dim), "attn_train_fwd");
}

void attn_train_fwd_mma(struct kernel_ctx *ctx, const attn_train_args<bf16> &a)
{
    if (a.head_dim <= 64)
        forward<64, 64>(ctx, a);
    else if (a.head_dim <= 128)
        forward<128, 64>(ctx, a);
    else
        forward<256, 64>(ctx, a);
}

template <int MOST, int N>
static void query_grads(struct kernel_ctx *ctx, const attn_train_args<bf16> &a)
{
    attn_train_launch(ctx, dq_mma<MOST, N>, a, MMA_ROWS, a.heads, MMA_THREADS,
                      shared_bytes(2 * MMA_ROWS + 2 * N, a.head_dim), "attn_bwd (dq)");
}

template <int MOST, int N, bool DK, bool DV>
static void key_grads(struct kernel_ctx *ctx, const attn_train_args<bf16> &a)
{
    attn_train_launch(ctx, dkv_mma<MOST, N, DK, DV>, a, MMA_ROWS, a.kv_heads, MMA_THREADS,
                      shared_bytes(2 * MMA_ROWS + 2 * N, a.head_dim),
                      "attn_bwd (dk and dv)");
}

/* The widest heads leave no registers for both gradients of the keys. */
void attn_bwd_mma(struct kernel_ctx *ctx, const attn_train_args<bf16> &a)
{
    if (a.head_dim <= 64) {
        query_grads<64, 64>(ctx, a);
        key_grads<64, 64, true, true>(ctx, a);
    } else if (a.head_dim <= 128) {
        query_grads<128, 64>(ctx, a);
        key_grads<128, 32, true, true>(ctx, a);
    } else {
        query_grads<256, 32>(ctx, a);
        key_grads<256, 32, true, false>(ctx, a);
        key_grads<256, 32, false, true>(ctx, a);
    }
}
