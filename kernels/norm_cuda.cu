/* RMSNorm over rows, or over groups of a row. */
#include "kernels/cuda.h"

#define MOST_THREADS 512

/* Block (row, group). Every element is read and written by one thread, so y may be x. */
template <typename T>
static __global__ void norm(T *y, const T *x, const T *weight, float eps, int C,
                            size_t ldy, size_t ldx)
{
    float sum = 0;

    x += blockIdx.x * ldx + (size_t)blockIdx.y * C;
    y += blockIdx.x * ldy + (size_t)blockIdx.y * C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float v = to_float(x[c]);
        sum += v * v;
    }
    sum = block_reduce(sum, reduce_sum(), 0.0f);
    float scale = 1.0f / sqrtf(sum / (float)C + eps);
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        y[c] = from_float<T>(to_float(x[c]) * scale * to_float(weight[c]));
}

void norm_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const void *weight,
                   float eps, int rows, int groups, int C, size_t ldy, size_t ldx)
{
    cudaStream_t stream = cuda_begin(ctx);
    int threads = (C + WARP - 1) / WARP * WARP;
    dim3 grid((unsigned)rows, (unsigned)groups);

    if (rows <= 0)
        return;
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    if (cuda_is_bf16(ctx))
        norm<<<grid, threads, 0, stream>>>((__nv_bfloat16 *)y, (const __nv_bfloat16 *)x,
                                           (const __nv_bfloat16 *)weight, eps, C, ldy,
                                           ldx);
    else
        norm<<<grid, threads, 0, stream>>>((float *)y, (const float *)x,
                                           (const float *)weight, eps, C, ldy, ldx);
    cuda_launched(ctx, "norm_fwd");
}
