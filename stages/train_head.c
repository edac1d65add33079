/* The end of the last stage in training: norm, logits, loss and their gradients, a few rows at a time, so that the
 * logits of a whole micro-batch are never there at once. */
#include "stages/train.h"

static uint8_t *rows_at(void *x, size_t row, size_t cols, size_t T)
{
    return (uint8_t *)x + row * cols * T;
}

/* n rows from the i-th: x (n, C) to loss, and to dx (n, C). */
static void head_rows(struct train_stage *t, const struct train_batch *b,
                      const int32_t *pack, uint8_t *x, uint8_t *dx, int i, int n)
{
    struct stage *s = t->stage;
    const struct model_config *c = s->config;
    struct kernel_ctx *ctx = s->ctx;
    int C = (int)c->C, V = (int)c->V;
    float *dtable = t->head_grad ? t->head_grad : train_grad(t, MODEL_HEAD, 0);

    ctx->ops->norm_fwd(ctx, t->normed, x, s->out_norm, c->norm_eps, n, 1, C, C, C);
    ctx->ops->head_fwd(ctx, t->logits, t->normed, s->head_w, n, V, C);
    t->ops->cross_entropy(ctx, t->loss + i, t->dlogits, t->bad, t->logits,
                          pack + b->at.target + i, b->scale, n, V);
    t->ops->gemm_bwd_weight(ctx, dtable, NULL, t->dlogits, t->normed, n, V, C);
    t->ops->gemm_bwd_input(ctx, t->dnormed, t->dlogits, s->head_w, false, n, V, C);
    t->ops->norm_bwd(ctx, dx, train_grad(t, MODEL_OUT_NORM, 0), t->dnormed, x,
                     s->out_norm, c->norm_eps, false, n, 1, C, C, C, C);
}

void train_head(struct train_stage *t, const struct train_batch *b,
                const struct train_slot *slot, void *dx)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    size_t C = t->stage->config->C, T = dtype_block_bytes(ctx->dtype);
    int step = t->limits.logit_rows;

    ctx->ops->zero(ctx, t->bad, sizeof(*t->bad));
    for (int i = 0; i < b->rows; i += step) {
        int n = b->rows - i < step ? b->rows - i : step;
        head_rows(t, b, slot->pack, rows_at(slot->out, i, C, T), rows_at(dx, i, C, T), i,
                  n);
    }
    ctx->ops->download(ctx, b->loss, t->loss, b->rows * sizeof(float));
    ctx->ops->download(ctx, b->bad, t->bad, sizeof(*b->bad));
}
