/* Causal attention of whole sequences and its backward pass, as FlashAttention does it
 * (Dao, 2023): what both types share. With P = softmax(S), S = scale q k^T and dP = dout
 * v^T: dS = P (dP - delta), delta = dout . o; dq = scale dS k, dk = scale dS^T q, dv =
 * P^T dout. One kernel has blocks of queries and sums over keys, another one blocks of
 * keys and sums over queries, so that no two blocks add to one place. */
#include "kernels/train_cuda.h"

#define DELTA_THREADS 256

/* delta (R, H): a warp has a row and head, a lane eight elements. */
template <typename T> static __global__ void make_delta(attn_train_args<T> a)
{
    size_t i = (blockIdx.x * (size_t)DELTA_THREADS + threadIdx.x) / WARP;
    int at = threadIdx.x % WARP * 8;
    float sum = 0;

    if (i >= (size_t)a.rows * a.heads)
        return;
    if (at < a.head_dim) {
        pack8<T> o = *(const pack8<T> *)(a.o + i * a.head_dim + at);
        pack8<T> d = *(const pack8<T> *)(a.dout + i * a.head_dim + at);
        for (int j = 0; j < 8; j++)
            sum += to_float(o.x[j]) * to_float(d.x[j]);
    }
    sum = warp_reduce(sum, reduce_sum());
    if (at == 0)
        a.delta[i] = sum;
}

template <typename T>
static void delta(struct kernel_ctx *ctx, const attn_train_args<T> &a)
{
    size_t threads = (size_t)a.rows * a.heads * WARP;

    make_delta<<<cuda_blocks(threads, DELTA_THREADS), DELTA_THREADS, 0,
                 ctx->cuda->stream>>>(a);
    cuda_launched(ctx, "attn_bwd (delta)");
}

template <typename T>
static attn_train_args<T> make_args(const void *qkv, const struct kernel_rows *rows,
                                    const struct kernel_attn *attn)
{
    attn_train_args<T> a = {};

    a.qkv = (const T *)qkv;
    a.seg_row = rows->seg_row;
    a.rows = rows->rows;
    a.segs = rows->segs;
    a.max_rows = rows->max_rows;
    a.heads = attn->heads;
    a.kv_heads = attn->kv_heads;
    a.head_dim = attn->head_dim;
    a.scale = attn->scale;
    a.ld = (size_t)(attn->heads + 2 * attn->kv_heads) * attn->head_dim;
    a.ldo = (size_t)attn->heads * attn->head_dim;
    return a;
}

template <typename T>
static attn_train_args<T> forward_args(void *o, float *lse, const void *qkv,
                                       const struct kernel_rows *rows,
                                       const struct kernel_attn *attn)
{
    attn_train_args<T> a = make_args<T>(qkv, rows, attn);

    a.o = (T *)o;
    a.lse = lse;
    return a;
}

void attn_train_fwd_cuda(struct kernel_ctx *ctx, void *o, float *lse, const void *qkv,
                         const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    cuda_begin(ctx);
    if (rows->rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        attn_train_fwd_mma(ctx, forward_args<__nv_bfloat16>(o, lse, qkv, rows, attn));
    else
        attn_train_fwd_f32(ctx, forward_args<float>(o, lse, qkv, rows, attn));
}

template <typename T>
static attn_train_args<T> backward_args(void *dqkv, float *delta, const void *dout,
                                        const void *qkv, const void *o, const float *lse,
                                        const struct kernel_rows *rows,
                                        const struct kernel_attn *attn)
{
    attn_train_args<T> a = forward_args<T>((void *)o, (float *)lse, qkv, rows, attn);

    a.dqkv = (T *)dqkv;
    a.delta = delta;
    a.dout = (const T *)dout;
    return a;
}

void attn_bwd_cuda(struct kernel_ctx *ctx, void *dqkv, float *work, const void *dout,
                   const void *qkv, const void *o, const float *lse,
                   const struct kernel_rows *rows, const struct kernel_attn *attn)
{
    cuda_begin(ctx);
    if (rows->rows <= 0)
        return;
    if (cuda_is_bf16(ctx)) {
        auto a = backward_args<__nv_bfloat16>(dqkv, work, dout, qkv, o, lse, rows, attn);
        delta(ctx, a);
        attn_bwd_mma(ctx, a);
    } else {
        auto a = backward_args<float>(dqkv, work, dout, qkv, o, lse, rows, attn);
        delta(ctx, a);
        attn_bwd_f32(ctx, a);
    }
}
