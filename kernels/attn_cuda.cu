/* The paged KV cache, and causal attention for few rows per segment (decode). */
#include "kernels/cuda.h"

#include <math_constants.h>

#define STORE_THREADS  128
#define DECODE_THREADS 256
#define DECODE_WARPS   (DECODE_THREADS / WARP)
#define UNROLL         4 /* keys of a slot that are on their way at once */

/* Start of token t's key or value of a KV head; elements. */
template <typename T>
static __device__ __forceinline__ size_t cached(const attn_args<T> &a, int seg, int head,
                                                int t)
{
    size_t id = (size_t)a.table[(size_t)seg * a.table_ld + t / KERNEL_KV_BLOCK];

    return ((id * a.kv_heads + head) * KERNEL_KV_BLOCK + t % KERNEL_KV_BLOCK) *
           a.head_dim;
}

/* Block (row, K heads of k and then of v). */
template <typename T> static __global__ void store_rows(attn_args<T> a, T *k, T *v)
{
    int row = blockIdx.x, K = a.kv_heads, eights = a.head_dim / 8;
    const T *src = a.qkv + row * a.ld + (size_t)a.heads * a.head_dim;

    for (int i = threadIdx.x; i < 2 * K * eights; i += STORE_THREADS) {
        int head = i / eights, at = i % eights * 8;
        T *dst = head < K ? k : v;
        dst += cached(a, a.row_seg[row], head % K, a.pos[row]) + at;
        *(pack8<T> *)dst = *(const pack8<T> *)(src + (size_t)head * a.head_dim + at);
    }
}

/* What a lane knows of one query head: eight columns of the sum, and the state of the
 * softmax over the keys of its slot. */
struct head_state {
    float o[8], max, sum;
};

/* a += b, two softmax states over different keys. One without keys has max = -inf. */
static __device__ __forceinline__ void merge(head_state *a, const float *o, float max,
                                             float sum)
{
    float top = fmaxf(a->max, max);
    float mine = a->max == -CUDART_INF_F ? 0.0f : expf(a->max - top);
    float other = max == -CUDART_INF_F ? 0.0f : expf(max - top);

    for (int i = 0; i < 8; i++)
        a->o[i] = a->o[i] * mine + o[i] * other;
    a->sum = a->sum * mine + sum * other;
    a->max = top;
}

/* Adds UNROLL keys of a slot, whose scores are s; -inf where there is no key. */
template <typename T>
static __device__ __forceinline__ void add_keys(head_state *h, const float *s,
                                                const pack8<T> *v)
{
    float top = h->max;

    for (int u = 0; u < UNROLL; u++)
        top = fmaxf(top, s[u]);
    if (top == -CUDART_INF_F)
        return;
    float shrink = h->max == -CUDART_INF_F ? 0.0f : expf(h->max - top);
    h->max = top;
    h->sum *= shrink;
    for (int i = 0; i < 8; i++)
        h->o[i] *= shrink;
    for (int u = 0; u < UNROLL; u++) {
        float p = s[u] == -CUDART_INF_F ? 0.0f : expf(s[u] - top);
        h->sum += p;
        for (int i = 0; i < 8; i++)
            h->o[i] += p * to_float(v[u].x[i]);
    }
}

/* Merges the slots of a warp, then the warps, in an order that never changes, and
 * writes one head. */
template <typename T>
static __device__ void finish_head(head_state h, T *o, int D, int lanes, bool owner)
{
    __shared__ float part[DECODE_WARPS][KERNEL_MAX_HEAD_DIM];
    __shared__ float part_max[DECODE_WARPS], part_sum[DECODE_WARPS];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    for (int far = lanes; far < WARP; far *= 2) {
        float other[8];
        for (int i = 0; i < 8; i++)
            other[i] = __shfl_xor_sync(ALL_LANES, h.o[i], far);
        float max = __shfl_xor_sync(ALL_LANES, h.max, far);
        float sum = __shfl_xor_sync(ALL_LANES, h.sum, far);
        merge(&h, other, max, sum);
    }
    __syncthreads(); /* the last head may still be read */
    if (owner) {
        for (int i = 0; i < 8; i++)
            part[warp][lane * 8 + i] = h.o[i];
    }
    if (lane == 0) {
        part_max[warp] = h.max;
        part_sum[warp] = h.sum;
    }
    __syncthreads();
    float top = -CUDART_INF_F, sum = 0, value = 0;
    for (int w = 0; w < DECODE_WARPS; w++)
        top = fmaxf(top, part_max[w]);
    for (int w = 0; w < DECODE_WARPS; w++) {
        float share = part_max[w] == -CUDART_INF_F ? 0.0f : expf(part_max[w] - top);
        sum += part_sum[w] * share;
        if ((int)threadIdx.x < D)
            value += part[w][threadIdx.x] * share;
    }
    if ((int)threadIdx.x < D)
        o[threadIdx.x] = from_float<T>(value / sum);
}

/* Where a thread works in the decode kernel. */
struct decode_place {
    int seg, kv, len; /* of the row; len keys are seen */
    int slots, slot;  /* of the warp: keys that go side by side */
    int lanes, at;    /* lanes of a slot, first of the lane's eight columns */
    bool active;      /* there are such columns */
};

/* The UNROLL keys and values of the lane's slot from key `base` on; zeros where there
 * are none, since what lies in the cache there may be anything. */
template <typename T>
static __device__ __forceinline__ void load_keys(pack8<T> *k, pack8<T> *v,
                                                 const attn_args<T> &a,
                                                 const decode_place &p, int base)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        int t = base + u * p.slots + p.slot;
        k[u] = v[u] = {};
        if (t < p.len && p.active) {
            size_t from = cached(a, p.seg, p.kv, t) + p.at;
            k[u] = *(const pack8<T> *)(a.k + from);
            v[u] = *(const pack8<T> *)(a.v + from);
        }
    }
}

/* Scores of those keys for the lane's eight columns q, summed over the lanes of the
 * slot. */
template <typename T>
static __device__ __forceinline__ void
score_keys(float *s, const float *q, const pack8<T> *k, const decode_place &p, int base)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        s[u] = 0;
        for (int i = 0; i < 8; i++)
            s[u] += q[i] * to_float(k[u].x[i]);
        for (int far = p.lanes / 2; far > 0; far /= 2)
            s[u] += __shfl_xor_sync(ALL_LANES, s[u], far);
        if (base + u * p.slots + p.slot >= p.len)
            s[u] = -CUDART_INF_F;
    }
}

/* Block (row, KV head, group of up to G query heads). `lanes` lanes, a power of two,
 * hold eight elements each of one key, so a warp has WARP / lanes slots, each with a
 * softmax of its own over the keys it meets; so nothing is synchronised before the
 * end. */
template <typename T, int G>
static __global__ void __launch_bounds__(DECODE_THREADS) decode(attn_args<T> a, int lanes)
{
    int row = blockIdx.x, D = a.head_dim, group = a.heads / a.kv_heads;
    int first = blockIdx.y * group + blockIdx.z * G,
        heads = min(G, group - (int)blockIdx.z * G);
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, at = lane % lanes * 8;
    decode_place p = {a.row_seg[row],
                      (int)blockIdx.y,
                      a.pos[row] + 1,
                      WARP / lanes,
                      lane / lanes,
                      lanes,
                      at,
                      at < D};
    float q[G][8], s[UNROLL];
    pack8<T> k[UNROLL], v[UNROLL];
    head_state h[G];

    if (a.seg_row[p.seg + 1] - a.seg_row[p.seg] > ATTN_DIRECT_ROWS)
        return;
#pragma unroll
    for (int g = 0; g < G; g++) {
        const T *src = a.qkv + row * a.ld + (size_t)(first + g) * D + at;
        for (int i = 0; i < 8; i++)
            q[g][i] = p.active && g < heads ? to_float(src[i]) * a.scale : 0.0f;
        h[g] = {{}, -CUDART_INF_F, 0};
    }
    for (int n = UNROLL * p.slots, base = warp * n; base < p.len;
         base += DECODE_WARPS * n) {
        load_keys(k, v, a, p, base);
#pragma unroll
        for (int g = 0; g < G; g++) {
            score_keys(s, q[g], k, p, base);
            add_keys(&h[g], s, v);
        }
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g < heads)
            finish_head(h[g], a.o + ((size_t)row * a.heads + first + g) * D, D, lanes,
                        p.active && p.slot == 0);
    }
}

template <typename T>
static void launch_decode(struct kernel_ctx *ctx, const attn_args<T> &a)
{
    int group = a.heads / a.kv_heads, G = group == 1 ? 1 : group <= 4 ? 4 : 8, lanes = 1;
    dim3 grid((unsigned)a.rows, (unsigned)a.kv_heads, (unsigned)((group + G - 1) / G));
    cudaStream_t stream = ctx->cuda->stream;

    while (lanes * 8 < a.head_dim)
        lanes *= 2;
    if (G == 1)
        decode<T, 1><<<grid, DECODE_THREADS, 0, stream>>>(a, lanes);
    else if (G == 4)
        decode<T, 4><<<grid, DECODE_THREADS, 0, stream>>>(a, lanes);
    else
        decode<T, 8><<<grid, DECODE_THREADS, 0, stream>>>(a, lanes);
    cuda_launched(ctx, "attn_fwd (decode)");
}

template <typename T>
static attn_args<T> make_args(void *o, const void *qkv, const void *k, const void *v,
                              const struct kernel_rows *rows,
                              const struct kernel_attn *attn)
{
    attn_args<T> a = {};

    a.o = (T *)o;
    a.qkv = (const T *)qkv;
    a.k = (const T *)k;
    a.v = (const T *)v;
    a.pos = rows->pos;
    a.row_seg = rows->row_seg;
    a.seg_row = rows->seg_row;
    a.table = rows->table;
    a.rows = rows->rows;
    a.segs = rows->segs;
    a.max_rows = rows->max_rows;
    a.table_ld = rows->table_ld;
    a.heads = attn->heads;
    a.kv_heads = attn->kv_heads;
    a.head_dim = attn->head_dim;
    a.scale = attn->scale;
    a.ld = (size_t)(attn->heads + 2 * attn->kv_heads) * attn->head_dim;
    return a;
}

/* Which rows are of short segments is known to the device alone: each kernel leaves
 * alone what is not its own, and is spared where the sizes say that it has nothing. */
template <typename T> static void attend(struct kernel_ctx *ctx, const attn_args<T> &a)
{
    bool some_long = a.max_rows > ATTN_DIRECT_ROWS;
    bool all_long = some_long && (long)a.segs * a.max_rows == a.rows;

    if (some_long)
        attn_prefill_cuda(ctx, a);
    if (!all_long)
        launch_decode(ctx, a);
}

void attn_fwd_cuda(struct kernel_ctx *ctx, void *o, const void *qkv, const void *k,
                   const void *v, const struct kernel_rows *rows,
                   const struct kernel_attn *attn)
{
    cuda_begin(ctx);
    if (rows->rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        attend(ctx, make_args<__nv_bfloat16>(o, qkv, k, v, rows, attn));
    else
        attend(ctx, make_args<float>(o, qkv, k, v, rows, attn));
}

template <typename T>
static void store(struct kernel_ctx *ctx, const attn_args<T> &a, void *k, void *v)
{
    store_rows<<<a.rows, STORE_THREADS, 0, ctx->cuda->stream>>>(a, (T *)k, (T *)v);
    cuda_launched(ctx, "kv_store");
}

void kv_store_cuda(struct kernel_ctx *ctx, void *k, void *v, const void *qkv,
                   const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    cuda_begin(ctx);
    if (rows->rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        store(ctx, make_args<__nv_bfloat16>(NULL, qkv, k, v, rows, attn), k, v);
    else
        store(ctx, make_args<float>(NULL, qkv, k, v, rows, attn), k, v);
}
