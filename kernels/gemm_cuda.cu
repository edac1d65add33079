/* Matrix products through cuBLAS, which thinks in columns: y (rows, N) in rows is y^T
 * in columns, so y^T = w x^T, with w read transposed. */
#include "kernels/cuda.h"

#include <errno.h>

#define THREADS 256

/* y = bias, or y += bias. */
template <typename T>
static __global__ void put_bias(T *y, const T *bias, bool add, size_t n, int N)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i >= n)
        return;
    T b = bias[i % N];
    y[i] = add ? from_float<T>(to_float(y[i]) + to_float(b)) : b;
}

static void launch_bias(struct kernel_ctx *ctx, void *y, const void *bias, bool add,
                        int rows, int N)
{
    cudaStream_t stream = ctx->cuda->stream;
    size_t n = (size_t)rows * N;
    unsigned blocks = cuda_blocks(n, THREADS);

    if (cuda_is_bf16(ctx))
        put_bias<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)y,
                                                 (const __nv_bfloat16 *)bias, add, n, N);
    else
        put_bias<<<blocks, THREADS, 0, stream>>>((float *)y, (const float *)bias, add, n,
                                                 N);
    cuda_launched(ctx, "gemm_fwd (bias)");
}

/* fp32 stays fp32: the default mode of cuBLAS does not round to TF32. */
static void blas_gemm(struct kernel_ctx *ctx, void *y, cudaDataType_t type_y,
                      const void *x, const void *w, float beta, int rows, int N, int K)
{
    cudaDataType_t type = cuda_is_bf16(ctx) ? CUDA_R_16BF : CUDA_R_32F;
    const float alpha = 1.0f;
    cublasStatus_t status;

    status = cublasGemmEx(ctx->cuda->blas, CUBLAS_OP_T, CUBLAS_OP_N, N, rows, K, &alpha,
                          w, type, K, x, type, K, &beta, y, type_y, N, CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    if (!ctx->err)
        log_error("lane cuda:%d: matrix product of %d x %d x %d failed: %s", ctx->device,
                  rows, N, K, cublasGetStatusString(status));
    kernel_fail(ctx, -EIO);
}

void gemm_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const void *w,
                   const void *bias, bool add, int rows, int N, int K)
{
    cuda_begin(ctx);
    if (rows <= 0 || N <= 0)
        return;
    if (bias)
        launch_bias(ctx, y, bias, add, rows, N);
    blas_gemm(ctx, y, cuda_is_bf16(ctx) ? CUDA_R_16BF : CUDA_R_32F, x, w,
              bias || add ? 1.0f : 0.0f, rows, N, K);
}

void head_fwd_cuda(struct kernel_ctx *ctx, float *logits, const void *x, const void *w,
                   int rows, int V, int C)
{
    cuda_begin(ctx);
    if (rows > 0 && V > 0)
        blas_gemm(ctx, logits, CUDA_R_32F, x, w, 0.0f, rows, V, C);
}
