/* Log-probabilities of given tokens. */
#include "kernels/cuda.h"

#include <math_constants.h>

#define THREADS 512

/* Block r: row r. Sums in double, in an order that never changes. */
static __global__ void logprob(float *out, const float *logits, const int32_t *target,
                               int V)
{
    const float *x = logits + (size_t)blockIdx.x * V;
    int t = target[blockIdx.x], nan = 0;
    float max = -CUDART_INF_F;
    double sum = 0;

    if (t < 0) {
        if (threadIdx.x == 0)
            out[blockIdx.x] = 0;
        return;
    }
    for (int i = threadIdx.x; i < V; i += THREADS) {
        max = x[i] > max ? x[i] : max;
        nan |= isnan(x[i]);
    }
    max = block_reduce(max, reduce_max(), -CUDART_INF_F);
    nan = block_reduce(nan, reduce_max(), 0);
    for (int i = threadIdx.x; i < V; i += THREADS)
        sum += (double)expf(x[i] - max);
    sum = block_reduce(sum, reduce_sum(), 0.0);
    if (threadIdx.x == 0)
        out[blockIdx.x] =
            nan || isinf(max) ? CUDART_NAN_F : (float)((double)x[t] - max - log(sum));
}

void logprob_cuda(struct kernel_ctx *ctx, float *out, const float *logits,
                  const int32_t *target, int rows, int V)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (rows <= 0)
        return;
    logprob<<<rows, THREADS, 0, stream>>>(out, logits, target, V);
    cuda_launched(ctx, "logprob");
}
