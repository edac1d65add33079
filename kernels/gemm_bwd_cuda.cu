/* Gradients of matrix products through cuBLAS, which thinks in columns: what is (a, b) in
 * rows is (b, a) in columns. */
#include "kernels/train_cuda.h"

#include <errno.h>

/* out (M, N) in columns = or += op(a) op(b) over K. fp32 stays fp32: the default mode of
 * cuBLAS does not round to TF32. */
struct product {
    cublasOperation_t op_a, op_b;
    int M, N, K;
    const void *a, *b;
    int lda, ldb;
    void *out;
    cudaDataType_t type_out;
    bool add;
};

static cudaDataType_t type_of(const struct kernel_ctx *ctx)
{
    return cuda_is_bf16(ctx) ? CUDA_R_16BF : CUDA_R_32F;
}

static void multiply(struct kernel_ctx *ctx, const product &p)
{
    const float alpha = 1.0f, beta = p.add ? 1.0f : 0.0f;
    cudaDataType_t type = type_of(ctx);
    cublasStatus_t status;

    status = cublasGemmEx(ctx->cuda->blas, p.op_a, p.op_b, p.M, p.N, p.K, &alpha, p.a,
                          type, p.lda, p.b, type, p.ldb, &beta, p.out, p.type_out, p.M,
                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    if (!ctx->err)
        log_error("lane cuda:%d: gradient of a matrix product, %d x %d x %d, failed: %s",
                  ctx->device, p.M, p.N, p.K, cublasGetStatusString(status));
    kernel_fail(ctx, -EIO);
}

/* dx^T (K, R) = w^T (K, N) dy^T (N, R). */
void gemm_bwd_input_cuda(struct kernel_ctx *ctx, void *dx, const void *dy, const void *w,
                         bool add, int rows, int N, int K)
{
    product p = {CUBLAS_OP_N, CUBLAS_OP_N, K,  rows,         N,  w, dy,
                 K,           N,           dx, type_of(ctx), add};

    cuda_begin(ctx);
    if (rows > 0 && K > 0)
        multiply(ctx, p);
}

/* dw^T (K, N) += x^T (K, R) dy (R, N). */
void gemm_bwd_weight_cuda(struct kernel_ctx *ctx, float *dw, float *dbias, const void *dy,
                          const void *x, int rows, int N, int K)
{
    product p = {CUBLAS_OP_N, CUBLAS_OP_T, K, N, rows, x, dy, K, N, dw, CUDA_R_32F, true};

    cuda_begin(ctx);
    if (rows <= 0 || N <= 0)
        return;
    multiply(ctx, p);
    if (dbias && cuda_is_bf16(ctx))
        add_columns_cuda(ctx, dbias, (const __nv_bfloat16 *)dy, rows, N, (size_t)N);
    else if (dbias)
        add_columns_cuda(ctx, dbias, (const float *)dy, rows, N, (size_t)N);
}
