/* The token embedding backwards: rows summed into the table, token by token. */
#include "kernels/train_cuda.h"

#define THREADS 128

/* Block (columns, token): a thread sums one column of the token's rows in order. */
template <typename T>
static __global__ void embed_bwd(float *dtable, const int32_t *token,
                                 const int32_t *start, const int32_t *row, const T *dy,
                                 int C)
{
    int u = blockIdx.y, c = blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;

    if (c >= C)
        return;
#pragma unroll 4
    for (int i = start[u]; i < start[u + 1]; i++)
        sum += to_float(dy[(size_t)row[i] * C + c]);
    dtable[(size_t)token[u] * C + c] += sum;
}

/* The tokens go along the grid's second axis in pieces, since it is short. */
template <typename T>
static void launch(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                   const int32_t *start, const int32_t *row, const T *dy, int unique,
                   int C)
{
    const int piece = 32768;

    for (int u = 0; u < unique; u += piece) {
        dim3 grid(cuda_blocks((size_t)C, THREADS),
                  (unsigned)(unique - u < piece ? unique - u : piece));
        embed_bwd<<<grid, THREADS, 0, ctx->cuda->stream>>>(dtable, token + u, start + u,
                                                           row, dy, C);
    }
    cuda_launched(ctx, "embed_bwd");
}

void embed_bwd_cuda(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                    const int32_t *start, const int32_t *row, const void *dy, int unique,
                    int C)
{
    cuda_begin(ctx);
    if (unique <= 0)
        return;
    if (cuda_is_bf16(ctx))
        launch(ctx, dtable, token, start, row, (const __nv_bfloat16 *)dy, unique, C);
    else
        launch(ctx, dtable, token, start, row, (const float *)dy, unique, C);
}
