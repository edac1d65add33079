/* Brings a stage's weights from the model's files to its lane. */
#include "stages/stage.h"

#include <errno.h>
#include <stdlib.h>

/* At least; a row always fits. */
#define STAGING_BYTES ((size_t)32 << 20)

struct loader {
    struct stage *s;
    struct kernel_ctx *ctx;
    const struct model *m;
    float *staging; /* (bytes) fp32 on its way to a device; NULL on the CPU */
    size_t bytes;
    size_t *done;
    int err;
};

/* Copies a whole weight to dst, `offset` elements from its start; nothing once an error has occurred. A weight
 * that the model lacks is left zero (a bias of one of several joined matrices). */
static void load(struct loader *l, void *dst, size_t offset, enum model_weight w,
                 size_t layer)
{
    size_t rows, cols, T = dtype_block_bytes(l->ctx->dtype);
    uint8_t *to = (uint8_t *)dst + offset * T;

    if (l->err || !dst)
        return;
    model_weight_shape(l->s->config, w, &rows, &cols);
    if (!model_has(l->m, w, layer)) {
        l->ctx->ops->zero(l->ctx, to, rows * cols * T);
        return;
    }
    size_t step = l->bytes / (cols * sizeof(float));
    for (size_t r = 0; r < rows && !l->err; r += step) {
        size_t n = rows - r < step ? rows - r : step;
        float *out = l->staging ? l->staging : (float *)to + r * cols;
        l->err = model_read(l->m, out, w, layer, r, n);
        if (!l->err && l->staging)
            l->ctx->ops->upload_f32(l->ctx, to + r * cols * T, out, n * cols);
        if (l->done)
            __atomic_fetch_add(l->done, n * cols, __ATOMIC_RELAXED);
    }
}

static void load_layer(struct loader *l, struct layer *y, size_t i)
{
    const struct model_config *c = l->s->config;
    size_t q = c->H * c->D, k = c->K * c->D;

    load(l, y->attn_norm, 0, MODEL_ATTN_NORM, i);
    load(l, y->qkv, 0, MODEL_Q, i);
    load(l, y->qkv, q * c->C, MODEL_K, i);
    load(l, y->qkv, (q + k) * c->C, MODEL_V, i);
    load(l, y->qkv_bias, 0, MODEL_Q_BIAS, i);
    load(l, y->qkv_bias, q, MODEL_K_BIAS, i);
    load(l, y->qkv_bias, q + k, MODEL_V_BIAS, i);
    load(l, y->q_norm, 0, MODEL_Q_NORM, i);
    load(l, y->k_norm, 0, MODEL_K_NORM, i);
    load(l, y->o, 0, MODEL_O, i);
    load(l, y->o_bias, 0, MODEL_O_BIAS, i);
    load(l, y->mlp_norm, 0, MODEL_MLP_NORM, i);
    load(l, y->gate_up, 0, MODEL_GATE, i);
    load(l, y->gate_up, c->F * c->C, MODEL_UP, i);
    load(l, y->gate_up_bias, 0, MODEL_GATE_BIAS, i);
    load(l, y->gate_up_bias, c->F, MODEL_UP_BIAS, i);
    load(l, y->down, 0, MODEL_DOWN, i);
    load(l, y->down_bias, 0, MODEL_DOWN_BIAS, i);
}

static int load_rope(struct loader *l)
{
    size_t positions = (size_t)l->s->limits.table_ld * KERNEL_KV_BLOCK;
    size_t n = positions * l->s->config->D;
    float *table = malloc(n * sizeof(*table));
    if (!table)
        return -ENOMEM;
    model_rope_table(l->s->config, table, positions);
    l->ctx->ops->upload(l->ctx, l->s->cos_sin, table, n * sizeof(*table));
    l->ctx->ops->sync(l->ctx);
    free(table);
    return kernel_error(l->ctx);
}

int stage_load(struct stage *s, struct kernel_ctx *ctx, const struct model *m,
               size_t *done)
{
    struct loader l = {.s = s, .ctx = ctx, .m = m, .done = done, .bytes = STAGING_BYTES};

    s->ctx = ctx;
    for (int w = 0; w < MODEL_WEIGHT_COUNT; w++) {
        size_t rows, cols;
        model_weight_shape(s->config, w, &rows, &cols);
        if (l.bytes < cols * sizeof(float))
            l.bytes = cols * sizeof(float);
    }
    if (ctx->device >= 0 && !(l.staging = malloc(l.bytes)))
        return -ENOMEM;
    load(&l, s->table, 0, MODEL_EMBED, 0);
    for (int i = 0; i < s->n_layers; i++)
        load_layer(&l, &s->layers[i], s->first + i);
    load(&l, s->out_norm, 0, MODEL_OUT_NORM, 0);
    if (s->head_w != s->table)
        load(&l, s->head_w, 0, MODEL_HEAD, 0);
    ctx->ops->sync(ctx);
    free(l.staging);
    if (!l.err)
        l.err = kernel_error(ctx);
    return l.err ? l.err : load_rope(&l);
}

size_t stage_weight_count(const struct stage *s)
{
    size_t n = 0, rows, cols;
    for (int w = 0; w < MODEL_WEIGHT_COUNT; w++) {
        bool inner = w != MODEL_EMBED && w != MODEL_OUT_NORM && w != MODEL_HEAD;
        size_t times = inner                 ? (size_t)s->n_layers
                       : w == MODEL_EMBED    ? s->embed || (s->head && s->config->tied)
                       : w == MODEL_OUT_NORM ? s->head
                                             : s->head && !s->config->tied;
        if (!times || (w != MODEL_HEAD && !model_weight_wanted(s->config, w)))
            continue;
        model_weight_shape(s->config, w, &rows, &cols);
        n += times * rows * cols;
    }
    return n;
}
