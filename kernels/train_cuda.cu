/* The CUDA table of training kernels, and what they share. */
#include "kernels/train_cuda.h"

#define COLUMNS 32 /* of a block of add_columns, and rows that are summed side by side */
#define THREADS 256

/* Thread (c, lane) sums rows lane, lane + COLUMNS, .. of a column; then the lanes are
 * summed in order. */
template <typename T>
static __global__ void add_columns(float *y, const T *x, int rows, int n, size_t ld)
{
    __shared__ float part[COLUMNS][COLUMNS + 1];
    int lane = threadIdx.y, c = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;

    for (int r = lane; c < n && r < rows; r += COLUMNS)
        sum += to_float(x[r * ld + c]);
    part[lane][threadIdx.x] = sum;
    __syncthreads();
    if (lane > 0 || c >= n)
        return;
    for (int i = 1; i < COLUMNS; i++)
        sum += part[i][threadIdx.x];
    y[c] += sum;
}

template <typename T>
static void launch_columns(struct kernel_ctx *ctx, float *y, const T *x, int rows, int n,
                           size_t ld)
{
    if (rows <= 0 || n <= 0)
        return;
    add_columns<<<cuda_blocks((size_t)n, COLUMNS), dim3(COLUMNS, COLUMNS), 0,
                  ctx->cuda->stream>>>(y, x, rows, n, ld);
    cuda_launched(ctx, "sum of rows");
}

void add_columns_cuda(struct kernel_ctx *ctx, float *y, const float *x, int rows, int n,
                      size_t ld)
{
    launch_columns(ctx, y, x, rows, n, ld);
}

void add_columns_cuda(struct kernel_ctx *ctx, float *y, const __nv_bfloat16 *x, int rows,
                      int n, size_t ld)
{
    launch_columns(ctx, y, x, rows, n, ld);
}

template <typename T>
static __global__ void copy_rows(T *y, const T *x, size_t total, int n, size_t ldy,
                                 size_t ldx)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < total)
        y[i / n * ldy + i % n] = x[i / n * ldx + i % n];
}

/* Rows without gaps are one piece. */
static void copy_rows_cuda(struct kernel_ctx *ctx, void *y, const void *x, int rows,
                           int n, size_t ldy, size_t ldx)
{
    cudaStream_t stream = cuda_begin(ctx);
    size_t total = (size_t)(rows > 0 ? rows : 0) * (size_t)n;
    unsigned blocks = cuda_blocks(total, THREADS);

    if (!total)
        return;
    if (ldy == (size_t)n && ldx == (size_t)n)
        cuda_check(ctx,
                   cudaMemcpyAsync(y, x, total * (cuda_is_bf16(ctx) ? 2 : 4),
                                   cudaMemcpyDeviceToDevice, stream),
                   "copying rows");
    else if (cuda_is_bf16(ctx))
        copy_rows<<<blocks, THREADS, 0, stream>>>((uint16_t *)y, (const uint16_t *)x,
                                                  total, n, ldy, ldx);
    else
        copy_rows<<<blocks, THREADS, 0, stream>>>((float *)y, (const float *)x, total, n,
                                                  ldy, ldx);
    cuda_launched(ctx, "copy_rows");
}

static kernel_train_ops make_ops(void)
{
    kernel_train_ops ops = {};

    ops.norm_bwd = norm_bwd_cuda;
    ops.gemm_bwd_input = gemm_bwd_input_cuda;
    ops.gemm_bwd_weight = gemm_bwd_weight_cuda;
    ops.rope_bwd = rope_bwd_cuda;
    ops.attn_train_fwd = attn_train_fwd_cuda;
    ops.attn_bwd = attn_bwd_cuda;
    ops.swiglu_bwd = swiglu_bwd_cuda;
    ops.embed_bwd = embed_bwd_cuda;
    ops.cross_entropy = cross_entropy_cuda;
    ops.sum_squares = sum_squares_cuda;
    ops.adamw = adamw_cuda;
    ops.copy_rows = copy_rows_cuda;
    ops.accumulate = accumulate_cuda;
    return ops;
}

const kernel_train_ops train_ops_cuda = make_ops();
