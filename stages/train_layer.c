/* One decoder layer in training: forward, what is computed again, input gradients, weight gradients. */
#include <math.h>

#include "stages/train.h"

static struct kernel_attn sizes(const struct model_config *c)
{
    return (struct kernel_attn){.heads = (int)c->H,
                                .kv_heads = (int)c->K,
                                .head_dim = (int)c->D,
                                .scale = (float)(1 / sqrt((double)c->D))};
}

static size_t qkv_width(const struct model_config *c)
{
    return (c->H + 2 * c->K) * c->D;
}

static void *k_of(const struct train_stage *t, void *qkv)
{
    const struct model_config *c = t->stage->config;
    return (uint8_t *)qkv + c->H * c->D * dtype_block_bytes(t->stage->ctx->dtype);
}

static void norm_input(struct train_stage *t, const struct layer *l, int R,
                       const struct saved_layer *a)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    int C = (int)t->stage->config->C;
    ctx->ops->norm_fwd(ctx, a->normed1, a->x, l->attn_norm, t->stage->config->norm_eps, R,
                       1, C, C, C);
}

/* Norms q and k, keeping what they were: raw holds them from here on. */
static void norm_heads(struct train_stage *t, const struct layer *l, int R,
                       const struct saved_layer *a)
{
    const struct model_config *c = t->stage->config;
    struct kernel_ctx *ctx = t->stage->ctx;
    int H = (int)c->H, K = (int)c->K, D = (int)c->D;
    size_t ld = qkv_width(c), raw_ld = (c->H + c->K) * c->D;
    uint8_t *raw_k = (uint8_t *)a->raw + c->H * c->D * dtype_block_bytes(ctx->dtype);

    t->ops->copy_rows(ctx, a->raw, a->qkv, R, (int)raw_ld, raw_ld, ld);
    ctx->ops->norm_fwd(ctx, a->qkv, a->raw, l->q_norm, c->norm_eps, R, H, D, ld, raw_ld);
    ctx->ops->norm_fwd(ctx, k_of(t, a->qkv), raw_k, l->k_norm, c->norm_eps, R, K, D, ld,
                       raw_ld);
}

/* x to mid. */
static void attention(struct train_stage *t, const struct layer *l,
                      const struct kernel_rows *rows, const struct saved_layer *a)
{
    const struct model_config *c = t->stage->config;
    struct kernel_ctx *ctx = t->stage->ctx;
    const struct kernel_ops *k = ctx->ops;
    struct kernel_attn s = sizes(c);
    int R = rows->rows, C = (int)c->C, H = (int)c->H, K = (int)c->K, D = (int)c->D;
    size_t ld = qkv_width(c);

    norm_input(t, l, R, a);
    k->gemm_fwd(ctx, a->qkv, a->normed1, l->qkv, l->qkv_bias, false, R, (int)ld, C);
    if (c->qk_norm)
        norm_heads(t, l, R, a);
    k->rope_fwd(ctx, a->qkv, t->cos_sin, rows->pos, R, H + K, D, ld);
    t->ops->attn_train_fwd(ctx, a->attn, a->lse, a->qkv, rows, &s);
    t->ops->copy_rows(ctx, a->mid, a->x, R, C, C, C);
    k->gemm_fwd(ctx, a->mid, a->attn, l->o, l->o_bias, true, R, C, H * D);
}

/* mid to act. */
static void mlp(struct train_stage *t, const struct layer *l, int R,
                const struct saved_layer *a)
{
    const struct model_config *c = t->stage->config;
    struct kernel_ctx *ctx = t->stage->ctx;
    int C = (int)c->C, F = (int)c->F;

    ctx->ops->norm_fwd(ctx, a->normed2, a->mid, l->mlp_norm, c->norm_eps, R, 1, C, C, C);
    ctx->ops->gemm_fwd(ctx, a->gate_up, a->normed2, l->gate_up, l->gate_up_bias, false, R,
                       2 * F, C);
    ctx->ops->swiglu_fwd(ctx, a->act, a->gate_up, R, F);
}

void train_layer_forward(struct train_stage *t, int layer, const struct kernel_rows *rows,
                         struct saved_layer *a, void *y)
{
    const struct layer *l = &t->stage->layers[layer];
    struct kernel_ctx *ctx = t->stage->ctx;
    int R = rows->rows, C = (int)t->stage->config->C, F = (int)t->stage->config->F;

    attention(t, l, rows, a);
    mlp(t, l, R, a);
    t->ops->copy_rows(ctx, y, a->mid, R, C, C, C);
    ctx->ops->gemm_fwd(ctx, y, a->act, l->down, l->down_bias, true, R, C, F);
}

void train_layer_again(struct train_stage *t, int layer, const struct kernel_rows *rows,
                       struct saved_layer *a)
{
    const struct layer *l = &t->stage->layers[layer];
    if (t->limits.recompute == RECOMPUTE_NONE)
        return;
    if (t->limits.recompute == RECOMPUTE_LAYER)
        attention(t, l, rows, a);
    else
        norm_input(t, l, rows->rows, a);
    mlp(t, l, rows->rows, a);
}

static float *grad_of(const struct train_stage *t, enum model_weight w, int layer)
{
    return train_grad(t, w, t->stage->first + layer);
}

/* The norms of a layer, and where saved_grads.norms has each. */
static const struct {
    enum model_weight weight;
    int C, D; /* behind so many C and D */
} norms[] = {{MODEL_ATTN_NORM, 0, 0},
             {MODEL_MLP_NORM, 1, 0},
             {MODEL_Q_NORM, 2, 0},
             {MODEL_K_NORM, 2, 1}};

static float *norm_apart(const struct train_stage *t, const struct saved_grads *g,
                         size_t i)
{
    const struct model_config *c = t->stage->config;
    return g->norms + norms[i].C * c->C + norms[i].D * c->D;
}

/* Where the gradient of a norm's weight is summed. */
static float *norm_grad(const struct train_stage *t, enum model_weight w, int layer,
                        const struct saved_grads *g)
{
    for (size_t i = 0; g->norms && i < ARRAY_LEN(norms); i++)
        if (norms[i].weight == w)
            return norm_apart(t, g, i);
    return grad_of(t, w, layer);
}

/* Adds what I has put apart. */
static void add_norms(struct train_stage *t, int layer, const struct saved_grads *g)
{
    const struct model_config *c = t->stage->config;
    for (size_t i = 0; g->norms && i < ARRAY_LEN(norms); i++) {
        float *sum = grad_of(t, norms[i].weight, layer);
        size_t n = norms[i].C < 2 ? c->C : c->D;
        if (sum)
            t->ops->accumulate(t->stage->ctx, sum, norm_apart(t, g, i), n);
    }
}

/* Back through the norms of q and k, in place. */
static void unnorm_heads(struct train_stage *t, int layer, int R,
                         const struct saved_layer *a, const struct saved_grads *g)
{
    const struct model_config *c = t->stage->config;
    const struct layer *l = &t->stage->layers[layer];
    struct kernel_ctx *ctx = t->stage->ctx;
    int H = (int)c->H, K = (int)c->K, D = (int)c->D;
    size_t ld = qkv_width(c), raw_ld = (c->H + c->K) * c->D;
    void *dq = g->dqkv, *dk = k_of(t, dq), *raw_k = k_of(t, a->raw);

    t->ops->norm_bwd(ctx, dq, norm_grad(t, MODEL_Q_NORM, layer, g), dq, a->raw, l->q_norm,
                     c->norm_eps, false, R, H, D, ld, ld, raw_ld);
    t->ops->norm_bwd(ctx, dk, norm_grad(t, MODEL_K_NORM, layer, g), dk, raw_k, l->k_norm,
                     c->norm_eps, false, R, K, D, ld, ld, raw_ld);
}

/* dout to dmid. */
static void mlp_input(struct train_stage *t, int layer, int R,
                      const struct saved_layer *a, const struct saved_grads *g)
{
    const struct model_config *c = t->stage->config;
    const struct layer *l = &t->stage->layers[layer];
    struct kernel_ctx *ctx = t->stage->ctx;
    int C = (int)c->C, F = (int)c->F;

    t->ops->gemm_bwd_input(ctx, t->dact, g->dout, l->down, false, R, C, F);
    t->ops->swiglu_bwd(ctx, g->dgate_up, t->dact, a->gate_up, R, F);
    t->ops->gemm_bwd_input(ctx, t->dnormed, g->dgate_up, l->gate_up, false, R, 2 * F, C);
    t->ops->copy_rows(ctx, g->dmid, g->dout, R, C, C, C);
    t->ops->norm_bwd(ctx, g->dmid, norm_grad(t, MODEL_MLP_NORM, layer, g), t->dnormed,
                     a->mid, l->mlp_norm, c->norm_eps, true, R, 1, C, C, C, C);
}

void train_layer_input(struct train_stage *t, int layer, const struct kernel_rows *rows,
                       const struct saved_layer *a, const struct saved_grads *g, void *dx)
{
    const struct model_config *c = t->stage->config;
    const struct layer *l = &t->stage->layers[layer];
    struct kernel_ctx *ctx = t->stage->ctx;
    struct kernel_attn s = sizes(c);
    int R = rows->rows, C = (int)c->C, H = (int)c->H, K = (int)c->K, D = (int)c->D;
    size_t ld = qkv_width(c);

    if (g->norms)
        ctx->ops->zero(ctx, g->norms, (2 * c->C + 2 * c->D) * sizeof(float));
    mlp_input(t, layer, R, a, g);
    t->ops->gemm_bwd_input(ctx, t->dattn, g->dmid, l->o, false, R, C, H * D);
    t->ops->attn_bwd(ctx, g->dqkv, t->delta, t->dattn, a->qkv, a->attn, a->lse, rows, &s);
    t->ops->rope_bwd(ctx, g->dqkv, t->cos_sin, rows->pos, R, H + K, D, ld);
    if (c->qk_norm)
        unnorm_heads(t, layer, R, a, g);
    t->ops->gemm_bwd_input(ctx, t->dnormed, g->dqkv, l->qkv, false, R, (int)ld, C);
    t->ops->copy_rows(ctx, dx, g->dmid, R, C, C, C);
    t->ops->norm_bwd(ctx, dx, norm_grad(t, MODEL_ATTN_NORM, layer, g), t->dnormed, a->x,
                     l->attn_norm, c->norm_eps, true, R, 1, C, C, C, C);
}

void train_layer_weight(struct train_stage *t, int layer, int R,
                        const struct saved_layer *a, const struct saved_grads *g)
{
    const struct model_config *c = t->stage->config;
    struct kernel_ctx *ctx = t->stage->ctx;
    int C = (int)c->C, F = (int)c->F, HD = (int)(c->H * c->D), ld = (int)qkv_width(c);

    t->ops->gemm_bwd_weight(ctx, grad_of(t, MODEL_DOWN, layer),
                            grad_of(t, MODEL_DOWN_BIAS, layer), g->dout, a->act, R, C, F);
    t->ops->gemm_bwd_weight(ctx, grad_of(t, MODEL_GATE, layer),
                            grad_of(t, MODEL_GATE_BIAS, layer), g->dgate_up, a->normed2,
                            R, 2 * F, C);
    t->ops->gemm_bwd_weight(ctx, grad_of(t, MODEL_O, layer),
                            grad_of(t, MODEL_O_BIAS, layer), g->dmid, a->attn, R, C, HD);
    t->ops->gemm_bwd_weight(ctx, grad_of(t, MODEL_Q, layer),
                            grad_of(t, MODEL_Q_BIAS, layer), g->dqkv, a->normed1, R, ld,
                            C);
    add_norms(t, layer, g);
}
