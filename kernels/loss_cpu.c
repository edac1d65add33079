/* Log-probabilities of given tokens. */
#include "kernels/cpu.h"

#include <math.h>

struct logprob {
    const struct vec_ops *vec;
    float *out;
    const float *logits;
    const int32_t *target;
    int V;
};

static void logprob_row(void *arg, int row, int thread)
{
    const struct logprob *p = arg;
    const float *x = p->logits + (size_t)row * p->V;
    int32_t target = p->target[row];
    bool nan = false;
    float max;

    (void)thread;
    if (target < 0) {
        p->out[row] = 0;
        return;
    }
    max = p->vec->max(x, (size_t)p->V, &nan);
    if (nan || !isfinite(max)) {
        p->out[row] = NAN;
        return;
    }
    p->out[row] =
        (float)((double)x[target] - max - log(p->vec->exp_total(x, (size_t)p->V, max)));
}

void logprob_cpu(struct kernel_ctx *ctx, float *out, const float *logits,
                 const int32_t *target, int rows, int V)
{
    struct logprob logprob = {cpu_vec(ctx), out, logits, target, V};

    cpu_run(ctx, logprob_row, &logprob, rows);
}
