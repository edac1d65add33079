/* Cross-entropy and its gradient. */
#include "kernels/train_cuda.h"

#define THREADS 512

/* The largest of a row and the sum of exp(x - max), which is no number if one of x is
 * none. */
struct softmax_state {
    float max;
    double sum;
};

/* Over the thread's elements first, then over the block. */
static __device__ softmax_state row_softmax(const float *x, int V)
{
    float max = -INFINITY, sum = 0;

    for (int i = threadIdx.x; i < V; i += THREADS) {
        float v = x[i];
        if (v > max) {
            sum = sum * expf(max - v) + 1.0f;
            max = v;
        } else if (v != -INFINITY) {
            sum += expf(v - max);
        }
    }
    float top = block_reduce(max, reduce_max(), -INFINITY);
    return {top, block_reduce((double)sum * expf(max - top), reduce_sum(), 0.0)};
}

/* Block r: row r. dlogits may be logits: every element is read again by who writes it,
 * after all have read. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy(float *loss, T *dlogits, int32_t *bad, const float *logits,
                  const int32_t *target, float scale, int V)
{
    const float *x = logits + (size_t)blockIdx.x * V;
    T *dx = dlogits + (size_t)blockIdx.x * V;
    int t = target[blockIdx.x];

    if (t < 0) {
        for (int i = threadIdx.x; i < V; i += THREADS)
            dx[i] = from_float<T>(0.0f);
        if (threadIdx.x == 0)
            loss[blockIdx.x] = 0;
        return;
    }
    float at = x[t];
    softmax_state s = row_softmax(x, V);
    float share = (float)(scale / s.sum);
    for (int i = threadIdx.x; i < V; i += THREADS) {
        float d = expf(x[i] - s.max) * share;
        dx[i] = from_float<T>(i == t ? d - scale : d);
    }
    if (threadIdx.x == 0) {
        float l = (float)(log(s.sum) + s.max - at);
        loss[blockIdx.x] = l;
        if (!isfinite(l))
            *bad = 1;
    }
}

void cross_entropy_cuda(struct kernel_ctx *ctx, float *loss, void *dlogits, int32_t *bad,
                        float *logits, const int32_t *target, float scale, int rows,
                        int V)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        cross_entropy<<<rows, THREADS, 0, stream>>>(loss, (__nv_bfloat16 *)dlogits, bad,
                                                    logits, target, scale, V);
    else
        cross_entropy<<<rows, THREADS, 0, stream>>>(loss, (float *)dlogits, bad, logits,
                                                    target, scale, V);
    cuda_launched(ctx, "cross_entropy");
}
