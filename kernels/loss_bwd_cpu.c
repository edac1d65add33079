/* Cross-entropy and its gradient. */
#include "kernels/train_cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

struct cross_entropy {
    const struct vec_ops *vec;
    float *loss, *dlogits;
    const float *logits;
    const int32_t *target;
    float scale;
    size_t V;
    atomic_bool bad;
};

/* One row with a target. Where the loss is not finite the gradient is not a number
 * either. */
static float cross_entropy_of(const struct cross_entropy *p, float *dx, const float *x,
                              int32_t target)
{
    bool nan = false;
    float max = p->vec->max(x, p->V, &nan), at = x[target];
    double sum;

    if (nan || !isfinite(max)) {
        for (size_t i = 0; i < p->V; i++)
            dx[i] = NAN;
        return NAN;
    }
    sum = p->vec->exp_total(x, p->V, max);
    p->vec->exp_scaled(dx, x, max, (float)(p->scale / sum), p->V);
    dx[target] -= p->scale;
    return (float)(log(sum) + max - at);
}

static void cross_entropy_row(void *arg, int row, int thread)
{
    struct cross_entropy *p = arg;
    float *dx = p->dlogits + (size_t)row * p->V;
    int32_t target = p->target[row];

    (void)thread;
    if (target < 0) {
        p->loss[row] = 0;
        memset(dx, 0, p->V * sizeof(float));
        return;
    }
    p->loss[row] = cross_entropy_of(p, dx, p->logits + (size_t)row * p->V, target);
    if (!isfinite(p->loss[row]))
        atomic_store(&p->bad, true);
}

void cross_entropy_cpu(struct kernel_ctx *ctx, float *loss, void *dlogits, int32_t *bad,
                       float *logits, const int32_t *target, float scale, int rows, int V)
{
    struct cross_entropy p = {.vec = cpu_vec(ctx),
                              .loss = loss,
                              .dlogits = dlogits,
                              .logits = logits,
                              .target = target,
                              .scale = scale,
                              .V = (size_t)V};

    cpu_run(ctx, cross_entropy_row, &p, rows);
    if (atomic_load(&p.bad))
        *bad = 1;
}
