/* SwiGLU backwards. */
#include "kernels/train_cuda.h"

#define THREADS 256

/* With e = exp(-gate) and s = 1 / (1 + e), silu' = s (1 + gate (1 - s)). dgate_up may be
 * gate_up: a thread reads and writes the same elements. */
template <typename T>
static __global__ void swiglu_bwd(T *dgate_up, const T *dy, const T *gate_up, size_t n,
                                  int F)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i >= n)
        return;
    size_t at = i / F * 2 * F + i % F;
    float gate = to_float(gate_up[at]), up = to_float(gate_up[at + F]);
    float d = to_float(dy[i]), s = 1.0f / (1.0f + expf(-gate));
    dgate_up[at] = from_float<T>(d * up * s * (1.0f + gate * (1.0f - s)));
    dgate_up[at + F] = from_float<T>(d * gate * s);
}

void swiglu_bwd_cuda(struct kernel_ctx *ctx, void *dgate_up, const void *dy,
                     const void *gate_up, int rows, int F)
{
    cudaStream_t stream = cuda_begin(ctx);
    size_t n = (size_t)(rows > 0 ? rows : 0) * F;
    unsigned blocks = cuda_blocks(n, THREADS);

    if (!n)
        return;
    if (cuda_is_bf16(ctx))
        swiglu_bwd<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)dgate_up,
                                                   (const __nv_bfloat16 *)dy,
                                                   (const __nv_bfloat16 *)gate_up, n, F);
    else
        swiglu_bwd<<<blocks, THREADS, 0, stream>>>((float *)dgate_up, (const float *)dy,
                                                   (const float *)gate_up, n, F);
    cuda_launched(ctx, "swiglu_bwd");
}
