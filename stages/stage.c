/* A stage's memory and its forward pass. */
#include "stages/stage.h"

#include <errno.h>
#include <stdlib.h>

int stage_create(struct stage **out, const struct model_config *config, int index, int n,
                 struct stage_range range, const struct batch_limits *limits)
{
    struct stage *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->layers = calloc(range.count, sizeof(*s->layers));
    s->config = config;
    s->limits = *limits;
    s->index = index;
    s->first = range.first;
    s->n_layers = range.count;
    s->embed = index == 0;
    s->head = index == n - 1;
    int err = s->layers ? params_init(&s->params, config, range.first, range.count,
                                      s->embed, s->head)
                        : -ENOMEM;
    if (err) {
        stage_destroy(s);
        return err;
    }
    *out = s;
    return 0;
}

void stage_destroy(struct stage *s)
{
    if (!s)
        return;
    params_fini(&s->params);
    free(s->layers);
    free(s);
}

/* A weight's place in the flat array; NULL if the model has none. */
static void *weight_at(const struct stage *s, enum model_weight w, size_t layer, size_t T)
{
    const struct param *p = params_find(&s->params, w, layer);
    return p && s->weights ? (uint8_t *)s->weights + p->offset * T : NULL;
}

int stage_layout_weights(struct stage *s, struct arena *a, enum dtype dtype)
{
    size_t T = dtype_block_bytes(dtype);
    int err = 0;
    s->weights = arena_take(a, &err, s->params.elements, 1, T);
    for (int i = 0; i < s->n_layers && !err; i++) {
        size_t l = s->first + i;
        s->layers[i] = (struct layer){
            .attn_norm = weight_at(s, MODEL_ATTN_NORM, l, T),
            .qkv = weight_at(s, MODEL_Q, l, T),
            .qkv_bias = weight_at(s, MODEL_Q_BIAS, l, T),
            .q_norm = weight_at(s, MODEL_Q_NORM, l, T),
            .k_norm = weight_at(s, MODEL_K_NORM, l, T),
            .o = weight_at(s, MODEL_O, l, T),
            .o_bias = weight_at(s, MODEL_O_BIAS, l, T),
            .mlp_norm = weight_at(s, MODEL_MLP_NORM, l, T),
            .gate_up = weight_at(s, MODEL_GATE, l, T),
            .gate_up_bias = weight_at(s, MODEL_GATE_BIAS, l, T),
            .down = weight_at(s, MODEL_DOWN, l, T),
            .down_bias = weight_at(s, MODEL_DOWN_BIAS, l, T),
        };
    }
    s->table = weight_at(s, MODEL_EMBED, 0, T);
    s->out_norm = weight_at(s, MODEL_OUT_NORM, 0, T);
    s->head_w = s->head && s->config->tied ? s->table : weight_at(s, MODEL_HEAD, 0, T);
    return err;
}

static int layout_kv(struct stage *s, struct arena *a, size_t T)
{
    size_t block = s->config->K * KERNEL_KV_BLOCK * s->config->D;
    int err = 0;
    for (int i = 0; i < s->n_layers; i++) {
        s->layers[i].k = arena_take(a, &err, s->limits.kv_blocks, block, T);
        s->layers[i].v = arena_take(a, &err, s->limits.kv_blocks, block, T);
    }
    return err;
}

static int layout_workspace(struct stage *s, struct arena *a, size_t T)
{
    const struct model_config *c = s->config;
    const struct batch_limits *m = &s->limits;
    size_t R = m->rows, positions = (size_t)m->table_ld * KERNEL_KV_BLOCK;
    size_t picked = m->score ? m->logit_rows : m->samples;
    int err = 0;

    s->pack =
        arena_take(a, &err, batch_layout(m->rows, m->segs, m->samples, m->table_ld).total,
                   1, sizeof(int32_t));
    s->cos_sin = arena_take(a, &err, positions, c->D, sizeof(float));
    s->normed = arena_take(a, &err, R, c->C, T);
    s->qkv = arena_take(a, &err, R, (c->H + 2 * c->K) * c->D, T);
    s->attn = arena_take(a, &err, R, c->H * c->D, T);
    s->gate_up = arena_take(a, &err, R, 2 * c->F, T);
    s->act = arena_take(a, &err, R, c->F, T);
    if (s->embed || s->head)
        s->tokens = arena_take(a, &err, m->slots, 1, sizeof(int32_t));
    if (!s->head)
        return err;
    s->picked = arena_take(a, &err, picked, c->C, T);
    s->logits = arena_take(a, &err, m->logit_rows, c->V, sizeof(float));
    s->logprob = m->score ? arena_take(a, &err, R, 1, sizeof(float)) : NULL;
    s->recent = arena_take(a, &err, m->slots, KERNEL_RECENT, sizeof(int32_t));
    s->bad = arena_take(a, &err, 1, 1, sizeof(int32_t));
    return err;
}

int stage_layout(struct stage *s, struct arena *arena, enum dtype dtype)
{
    size_t T = dtype_block_bytes(dtype);
    size_t start = arena->used;
    int err = stage_layout_weights(s, arena, dtype);
    s->bytes.weights = arena->used - start;
    if (err)
        return err;
    start = arena->used;
    err = layout_kv(s, arena, T);
    s->bytes.kv = arena->used - start;
    if (err)
        return err;
    start = arena->used;
    err = layout_workspace(s, arena, T);
    s->bytes.workspace = arena->used - start;
    return err;
}

int stage_forward(struct stage *s, const struct batch *b, void *x)
{
    const struct kernel_ops *ops = s->ctx->ops;
    struct kernel_rows rows = batch_rows(b, s->pack);

    ops->upload(s->ctx, s->pack, b->pack, b->at.total * sizeof(*b->pack));
    if (s->embed)
        ops->embed_fwd(
            s->ctx, x, s->table, b->decode ? s->tokens : s->pack + b->at.tokens,
            b->decode ? s->pack + b->at.index : NULL, b->rows, (int)s->config->C);
    for (int i = 0; i < s->n_layers; i++)
        layer_forward(s, &s->layers[i], &rows, x);
    if (s->head)
        head_forward(s, b, x);
    return kernel_error(s->ctx);
}
