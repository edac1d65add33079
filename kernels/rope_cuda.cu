/* Rotary position embedding, halves paired; backwards it is the rotation by the negative angle. */
#include "kernels/train_cuda.h"

#define THREADS 256

/* A thread rotates one pair. */
template <typename T>
static __global__ void rotate(T *x, const float *cos_sin, const int32_t *pos,
                              size_t pairs, int heads, int half, size_t ld, float sign)
{
    size_t n = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (n >= pairs)
        return;
    size_t row = n / ((size_t)heads * half);
    int head = (int)(n / half % heads), i = (int)(n % half);
    T *p = x + row * ld + (size_t)head * 2 * half + i;
    const float *cs = cos_sin + ((size_t)pos[row] * half + i) * 2;
    float a = to_float(p[0]), b = to_float(p[half]);
    float c = cs[0], s = sign * cs[1];
    p[0] = from_float<T>(a * c - b * s);
    p[half] = from_float<T>(b * c + a * s);
}

static void rope(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                 const int32_t *pos, int rows, int heads, int D, size_t ld, float sign)
{
    cudaStream_t stream = cuda_begin(ctx);
    int half = D / 2;
    size_t pairs = (size_t)(rows > 0 ? rows : 0) * heads * half;
    unsigned blocks = cuda_blocks(pairs, THREADS);

    if (!pairs)
        return;
    if (cuda_is_bf16(ctx))
        rotate<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)x, cos_sin, pos, pairs,
                                               heads, half, ld, sign);
    else
        rotate<<<blocks, THREADS, 0, stream>>>((float *)x, cos_sin, pos, pairs, heads,
                                               half, ld, sign);
    cuda_launched(ctx, "rope");
}

void rope_fwd_cuda(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                   const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    rope(ctx, x, cos_sin, pos, rows, heads, D, ld, 1);
}

void rope_bwd_cuda(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                   const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    rope(ctx, dx, cos_sin, pos, rows, heads, D, ld, -1);
}
