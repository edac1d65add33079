/* SwiGLU: the gate through silu, times up. */
#include "kernels/cuda.h"

#define THREADS 256

template <typename T>
static __global__ void swiglu(T *y, const T *gate_up, size_t n, int F)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i >= n)
        return;
    const T *p = gate_up + i / F * 2 * F + i % F;
    float gate = to_float(p[0]), up = to_float(p[F]);
    y[i] = from_float<T>(gate / (1.0f + expf(-gate)) * up);
}

void swiglu_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *gate_up, int rows,
                     int F)
{
    cudaStream_t stream = cuda_begin(ctx);
    size_t n = (size_t)(rows > 0 ? rows : 0) * F;
    unsigned blocks = cuda_blocks(n, THREADS);

    if (!n)
        return;
    if (cuda_is_bf16(ctx))
        swiglu<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)y,
                                               (const __nv_bfloat16 *)gate_up, n, F);
    else
        swiglu<<<blocks, THREADS, 0, stream>>>((float *)y, (const float *)gate_up, n, F);
    cuda_launched(ctx, "swiglu_fwd");
}
