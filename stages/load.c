/* Brings a stage's weights from the model's files to its lane. */
#include "stages/stage.h"

#include <errno.h>
#include <stdlib.h>

/* At least; a row always fits. */
#define STAGING_BYTES ((size_t)32 << 20)

struct loader {
    struct kernel_ctx *ctx;
    const struct model *m;
    float *staging; /* (bytes) fp32 on its way to a device; NULL on the CPU */
    size_t bytes;
    size_t *done;
};

/* Copies a whole weight to dst. */
static int load(struct loader *l, const struct param *p, uint8_t *dst)
{
    size_t T = dtype_block_bytes(l->ctx->dtype),
           step = l->bytes / (p->cols * sizeof(float));
    int err = 0;

    for (size_t r = 0; r < p->rows && !err; r += step) {
        size_t n = p->rows - r < step ? p->rows - r : step;
        float *out = l->staging ? l->staging : (float *)dst + r * p->cols;
        err = model_read(l->m, out, p->weight, p->layer, r, n);
        if (!err && l->staging)
            l->ctx->ops->upload_f32(l->ctx, dst + r * p->cols * T, out, n * p->cols);
        if (l->done)
            __atomic_fetch_add(l->done, n * p->cols, __ATOMIC_RELAXED);
    }
    return err;
}

static int load_rope(struct stage *s)
{
    size_t positions = (size_t)s->limits.table_ld * KERNEL_KV_BLOCK;
    size_t n = positions * s->config->D;
    float *table = malloc(n * sizeof(*table));
    if (!table)
        return -ENOMEM;
    model_rope_table(s->config, table, positions);
    s->ctx->ops->upload(s->ctx, s->cos_sin, table, n * sizeof(*table));
    s->ctx->ops->sync(s->ctx);
    free(table);
    return kernel_error(s->ctx);
}

int stage_load(struct stage *s, struct kernel_ctx *ctx, const struct model *m,
               size_t *done)
{
    struct loader l = {.ctx = ctx, .m = m, .done = done, .bytes = STAGING_BYTES};
    size_t T = dtype_block_bytes(ctx->dtype);
    int err = 0;

    s->ctx = ctx;
    for (size_t i = 0; i < s->params.n; i++)
        if (l.bytes < s->params.list[i].cols * sizeof(float))
            l.bytes = s->params.list[i].cols * sizeof(float);
    if (ctx->device >= 0 && !(l.staging = malloc(l.bytes)))
        return -ENOMEM;
    ctx->ops->zero(ctx, s->weights, s->params.elements * T); /* the gaps too */
    for (size_t i = 0; i < s->params.n && !err; i++)
        err = load(&l, &s->params.list[i],
                   (uint8_t *)s->weights + s->params.list[i].offset * T);
    ctx->ops->sync(ctx);
    free(l.staging);
    if (!err)
        err = kernel_error(ctx);
    return err || !s->cos_sin ? err : load_rope(s);
}
