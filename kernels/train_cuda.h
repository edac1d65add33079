/* Private to kernels/: the CUDA twins of training, for the table, and what they share.
 * C++. */
#ifndef PENSTOCK_TRAIN_CUDA_H
#define PENSTOCK_TRAIN_CUDA_H

#include "kernels/cuda.h"
#include "kernels/train.h"

/* y (n) += the sum of the rows of x (rows, n), row stride ld. */
void add_columns_cuda(struct kernel_ctx *ctx, float *y, const float *x, int rows, int n,
                      size_t ld);
void add_columns_cuda(struct kernel_ctx *ctx, float *y, const __nv_bfloat16 *x, int rows,
                      int n, size_t ld);

/* Attention in training as its kernels see it; T is float or __nv_bfloat16. Shapes are
 * those of train.h. */
template <typename T> struct attn_train_args {
    const T *qkv, *dout; /* (R, ld), (R, ldo) */
    T *o, *dqkv;         /* (R, ldo), (R, ld) */
    float *lse, *delta;  /* (R, H) */
    const int32_t *seg_row;
    int rows, segs, max_rows;
    int heads, kv_heads, head_dim;
    float scale;
    size_t ld, ldo;
};

void attn_train_fwd_f32(struct kernel_ctx *ctx, const attn_train_args<float> &a);
void attn_bwd_f32(struct kernel_ctx *ctx, const attn_train_args<float> &a);
void attn_train_fwd_mma(struct kernel_ctx *ctx, const attn_train_args<__nv_bfloat16> &a);
void attn_bwd_mma(struct kernel_ctx *ctx, const attn_train_args<__nv_bfloat16> &a);

/* Rows of a segment that a block works on: first .. first + count - 1, counted from row
 * `start` of the batch on; the segment has `rows`. */
struct train_tile {
    int start, rows, first, count;
};

/* Tile number n of segment blockIdx.z. False if the segment has no such tile. */
template <typename T>
__device__ __forceinline__ bool
find_train_tile(train_tile *t, const attn_train_args<T> &a, int n, int tile_rows)
{
    t->start = a.seg_row[blockIdx.z];
    t->rows = a.seg_row[blockIdx.z + 1] - t->start;
    t->first = n * tile_rows;
    t->count = min(tile_rows, t->rows - t->first);
    return t->count > 0;
}

/* Row `row` of head h of q (h < H), k (H + kv) or v (H + K + kv), or of o. */
template <typename T>
__device__ __forceinline__ const T *row_of(const T *x, size_t ld, int row, int head,
                                           int D)
{
    return x + (size_t)row * ld + (size_t)head * D;
}

/* A kernel with a block for each (tile of rows, head, segment). */
template <typename T>
void attn_train_launch(struct kernel_ctx *ctx, void (*kernel)(attn_train_args<T>),
                       const attn_train_args<T> &a, int tile_rows, int heads, int threads,
                       size_t shared, const char *name)
{
    dim3 grid((unsigned)((a.max_rows + tile_rows - 1) / tile_rows), (unsigned)heads,
              (unsigned)a.segs);

    if (!cuda_check(ctx,
                    cudaFuncSetAttribute(
                        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                    name))
        return;
    kernel<<<grid, threads, shared, ctx->cuda->stream>>>(a);
    cuda_launched(ctx, name);
}

void norm_bwd_cuda(struct kernel_ctx *ctx, void *dx, float *dweight, const void *dy,
                   const void *x, const void *weight, float eps, bool add, int rows,
                   int groups, int C, size_t lddx, size_t lddy, size_t ldx);
void gemm_bwd_input_cuda(struct kernel_ctx *ctx, void *dx, const void *dy, const void *w,
                         bool add, int rows, int N, int K);
void gemm_bwd_weight_cuda(struct kernel_ctx *ctx, float *dw, float *dbias, const void *dy,
                          const void *x, int rows, int N, int K);
void rope_bwd_cuda(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                   const int32_t *pos, int rows, int heads, int D, size_t ld);
void attn_train_fwd_cuda(struct kernel_ctx *ctx, void *o, float *lse, const void *qkv,
                         const struct kernel_rows *rows, const struct kernel_attn *attn);
void attn_bwd_cuda(struct kernel_ctx *ctx, void *dqkv, float *delta, const void *dout,
                   const void *qkv, const void *o, const float *lse,
                   const struct kernel_rows *rows, const struct kernel_attn *attn);
void swiglu_bwd_cuda(struct kernel_ctx *ctx, void *dgate_up, const void *dy,
                     const void *gate_up, int rows, int F);
void embed_bwd_cuda(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                    const int32_t *start, const int32_t *row, const void *dy, int unique,
                    int C);
void cross_entropy_cuda(struct kernel_ctx *ctx, float *loss, void *dlogits, int32_t *bad,
                        float *logits, const int32_t *target, float scale, int rows,
                        int V);
void sum_squares_cuda(struct kernel_ctx *ctx, double *out, const float *g, size_t n);
void adamw_cuda(struct kernel_ctx *ctx, float *master, void *weight, float *m, float *v,
                float *g, const struct kernel_adamw *p, size_t n);
void accumulate_cuda(struct kernel_ctx *ctx, float *y, const float *x, size_t n);

extern const struct kernel_train_ops train_ops_cuda;

#endif
