/* One decoder layer, forward: x += attention(norm(x)), x += mlp(norm(x)). */
#include "stages/stage.h"

#include <math.h>

static void attention(struct stage *s, struct layer *l, const struct kernel_rows *rows,
                      void *x)
{
    const struct kernel_ops *k = s->ctx->ops;
    const struct model_config *c = s->config;
    int R = rows->rows, C = (int)c->C, H = (int)c->H, K = (int)c->K, D = (int)c->D;
    size_t ld = (size_t)(H + 2 * K) * D, T = dtype_block_bytes(s->ctx->dtype);
    void *keys = (uint8_t *)s->qkv + (size_t)H * D * T;
    struct kernel_attn a = {
        .heads = H, .kv_heads = K, .head_dim = D, .scale = (float)(1 / sqrt((double)D))};

    k->norm_fwd(s->ctx, s->normed, x, l->attn_norm, c->norm_eps, R, 1, C, C, C);
    k->gemm_fwd(s->ctx, s->qkv, s->normed, l->qkv, l->qkv_bias, false, R, (int)ld, C);
    if (c->qk_norm) {
        k->norm_fwd(s->ctx, s->qkv, s->qkv, l->q_norm, c->norm_eps, R, H, D, ld, ld);
        k->norm_fwd(s->ctx, keys, keys, l->k_norm, c->norm_eps, R, K, D, ld, ld);
    }
    k->rope_fwd(s->ctx, s->qkv, s->cos_sin, rows->pos, R, H + K, D, ld);
    k->kv_store(s->ctx, l->k, l->v, s->qkv, rows, &a);
    k->attn_fwd(s->ctx, s->attn, s->qkv, l->k, l->v, rows, &a);
    k->gemm_fwd(s->ctx, x, s->attn, l->o, l->o_bias, true, R, C, H * D);
}

static void mlp(struct stage *s, struct layer *l, int R, void *x)
{
    const struct kernel_ops *k = s->ctx->ops;
    int C = (int)s->config->C, F = (int)s->config->F;

    k->norm_fwd(s->ctx, s->normed, x, l->mlp_norm, s->config->norm_eps, R, 1, C, C, C);
    k->gemm_fwd(s->ctx, s->gate_up, s->normed, l->gate_up, l->gate_up_bias, false, R,
                2 * F, C);
    k->swiglu_fwd(s->ctx, s->act, s->gate_up, R, F);
    k->gemm_fwd(s->ctx, x, s->act, l->down, l->down_bias, true, R, C, F);
}

void layer_forward(struct stage *s, struct layer *l, const struct kernel_rows *rows,
                   void *x)
{
    attention(s, l, rows, x);
    mlp(s, l, rows->rows, x);
}
