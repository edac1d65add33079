/* The end of the last stage: final norm, logits, and what a batch wants of them. */
#include "stages/stage.h"

/* Draws a token for every sample row and brings those of the batch's slots to the host. */
static void sample(struct stage *s, const struct batch *b, const void *x)
{
    const struct kernel_ops *k = s->ctx->ops;
    int N = b->samples, C = (int)s->config->C, V = (int)s->config->V;
    const struct kernel_sample_row *row =
        (const struct kernel_sample_row *)(s->pack + b->at.sample);
    const struct kernel_sample_row *host =
        (const struct kernel_sample_row *)(b->pack + b->at.sample);

    for (int i = 0; b->recent && i < N; i++)
        k->upload(s->ctx, s->recent + (size_t)host[i].slot * KERNEL_RECENT,
                  b->recent + (size_t)i * KERNEL_RECENT, KERNEL_RECENT * sizeof(int32_t));
    k->gather_fwd(s->ctx, s->picked, x, s->pack + b->at.sample_index, N, C);
    k->norm_fwd(s->ctx, s->picked, s->picked, s->out_norm, s->config->norm_eps, N, 1, C,
                C, C);
    k->zero(s->ctx, s->bad, sizeof(*s->bad));
    for (int i = 0; i < N; i += s->limits.logit_rows) {
        int n = N - i < s->limits.logit_rows ? N - i : s->limits.logit_rows;
        const uint8_t *h = s->picked;
        h += (size_t)i * C * dtype_block_bytes(s->ctx->dtype);
        k->head_fwd(s->ctx, s->logits, h, s->head_w, n, V, C);
        k->sample(s->ctx, s->tokens, s->recent, s->bad, s->logits, row + i, &b->sampling,
                  n, V);
    }
    k->download(s->ctx, b->drawn, s->tokens + b->slot_first,
                b->slot_count * sizeof(*b->drawn));
    k->download(s->ctx, b->bad, s->bad, sizeof(*b->bad));
}

/* The log-probability of every row's target, a few rows of logits at a time. */
static void score(struct stage *s, const struct batch *b, const void *x)
{
    const struct kernel_ops *k = s->ctx->ops;
    int C = (int)s->config->C, V = (int)s->config->V;
    size_t T = dtype_block_bytes(s->ctx->dtype);

    for (int i = 0; i < b->rows; i += s->limits.logit_rows) {
        int n = b->rows - i < s->limits.logit_rows ? b->rows - i : s->limits.logit_rows;
        k->norm_fwd(s->ctx, s->picked, (const uint8_t *)x + (size_t)i * C * T,
                    s->out_norm, s->config->norm_eps, n, 1, C, C, C);
        k->head_fwd(s->ctx, s->logits, s->picked, s->head_w, n, V, C);
        k->logprob(s->ctx, s->logprob + i, s->logits, s->pack + b->at.target + i, n, V);
        if (b->logits)
            k->download(s->ctx, b->logits + (size_t)i * V, s->logits,
                        (size_t)n * V * sizeof(float));
    }
    k->download(s->ctx, b->logprob, s->logprob, b->rows * sizeof(float));
}

void head_forward(struct stage *s, const struct batch *b, const void *x)
{
    if (b->goal == BATCH_SAMPLE)
        sample(s, b, x);
    else if (b->goal == BATCH_SCORE)
        score(s, b, x);
}
