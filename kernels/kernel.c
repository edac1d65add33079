/* What contexts of every backend have in common. */
#include "kernels/kernel.h"
#include "kernels/train.h"

#include <float.h>

#define HIGHEST_TEMPERATURE 1e30f /* so that -inf divided by it is still -inf */

void kernel_destroy(struct kernel_ctx *ctx)
{
    if (ctx)
        ctx->ops->destroy(ctx);
}

const struct kernel_train_ops *kernel_train(const struct kernel_ctx *ctx)
{
    return ctx->ops->train;
}

int kernel_error(struct kernel_ctx *ctx)
{
    int err = ctx->err;

    ctx->err = 0;
    return err;
}

void kernel_fail(struct kernel_ctx *ctx, int err)
{
    if (!ctx->err)
        ctx->err = err;
}

/* x, but at least low and at most high; low if it is no number. */
static float clamp(float x, float low, float high)
{
    return x > low ? (x < high ? x : high) : low;
}

struct kernel_sampling kernel_sampling_clamp(const struct kernel_sampling *p)
{
    struct kernel_sampling q = *p;

    q.temperature = clamp(p->temperature, 0.0f, HIGHEST_TEMPERATURE);
    if (q.temperature < FLT_MIN)
        q.temperature = 0;
    q.top_p = clamp(p->top_p, 0.0f, 1.0f);
    q.min_p = clamp(p->min_p, 0.0f, 1.0f);
    return q;
}
