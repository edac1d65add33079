/* Private to kernels/: fp32 pieces of attention, by blocks with 8 threads a row: thread j
 * of a row has columns j, j + 8, .. of it. C++. */
#ifndef PENSTOCK_F32_CUDA_H
#define PENSTOCK_F32_CUDA_H

#include "kernels/cuda.h"

/* Copies rows of D floats, `stride` apart, into rows ld apart; zeros from row `valid`. */
__device__ __forceinline__ void load_floats(float *dst, int ld, const float *src,
                                            size_t stride, int rows, int valid, int D)
{
    for (int i = threadIdx.x; i < rows * D; i += blockDim.x) {
        int r = i / D, c = i % D;
        dst[r * ld + c] = r < valid ? src[r * stride + c] : 0.0f;
    }
}

/* Over the eight threads of a row. */
template <typename Op> __device__ __forceinline__ float eight_reduce(float x, Op op)
{
    for (int lane = 4; lane > 0; lane /= 2)
        x = op(x, __shfl_xor_sync(ALL_LANES, x, lane));
    return x;
}

/* The products of the thread's row q (D) with its columns of k (N, ld). */
template <int N>
__device__ __forceinline__ void f32_scores(float *s, const float *q, const float *k,
                                           int ld, int D)
{
    int j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < N / 8; i++)
        s[i] = 0;
    for (int d = 0; d < D; d++) {
        float x = q[d];
#pragma unroll
        for (int i = 0; i < N / 8; i++)
            s[i] += x * k[(j + 8 * i) * ld + d];
    }
}

/* Scores of N keys, those up to `last` of which are seen, become exp(score - max) and go
 * to p (N); returns by how much the old sums shrink. */
template <int N>
__device__ __forceinline__ float f32_soften(float *s, float *p, float *max, float *sum,
                                            float scale, int t, int last)
{
    int j = threadIdx.x % 8;
    float top = *max, part = 0, shrink;

#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        s[i] = t + j + 8 * i <= last ? s[i] * scale : -INFINITY;
        top = fmaxf(top, s[i]);
    }
    top = eight_reduce(top, reduce_max());
    shrink = expf(*max - top);
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        float e = expf(s[i] - top);
        p[j + 8 * i] = e;
        part += e;
    }
    *sum = *sum * shrink + eight_reduce(part, reduce_sum());
    *max = top;
    return shrink;
}

/* The thread's columns of o = o * shrink + p v, with v (n, ld). */
template <int MOST>
__device__ __forceinline__ void f32_values(float *o, const float *p, const float *v,
                                           int ld, float shrink, int n, int D)
{
    int j = threadIdx.x % 8;

#pragma unroll
    for (int i = 0; i < MOST / 8; i++)
        o[i] *= shrink;
    for (int t = 0; t < n; t++) {
        float x = p[t];
#pragma unroll
        for (int i = 0; i < MOST / 8; i++) {
            if (i * 8 < D)
                o[i] += x * v[t * ld + j + 8 * i];
        }
    }
}

#endif
