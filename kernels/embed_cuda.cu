/* Rows picked by index: the token embedding and gather. */
#include "kernels/cuda.h"

#define THREADS 128

/* Block r copies row tokens[index[r]]; either list may be absent. */
template <typename T>
static __global__ void pick_rows(T *y, const T *x, const int32_t *tokens,
                                 const int32_t *index, int C)
{
    size_t row = index ? (size_t)index[blockIdx.x] : blockIdx.x;

    if (tokens)
        row = (size_t)tokens[row];
    for (int c = threadIdx.x; c < C; c += THREADS)
        y[(size_t)blockIdx.x * C + c] = x[row * C + c];
}

static void launch(struct kernel_ctx *ctx, void *y, const void *x, const int32_t *tokens,
                   const int32_t *index, int rows, int C, const char *name)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        pick_rows<<<rows, THREADS, 0, stream>>>(
            (__nv_bfloat16 *)y, (const __nv_bfloat16 *)x, tokens, index, C);
    else
        pick_rows<<<rows, THREADS, 0, stream>>>((float *)y, (const float *)x, tokens,
                                                index, C);
    cuda_launched(ctx, name);
}

void embed_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *table,
                    const int32_t *tokens, const int32_t *index, int rows, int C)
{
    launch(ctx, y, table, tokens, index, rows, C, "embed_fwd");
}

void gather_fwd_cuda(struct kernel_ctx *ctx, void *y, const void *x, const int32_t *index,
                     int rows, int C)
{
    launch(ctx, y, x, NULL, index, rows, C, "gather_fwd");
}
