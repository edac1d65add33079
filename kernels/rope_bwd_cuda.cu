/* Rotary position embedding backwards: the rotation by the negative angle. */
#include "kernels/train_cuda.h"

#define THREADS 256

/* A thread rotates one pair. */
template <typename T>
static __global__ void rope_bwd(T *x, const float *cos_sin, const int32_t *pos,
                                size_t pairs, int heads, int half, size_t ld)
{
    size_t n = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (n >= pairs)
        return;
    size_t row = n / ((size_t)heads * half);
    int head = (int)(n / half % heads), i = (int)(n % half);
    T *p = x + row * ld + (size_t)head * 2 * half + i;
    const float *cs = cos_sin + ((size_t)pos[row] * half + i) * 2;
    float a = to_float(p[0]), b = to_float(p[half]);
    p[0] = from_float<T>(a * cs[0] + b * cs[1]);
    p[half] = from_float<T>(b * cs[0] - a * cs[1]);
}

void rope_bwd_cuda(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                   const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    cudaStream_t stream = cuda_begin(ctx);
    int half = D / 2;
    size_t pairs = (size_t)(rows > 0 ? rows : 0) * heads * half;
    unsigned blocks = cuda_blocks(pairs, THREADS);

    if (!pairs)
        return;
    if (cuda_is_bf16(ctx))
        rope_bwd<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)dx, cos_sin, pos, pairs,
                                                 heads, half, ld);
    else
        rope_bwd<<<blocks, THREADS, 0, stream>>>((float *)dx, cos_sin, pos, pairs, heads,
                                                 half, ld);
    cuda_launched(ctx, "rope_bwd");
}
