/* Private to kernels/: bf16 matrix instructions for attention, by blocks of 4 warps with
 * 16 rows each. C++. */
#ifndef PENSTOCK_MMA_CUDA_H
#define PENSTOCK_MMA_CUDA_H

#include "kernels/cuda.h"

#define MMA_THREADS 128
#define MMA_ROWS    64
#define LOG2E       1.44269504f

typedef __nv_bfloat16 bf16;

/* Row stride of a tile in shared memory: whole steps of 16 columns, and 8 more so that
 * eight rows lie in different banks. */
__host__ __device__ __forceinline__ int mma_ld(int D)
{
    return (D + 15) / 16 * 16 + 8;
}

/* Copies `rows` rows of D elements, `stride` apart, into shared memory with row stride
 * ld; zeros from row `valid` and from column D up to the next multiple of 16. */
__device__ __forceinline__ void load_tile(bf16 *dst, int ld, const bf16 *src,
                                          size_t stride, int rows, int valid, int D)
{
    int eights = (D + 15) / 16 * 2;

    for (int i = threadIdx.x; i < rows * eights; i += MMA_THREADS) {
        int r = i / eights, c = i % eights * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (r < valid && c < D)
            x = *(const uint4 *)(src + r * stride + c);
        *(uint4 *)(dst + r * ld + c) = x;
    }
}

/* Four 8 x 8 matrices from shared memory; lane i gives the address of row i % 8 of
 * matrix i / 8. */
__device__ __forceinline__ void load_matrices(uint32_t *m, const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(uint32_t *m, const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/* c (16, 8) += a (16, 16) b (16, 8). Lane i has rows i / 4 (c[0], c[1]) and i / 4 + 8
 * (c[2], c[3]), columns i % 4 * 2 and the next one. */
__device__ __forceinline__ void multiply(float *c, const uint32_t *a, uint32_t b0,
                                         uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The lower half is the element of the lower column. */
__device__ __forceinline__ uint32_t pack(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t bits;

    memcpy(&bits, &two, sizeof(bits));
    return bits;
}

/* s (16, N) = q k^T of a warp's 16 rows; q points at the warp's rows, k at N rows, ld
 * apart. The matrices of q: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. Those
 * of k: columns 0-7 and 8-15 of rows 0-7, then of rows 8-15. */
template <int MOST, int N>
__device__ __forceinline__ void mma_scores(float (*s)[4], const bf16 *q, const bf16 *k,
                                           int ld, int D)
{
    int lane = threadIdx.x % WARP;
    const bf16 *q_row = q + (lane % 16) * ld + lane / 16 * 8;
    const bf16 *k_row = k + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8;

#pragma unroll
    for (int n = 0; n < N / 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < MOST; d += 16) {
        uint32_t a[4], b[4];
        if (d >= D)
            break;
        load_matrices(a, q_row + d);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            load_matrices(b, k_row + n * 8 * ld + d);
            multiply(s[n], a, b[0], b[1]);
            multiply(s[n + 1], a, b[2], b[3]);
        }
    }
}

/* o (16, D) += p (16, N) v (N, D). What mma_scores leaves in registers is already laid
 * out as the left factor. Matrices of v, transposed on the way: rows 0-7 and 8-15 of
 * columns 0-7, then of columns 8-15. */
template <int MOST, int N>
__device__ __forceinline__ void mma_values(float (*o)[4], const float (*p)[4],
                                           const bf16 *v, int ld, int D)
{
    int lane = threadIdx.x % WARP;
    const bf16 *v_row = v + (lane % 16) * ld + lane / 16 * 8;

#pragma unroll
    for (int t = 0; t < N / 8; t += 2) {
        uint32_t a[4] = {pack(p[t][0], p[t][1]), pack(p[t][2], p[t][3]),
                         pack(p[t + 1][0], p[t + 1][1]), pack(p[t + 1][2], p[t + 1][3])};
#pragma unroll
        for (int n = 0; n < MOST / 8; n += 2) {
            uint32_t b[4];
            if (n * 8 >= D)
                break;
            load_transposed(b, v_row + t * 8 * ld + n * 8);
            multiply(o[n], a, b[0], b[1]);
            multiply(o[n + 1], a, b[2], b[3]);
        }
    }
}

/* Two rows of a lane: the largest score so far (times scale, in units of log 2) and the
 * lane's share of the sum. */
struct row_state {
    float max[2], sum[2];
};

/* Over the four lanes of a row. */
template <typename Op> __device__ __forceinline__ float row_reduce(float x, Op op)
{
    x = op(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return op(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/* Scores of N keys become exp(score - max); o is scaled to the new maximum. Keys start at
 * t, and row i of the lane sees those up to last[i]. */
template <int MOST, int N>
__device__ __forceinline__ void mma_soften(float (*s)[4], float (*o)[4], row_state *row,
                                           float scale, int t, const int *last)
{
    int column = threadIdx.x % 4 * 2;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = row->max[i], shrink;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float *x = &s[n][2 * i + j];
                *x = t + n * 8 + column + j <= last[i] ? *x * scale : -INFINITY;
                top = fmaxf(top, *x);
            }
        }
        top = row_reduce(top, reduce_max());
        shrink = exp2f(row->max[i] - top);
        row->max[i] = top;
        row->sum[i] *= shrink;
#pragma unroll
        for (int n = 0; n < MOST / 8; n++) {
            o[n][2 * i] *= shrink;
            o[n][2 * i + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[n][2 * i + j] = exp2f(s[n][2 * i + j] - top);
                row->sum[i] += s[n][2 * i + j];
            }
        }
    }
}

#endif
