/* Private to kernels/: what the CUDA twins share, and the twins themselves for the
 * table. C++. */
#ifndef PENSTOCK_CUDA_H
#define PENSTOCK_CUDA_H

#include "kernels/kernel.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define WARP      32
#define ALL_LANES 0xffffffffu

/* Of cuBLAS. Other kernels of the same stream may keep partial sums there meanwhile. */
#define CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

/* Page-locked buffers through which weights go up while the next piece is converted. */
struct cuda_stage {
    void *buffer;
    cudaEvent_t done; /* the copy out of the buffer */
};

struct cuda_state {
    cudaStream_t stream; /* borrowed */
    cublasHandle_t blas;
    void *workspace; /* of cuBLAS */
    int sm_count;
    cuda_stage stage[2]; /* made at the first upload_f32 */
    int next_stage;
    int32_t *bad; /* host memory that the device writes: a row had no finite logits */
    int32_t *bad_device; /* the same memory as the device sees it */
};

/* Makes the context's device current for this thread and returns the stream to launch
 * on. */
cudaStream_t cuda_begin(struct kernel_ctx *ctx);

/* Notes an error of a call or, after a launch, of the launch; logs it once. True if
 * all is well. */
bool cuda_check(struct kernel_ctx *ctx, cudaError_t e, const char *what);
void cuda_launched(struct kernel_ctx *ctx, const char *kernel);

static inline bool cuda_is_bf16(const struct kernel_ctx *ctx)
{
    return ctx->dtype == DTYPE_BF16;
}

static inline unsigned cuda_blocks(size_t n, size_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

/* Eight elements, loaded and stored 16 bytes at a time. */
template <typename T> struct alignas(16) pack8 {
    T x[8];
};

__device__ __forceinline__ float to_float(float x)
{
    return x;
}

__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

struct reduce_sum {
    template <typename N> __device__ __forceinline__ N operator()(N a, N b) const
    {
        return a + b;
    }
};

struct reduce_max {
    template <typename N> __device__ __forceinline__ N operator()(N a, N b) const
    {
        return a > b ? a : b;
    }
};

struct reduce_min {
    template <typename N> __device__ __forceinline__ N operator()(N a, N b) const
    {
        return a < b ? a : b;
    }
};

/* Over the lanes of a warp; every lane gets the result. All lanes must call it. */
template <typename N, typename Op> __device__ __forceinline__ N warp_reduce(N x, Op op)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        x = op(x, __shfl_xor_sync(ALL_LANES, x, lane));
    return x;
}

/* Over a block of whole warps, in an order that never changes; every thread gets the
 * result. All threads must call it. idle is what op leaves alone. */
template <typename N, typename Op> __device__ N block_reduce(N x, Op op, N idle)
{
    __shared__ N part[WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    x = warp_reduce(x, op);
    __syncthreads(); /* part may still be read for the last reduction */
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = lane < (int)(blockDim.x / WARP) ? part[lane] : idle;
    return warp_reduce(x, op);
}

/* Segments of up to this many rows take the kernel for decoding, row by row. */
#define ATTN_DIRECT_ROWS 4

/* Attention as its kernels see it; T is float or __nv_bfloat16. Shapes are those of
 * kernel.h. */
template <typename T> struct attn_args {
    T *o;
    const T *qkv, *k, *v;
    const int32_t *pos, *row_seg, *seg_row, *table;
    int rows, segs, max_rows, table_ld;
    int heads, kv_heads, head_dim;
    float scale;
    size_t ld; /* of qkv */
};

/* Segments of more than ATTN_DIRECT_ROWS rows. */
void attn_prefill_cuda(struct kernel_ctx *ctx, const attn_args<float> &a);
void attn_prefill_cuda(struct kernel_ctx *ctx, const attn_args<__nv_bfloat16> &a);

void embed_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *table,
                    const int32_t *tokens, const int32_t *index, int rows, int C);
void gather_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const int32_t *index,
                     int rows, int C);
void norm_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const void *weight,
                   float eps, int rows, int groups, int C, size_t ldy, size_t ldx);
void gemm_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const void *w,
                   const void *bias, bool add, int rows, int N, int K);
void head_fwd_cuda(struct kernel_ctx *ctx, float *logits, const void *x, const void *w,
                   int rows, int V, int C);
void rope_fwd_cuda(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                   const int32_t *pos, int rows, int heads, int D, size_t ld);
void kv_store_cuda(struct kernel_ctx *ctx, void *k, void *v, const void *qkv,
                   const struct kernel_rows *rows, const struct kernel_attn *attn);
void attn_fwd_cuda(struct kernel_ctx *ctx, void *o, const void *qkv, const void *k,
                   const void *v, const struct kernel_rows *rows,
                   const struct kernel_attn *attn);
void swiglu_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *gate_up, int rows,
                     int F);
void sample_cuda(struct kernel_ctx *ctx, int32_t *tokens, int32_t *recent, int32_t *bad,
                 float *logits, const struct kernel_sample_row *row,
                 const struct kernel_sampling *p, int rows, int V);
void logprob_cuda(struct kernel_ctx *ctx, float *out, const float *logits,
                  const int32_t *target, int rows, int V);

#endif
