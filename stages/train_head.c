/* The end of the last stage in training: norm, logits, loss and their gradients, a few rows at a time, so that the
 * logits of a whole micro-batch are never there at once. */
#include "stages/train.h"

static uint8_t *rows_at(void *x, size_t row, size_t cols, size_t T)
{
    return (uint8_t *)x + row * cols * T;
}

/* n rows from the i-th: their normed x, logits, loss and the logits' gradients. */
static void head_logits(struct train_stage *t, const struct train_batch *b,
                        const int32_t *pack, const uint8_t *x, int i, int n)
{
    struct stage *s = t->stage;
    struct kernel_ctx *ctx = s->ctx;
    int C = (int)s->config->C, V = (int)s->config->V;

    ctx->ops->norm_fwd(ctx, t->normed, x, s->out_norm, s->config->norm_eps, n, 1, C, C,
                       C);
    ctx->ops->head_fwd(ctx, t->logits, t->normed, s->head_w, n, V, C);
    t->ops->cross_entropy(ctx, t->loss + i, t->dlogits, t->bad, t->logits,
                          pack + b->at.target + i, b->scale, n, V);
}

/* dx (n, C), and what the norm's gradient gets. */
static void head_input(struct train_stage *t, float *dnorm, uint8_t *dx, const uint8_t *x,
                       int n)
{
    struct stage *s = t->stage;
    int C = (int)s->config->C, V = (int)s->config->V;

    t->ops->gemm_bwd_input(s->ctx, t->dnormed, t->dlogits, s->head_w, false, n, V, C);
    t->ops->norm_bwd(s->ctx, dx, dnorm, t->dnormed, x, s->out_norm, s->config->norm_eps,
                     false, n, 1, C, C, C, C);
}

static void head_weight(struct train_stage *t, int n)
{
    struct stage *s = t->stage;
    float *dtable = t->head_grad ? t->head_grad : train_grad(t, MODEL_HEAD, 0);
    t->ops->gemm_bwd_weight(s->ctx, dtable, NULL, t->dlogits, t->normed, n,
                            (int)s->config->V, (int)s->config->C);
}

void train_head(struct train_stage *t, const struct train_batch *b,
                const struct train_slot *slot, const struct train_grad_slot *g, int what)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    size_t C = t->stage->config->C, T = dtype_block_bytes(ctx->dtype);
    float *sum = train_grad(t, MODEL_OUT_NORM, 0), *apart = g->out_norm;
    uint8_t *dx = g->grads[t->stage->n_layers - 1].dout;
    bool input = what & TRAIN_INPUT, weight = apart ? what & TRAIN_WEIGHT : input;
    int step = t->limits.logit_rows;

    if (!input && !weight)
        return;
    ctx->ops->zero(ctx, t->bad, sizeof(*t->bad));
    for (int i = 0; i < b->rows; i += step, apart += apart ? C : 0) {
        int n = b->rows - i < step ? b->rows - i : step;
        uint8_t *x = rows_at(slot->out, i, C, T);
        head_logits(t, b, slot->pack, x, i, n);
        if (input && apart)
            ctx->ops->zero(ctx, apart, C * sizeof(float));
        if (weight)
            head_weight(t, n);
        if (input)
            head_input(t, apart ? apart : sum, rows_at(dx, i, C, T), x, n);
        if (weight && apart)
            t->ops->accumulate(ctx, sum, apart, C);
    }
    if (!input)
        return;
    ctx->ops->download(ctx, b->loss, t->loss, b->rows * sizeof(float));
    ctx->ops->download(ctx, b->bad, t->bad, sizeof(*b->bad));
}
