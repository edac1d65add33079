/* Causal attention for segments of many rows (prefill), as FlashAttention does it (Dao
 * et al., 2022): a block goes over the keys of its queries one KV block at a time,
 * with an online softmax. bf16 takes the matrix instructions; fp32 stays in fp32
 * throughout. */
#include "kernels/f32_cuda.h"
#include "kernels/mma_cuda.h"

#include <errno.h>
#include <math_constants.h>

#define KEYS KERNEL_KV_BLOCK

/* The queries of a block: rows first .. first + count - 1 of the batch, at positions
 * pos .. */
struct query_tile {
    int seg, first, count, pos;
};

/* Tile number blockIdx.x of segment blockIdx.z, the last one first because it takes
 * longest. False if the segment has no such tile, or belongs to the other kernel. */
template <typename T>
static __device__ bool find_tile(query_tile *t, const attn_args<T> &a, int tile_rows)
{
    int seg = blockIdx.z, start = a.seg_row[seg], rows = a.seg_row[seg + 1] - start;
    int skip = (int)(gridDim.x - 1 - blockIdx.x) * tile_rows;

    if (rows <= ATTN_DIRECT_ROWS || skip >= rows)
        return false;
    t->seg = seg;
    t->first = start + skip;
    t->count = min(tile_rows, rows - skip);
    t->pos = a.pos[t->first];
    return true;
}

/* The KV block of position t for this segment and KV head: (KEYS, D) of k or v. */
template <typename T>
static __device__ __forceinline__ const T *kv_block(const attn_args<T> &a, const T *cache,
                                                    int seg, int head, int t)
{
    size_t id = (size_t)a.table[(size_t)seg * a.table_ld + t / KEYS];

    return cache + (id * a.kv_heads + head) * KEYS * a.head_dim;
}

/* ---- bf16: 4 warps of 16 queries each ---- */

/* Writes o / sum. The sums of the four lanes of a row are added first. */
template <int MOST>
static __device__ __forceinline__ void mma_store(const attn_args<bf16> &a,
                                                 const query_tile &tile, int head,
                                                 const float (*o)[4], row_state row)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = lane % 4 * 2;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        int r = warp * 16 + lane / 4 + 8 * i;
        float inverse = 1.0f / row_reduce(row.sum[i], reduce_sum());
        bf16 *dst =
            a.o + ((size_t)(tile.first + r) * a.heads + head) * a.head_dim + column;
#pragma unroll
        for (int n = 0; n < MOST / 8; n++) {
            if (r < tile.count && n * 8 < a.head_dim)
                *(__nv_bfloat162 *)(dst + n * 8) = __floats2bfloat162_rn(
                    o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
        }
    }
}

/* Block (tile, query head, segment); head_dim is at most MOST. Rows past the end of
 * the tile do as the last one does and are not stored. Keys past the last query are
 * zeros, since what lies in the cache there may be anything. */
template <int MOST>
static __global__ void __launch_bounds__(MMA_THREADS) prefill_mma(attn_args<bf16> a)
{
    extern __shared__ uint4 shared[];
    int D = a.head_dim, ld = mma_ld(D), head = blockIdx.y;
    int kv = head / (a.heads / a.kv_heads), warp = threadIdx.x / WARP, last[2];
    bf16 *q = (bf16 *)shared, *k = q + MMA_ROWS * ld, *v = k + KEYS * ld;
    float s[KEYS / 8][4], o[MOST / 8][4] = {};
    row_state row = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    query_tile tile;

    if (!find_tile(&tile, a, MMA_ROWS))
        return;
    for (int i = 0; i < 2; i++) {
        int r = warp * 16 + threadIdx.x % WARP / 4 + 8 * i;
        last[i] = tile.pos + min(r, tile.count - 1);
    }
    load_tile(q, ld, a.qkv + tile.first * a.ld + (size_t)head * D, a.ld, MMA_ROWS,
              tile.count, D);
    for (int t = 0; t < tile.pos + tile.count; t += KEYS) {
        int valid = tile.pos + tile.count - t;
        __syncthreads();
        load_tile(k, ld, kv_block(a, a.k, tile.seg, kv, t), D, KEYS, valid, D);
        load_tile(v, ld, kv_block(a, a.v, tile.seg, kv, t), D, KEYS, valid, D);
        __syncthreads();
        mma_scores<MOST, KEYS>(s, q + warp * 16 * ld, k, ld, D);
        mma_soften<MOST, KEYS>(s, o, &row, a.scale * LOG2E, t, last);
        mma_values<MOST, KEYS>(o, s, v, ld, D);
    }
    mma_store<MOST>(a, tile, head, o, row);
}

/* ---- fp32: 8 threads a query ---- */

#define F32_THREADS 256
#define F32_ROWS    32
#define F32_SCORES  (KEYS + 1) /* row stride */

/* Block (tile, query head, segment). Keys and values take turns in one buffer. */
template <int MOST>
static __global__ void __launch_bounds__(F32_THREADS) prefill_f32(attn_args<float> a)
{
    extern __shared__ uint4 shared[];
    int D = a.head_dim, ld = D + 1, head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    int r = threadIdx.x / 8, j = threadIdx.x % 8;
    float *q = (float *)shared, *kv_rows = q + F32_ROWS * D;
    float *p = kv_rows + KEYS * ld + r * F32_SCORES;
    float s[KEYS / 8], o[MOST / 8] = {}, max = -CUDART_INF_F, sum = 0;
    query_tile tile;

    if (!find_tile(&tile, a, F32_ROWS))
        return;
    int last = tile.pos + min(r, tile.count - 1);
    load_floats(q, D, a.qkv + tile.first * a.ld + (size_t)head * D, a.ld, F32_ROWS,
                tile.count, D);
    for (int t = 0; t < tile.pos + tile.count; t += KEYS) {
        int valid = tile.pos + tile.count - t;
        __syncthreads();
        load_floats(kv_rows, ld, kv_block(a, a.k, tile.seg, kv, t), D, KEYS, valid, D);
        __syncthreads();
        f32_scores<KEYS>(s, q + r * D, kv_rows, ld, D);
        float shrink = f32_soften<KEYS>(s, p, &max, &sum, a.scale, t, last);
        __syncthreads();
        load_floats(kv_rows, ld, kv_block(a, a.v, tile.seg, kv, t), D, KEYS, valid, D);
        __syncthreads();
        f32_values<MOST>(o, p, kv_rows, ld, shrink, KEYS, D);
    }
    float *dst = a.o + ((size_t)(tile.first + r) * a.heads + head) * D + j;
#pragma unroll
    for (int i = 0; i < MOST / 8; i++) {
        if (r < tile.count && i * 8 < D)
            dst[i * 8] = o[i] / sum;
    }
}

/* ---- launching ---- */

template <typename T>
static void launch(struct kernel_ctx *ctx, void (*kernel)(attn_args<T>),
                   const attn_args<T> &a, int tile_rows, int threads, size_t shared)
{
    dim3 grid((unsigned)((a.max_rows + tile_rows - 1) / tile_rows), (unsigned)a.heads,
              (unsigned)a.segs);

    if (!cuda_check(ctx,
                    cudaFuncSetAttribute(
                        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                    "attn_fwd (prefill)"))
        return;
    kernel<<<grid, threads, shared, ctx->cuda->stream>>>(a);
    cuda_launched(ctx, "attn_fwd (prefill)");
}

void attn_prefill_cuda(struct kernel_ctx *ctx, const attn_args<bf16> &a)
{
    size_t ld = (size_t)mma_ld(a.head_dim);
    size_t shared = (MMA_ROWS + 2 * KEYS) * ld * sizeof(bf16);

    if (a.head_dim <= 64)
        launch(ctx, prefill_mma<64>, a, MMA_ROWS, MMA_THREADS, shared);
    else if (a.head_dim <= 128)
        launch(ctx, prefill_mma<128>, a, MMA_ROWS, MMA_THREADS, shared);
    else
        launch(ctx, prefill_mma<256>, a, MMA_ROWS, MMA_THREADS, shared);
}

void attn_prefill_cuda(struct kernel_ctx *ctx, const attn_args<float> &a)
{
    size_t D = (size_t)a.head_dim;
    size_t shared =
        (F32_ROWS * D + KEYS * (D + 1) + F32_ROWS * F32_SCORES) * sizeof(float);

    if (D <= 64)
        launch(ctx, prefill_f32<64>, a, F32_ROWS, F32_THREADS, shared);
    else if (D <= 128)
        launch(ctx, prefill_f32<128>, a, F32_ROWS, F32_THREADS, shared);
    else
        launch(ctx, prefill_f32<256>, a, F32_ROWS, F32_THREADS, shared);
}
