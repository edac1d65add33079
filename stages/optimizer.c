/* Gradient norm and AdamW over a stage's flat array. */
#include "stages/train.h"

#include <errno.h>

float *train_grad(const struct train_stage *t, enum model_weight weight, size_t layer)
{
    const struct param *p = params_find(&t->stage->params, weight, layer);
    return p ? t->grad + p->offset : NULL;
}

int train_squares(struct train_stage *t, double *squares)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    const struct params *p = &t->stage->params;

    ctx->ops->zero(ctx, t->squares, p->n * sizeof(*t->squares));
    for (size_t i = 0; i < p->n; i++) {
        bool copy = p->list[i].weight == MODEL_EMBED && !t->stage->embed;
        if (!copy)
            t->ops->sum_squares(ctx, t->squares + i, t->grad + p->list[i].offset,
                                p->list[i].rows * p->list[i].cols);
    }
    ctx->ops->download(ctx, squares, t->squares, p->n * sizeof(*squares));
    ctx->ops->sync(ctx);
    return kernel_error(ctx);
}

int train_clear(struct train_stage *t)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    const struct model_config *c = t->stage->config;

    ctx->ops->zero(ctx, t->grad, t->stage->params.elements * sizeof(float));
    if (t->head_grad)
        ctx->ops->zero(ctx, t->head_grad, c->V * c->C * sizeof(float));
    return kernel_error(ctx);
}

int train_adamw(struct train_stage *t, const struct kernel_adamw *p)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    const struct model_config *c = t->stage->config;

    if (t->head_grad)
        ctx->ops->zero(ctx, t->head_grad, c->V * c->C * sizeof(float));
    t->ops->adamw(ctx, t->master, t->stage->weights, t->m, t->v, t->grad, p,
                  t->stage->params.elements);
    return kernel_error(ctx);
}
