/* Causal attention for segments of many rows (prefill), as FlashAttention does it (Dao
 * et al., 2022): a block goes over the keys of its queries one KV block at a time,
 * with an online softmax. bf16 takes the matrix instructions; fp32 stays in fp32
 * throughout. */
#include "kernels/cuda.h"

#include <errno.h>
#include <math_constants.h>

#define KEYS  KERNEL_KV_BLOCK
#define LOG2E 1.44269504f

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

#define MMA_THREADS 128
#define MMA_ROWS    64

static_assert(MMA_ROWS == KEYS, "load_tile loads queries and keys");

typedef __nv_bfloat16 bf16;

/* Copies rows of D elements, `stride` apart, into shared memory with row stride ld;
 * zeros from row `valid` and from column D up to the next multiple of 16. */
static __device__ void load_tile(bf16 *dst, int ld, const bf16 *src, size_t stride,
                                 int valid, int D)
{
    int eights = (D + 15) / 16 * 2;

    for (int i = threadIdx.x; i < MMA_ROWS * eights; i += MMA_THREADS) {
        int r = i / eights, c = i % eights * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (r < valid && c < D)
            x = *(const uint4 *)(src + r * stride + c);
        *(uint4 *)(dst + r * ld + c) = x;
    }
}

/* Four 8 x 8 matrices from shared memory; lane i gives the address of row i % 8 of
 * matrix i / 8. */
static __device__ __forceinline__ void load_matrices(uint32_t *m, const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void load_transposed(uint32_t *m, const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/* c (16, 8) += a (16, 16) b (16, 8). Lane i has rows i / 4 (c[0], c[1]) and i / 4 + 8
 * (c[2], c[3]), columns i % 4 * 2 and the next one. */
static __device__ __forceinline__ void multiply(float *c, const uint32_t *a, uint32_t b0,
                                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The lower half is the element of the lower column. */
static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t bits;

    memcpy(&bits, &two, sizeof(bits));
    return bits;
}

/* s (16, 64) = q k^T of a warp's 16 queries; q and k point at the warp's rows, ld
 * apart. The matrices of q: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
 * Those of k: columns 0-7 and 8-15 of keys 0-7, then of keys 8-15. */
template <int MOST>
static __device__ __forceinline__ void mma_scores(float (*s)[4], const bf16 *q,
                                                  const bf16 *k, int ld, int D)
{
    int lane = threadIdx.x % WARP;
    const bf16 *q_row = q + (lane % 16) * ld + lane / 16 * 8;
    const bf16 *k_row = k + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8;

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < MOST; d += 16) {
        uint32_t a[4], b[4];
        if (d >= D)
            break;
        load_matrices(a, q_row + d);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            load_matrices(b, k_row + n * 8 * ld + d);
            multiply(s[n], a, b[0], b[1]);
            multiply(s[n + 1], a, b[2], b[3]);
        }
    }
}

/* o (16, D) += p (16, 64) v (64, D). The scores in registers are already laid out as
 * the left factor. Matrices of v, transposed on the way: keys 0-7 and 8-15 of columns
 * 0-7, then of columns 8-15. */
template <int MOST>
static __device__ __forceinline__ void mma_values(float (*o)[4], const float (*p)[4],
                                                  const bf16 *v, int ld, int D)
{
    int lane = threadIdx.x % WARP;
    const bf16 *v_row = v + (lane % 16) * ld + lane / 16 * 8;

#pragma unroll
    for (int t = 0; t < KEYS / 8; t += 2) {
        uint32_t a[4] = {pack(p[t][0], p[t][1]), pack(p[t][2], p[t][3]),
                         pack(p[t + 1][0], p[t + 1][1]), pack(p[t + 1][2], p[t + 1][3])};
#pragma unroll
        for (int n = 0; n < MOST / 8; n += 2) {
            uint32_t b[4];
            if (n * 8 >= D)
                break;
            load_transposed(b, v_row + t * 8 * ld + n * 8);
            multiply(o[n], a, b[0], b[1]);
            multiply(o[n + 1], a, b[2], b[3]);
        }
    }
}

/* Two rows of a lane: the largest score so far (times scale, in units of log 2) and
 * the lane's share of the sum. */
struct row_state {
    float max[2], sum[2];
};

/* Scores become exp(score - max); o is scaled to the new maximum. Keys start at t, and
 * row i of the lane sees those up to last[i]. */
template <int MOST>
static __device__ __forceinline__ void mma_soften(float (*s)[4], float (*o)[4],
                                                  row_state *row, float scale, int t,
                                                  const int *last)
{
    int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = row->max[i], shrink;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float *x = &s[n][2 * i + j];
                *x = t + n * 8 + column + j <= last[i] ? *x * scale : -CUDART_INF_F;
                top = fmaxf(top, *x);
            }
        }
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        shrink = exp2f(row->max[i] - top);
        row->max[i] = top;
        row->sum[i] *= shrink;
#pragma unroll
        for (int n = 0; n < MOST / 8; n++) {
            o[n][2 * i] *= shrink;
            o[n][2 * i + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[n][2 * i + j] = exp2f(s[n][2 * i + j] - top);
                row->sum[i] += s[n][2 * i + j];
            }
        }
    }
}

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
        float sum = row.sum[i];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        float inverse = 1.0f / sum;
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
    int D = a.head_dim, ld = (D + 15) / 16 * 16 + 8, head = blockIdx.y;
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
    load_tile(q, ld, a.qkv + tile.first * a.ld + (size_t)head * D, a.ld, tile.count, D);
    for (int t = 0; t < tile.pos + tile.count; t += KEYS) {
        int valid = tile.pos + tile.count - t;
        __syncthreads();
        load_tile(k, ld, kv_block(a, a.k, tile.seg, kv, t), D, valid, D);
        load_tile(v, ld, kv_block(a, a.v, tile.seg, kv, t), D, valid, D);
        __syncthreads();
        mma_scores<MOST>(s, q + warp * 16 * ld, k, ld, D);
        mma_soften<MOST>(s, o, &row, a.scale * LOG2E, t, last);
        mma_values<MOST>(o, s, v, ld, D);
    }
    mma_store<MOST>(a, tile, head, o, row);
}

/* ---- fp32: 8 threads a query ---- */

#define F32_THREADS 256
#define F32_ROWS    32
#define F32_SCORES  (KEYS + 1) /* row stride */

/* Copies rows of D floats, `stride` apart, into rows ld apart; zeros from row `valid`. */
static __device__ void load_floats(float *dst, int ld, const float *src, size_t stride,
                                   int rows, int valid, int D)
{
    for (int i = threadIdx.x; i < rows * D; i += F32_THREADS) {
        int r = i / D, c = i % D;
        dst[r * ld + c] = r < valid ? src[r * stride + c] : 0.0f;
    }
}

/* Over the eight lanes of a query. */
template <typename Op>
static __device__ __forceinline__ float eight_reduce(float x, Op op)
{
    for (int lane = 4; lane > 0; lane /= 2)
        x = op(x, __shfl_xor_sync(ALL_LANES, x, lane));
    return x;
}

/* Scores of keys j, j + 8, .. for the thread's query q (D), from k (KEYS, ld). */
static __device__ __forceinline__ void f32_scores(float *s, const float *q,
                                                  const float *k, int ld, int D)
{
    int j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
        s[i] = 0;
    for (int d = 0; d < D; d++) {
        float x = q[d];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
            s[i] += x * k[(j + 8 * i) * ld + d];
    }
}

/* Scores become exp(score - max) and go to p (KEYS); returns by how much the old sums
 * shrink. */
static __device__ __forceinline__ float
f32_soften(float *s, float *p, float *max, float *sum, float scale, int t, int last)
{
    int j = threadIdx.x % 8;
    float top = *max, part = 0, shrink;

#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
        s[i] = t + j + 8 * i <= last ? s[i] * scale : -CUDART_INF_F;
        top = fmaxf(top, s[i]);
    }
    top = eight_reduce(top, reduce_max());
    shrink = expf(*max - top);
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
        float e = expf(s[i] - top);
        p[j + 8 * i] = e;
        part += e;
    }
    *sum = *sum * shrink + eight_reduce(part, reduce_sum());
    *max = top;
    return shrink;
}

/* Columns j, j + 8, .. of o = o * shrink + p v. */
template <int MOST>
static __device__ __forceinline__ void
f32_values(float *o, const float *p, const float *v, int ld, float shrink, int D)
{
    int j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < MOST / 8; i++)
        o[i] *= shrink;
    for (int t = 0; t < KEYS; t++) {
        float x = p[t];
#pragma unroll
        for (int i = 0; i < MOST / 8; i++) {
            if (i * 8 < D)
                o[i] += x * v[t * ld + j + 8 * i];
        }
    }
}

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
        f32_scores(s, q + r * D, kv_rows, ld, D);
        float shrink = f32_soften(s, p, &max, &sum, a.scale, t, last);
        __syncthreads();
        load_floats(kv_rows, ld, kv_block(a, a.v, tile.seg, kv, t), D, KEYS, valid, D);
        __syncthreads();
        f32_values<MOST>(o, p, kv_rows, ld, shrink, D);
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
    size_t ld = (size_t)(a.head_dim + 15) / 16 * 16 + 8;
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
