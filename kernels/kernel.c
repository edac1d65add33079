/* What contexts of every backend have in common. */
#include "kernels/kernel.h"

void kernel_destroy(struct kernel_ctx *ctx)
{
    if (ctx)
        ctx->ops->destroy(ctx);
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
