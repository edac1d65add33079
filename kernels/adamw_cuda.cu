/* The optimizer: AdamW's step, the sum of squares for clipping, and sums of gradients. */
#include "kernels/train_cuda.h"

#define THREADS     256
#define PER_BLOCK   (16 * THREADS) /* elements that are worth a block of their own */
#define MOST_BLOCKS 1024

/* ---- Sum of squares: a partial sum of each block, then one block over those ---- */

static __global__ void square_parts(double *part, const float *g, size_t n)
{
    size_t step = (size_t)gridDim.x * THREADS;
    double sum = 0;

    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += step)
        sum += (double)g[i] * g[i];
    sum = block_reduce(sum, reduce_sum(), 0.0);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

static __global__ void add_parts(double *out, const double *part, int parts)
{
    double sum = 0;

    for (int i = threadIdx.x; i < parts; i += THREADS)
        sum += part[i];
    sum = block_reduce(sum, reduce_sum(), 0.0);
    if (threadIdx.x == 0)
        out[0] += sum;
}

void sum_squares_cuda(struct kernel_ctx *ctx, double *out, const float *g, size_t n)
{
    cudaStream_t stream = cuda_begin(ctx);
    double *part = (double *)ctx->cuda->workspace;
    size_t blocks = (n + PER_BLOCK - 1) / PER_BLOCK;

    if (n == 0)
        return;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    square_parts<<<(unsigned)blocks, THREADS, 0, stream>>>(part, g, n);
    add_parts<<<1, THREADS, 0, stream>>>(out, part, (int)blocks);
    cuda_launched(ctx, "sum_squares");
}

/* ---- AdamW ---- */

/* What is the same for all elements. */
struct adamw_step {
    float beta1, beta2, rest1, rest2, correct1, correct2, eps, decay, lr, scale;
};

template <typename T>
static __global__ void adamw(float *master, T *weight, float *m, float *v, float *g,
                             adamw_step p, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i >= n)
        return;
    float gradient = g[i] * p.scale, x = master[i];
    float first = m[i] * p.beta1 + gradient * p.rest1;
    float second = v[i] * p.beta2 + gradient * gradient * p.rest2;
    float step = first * p.correct1 / (sqrtf(second * p.correct2) + p.eps);
    x -= (step + x * p.decay) * p.lr;
    m[i] = first;
    v[i] = second;
    g[i] = 0;
    master[i] = x;
    weight[i] = from_float<T>(x);
}

void adamw_cuda(struct kernel_ctx *ctx, float *master, void *weight, float *m, float *v,
                float *g, const struct kernel_adamw *p, size_t n)
{
    cudaStream_t stream = cuda_begin(ctx);
    unsigned blocks = cuda_blocks(n, THREADS);
    adamw_step step = {
        p->beta1,           p->beta2, 1 - p->beta1,    1 - p->beta2, 1 / p->correction1,
        1 / p->correction2, p->eps,   p->weight_decay, p->lr,        p->scale};

    if (n == 0)
        return;
    if (cuda_is_bf16(ctx))
        adamw<<<blocks, THREADS, 0, stream>>>(master, (__nv_bfloat16 *)weight, m, v, g,
                                              step, n);
    else
        adamw<<<blocks, THREADS, 0, stream>>>(master, (float *)weight, m, v, g, step, n);
    cuda_launched(ctx, "adamw");
}

static __global__ void accumulate(float *y, const float *x, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < n)
        y[i] += x[i];
}

void accumulate_cuda(struct kernel_ctx *ctx, float *y, const float *x, size_t n)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (n == 0)
        return;
    accumulate<<<cuda_blocks(n, THREADS), THREADS, 0, stream>>>(y, x, n);
    cuda_launched(ctx, "accumulate");
}
