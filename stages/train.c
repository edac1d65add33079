/* A stage in training: its memory, and its forward and backward passes. */
#include "stages/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct train_layout train_layout(int rows, int segs)
{
    struct train_layout at = {0};
    size_t n = 0;
    at.tokens = n, n += rows;
    at.pos = n, n += rows;
    at.row_seg = n, n += rows;
    at.seg_row = n, n += segs + 1;
    at.target = n, n += rows;
    at.unique_token = n, n += rows;
    at.unique_start = n, n += rows + 1;
    at.unique_row = n, n += rows;
    at.total = n;
    return at;
}

struct kernel_rows train_rows(const struct train_batch *b, const int32_t *pack)
{
    return (struct kernel_rows){.rows = b->rows,
                                .segs = b->segs,
                                .max_rows = b->max_rows,
                                .max_len = b->max_rows,
                                .pos = pack + b->at.pos,
                                .row_seg = pack + b->at.row_seg,
                                .seg_row = pack + b->at.seg_row};
}

static int grad_slots(const struct train_limits *m)
{
    return m->grad_slots > 0 ? m->grad_slots : 1;
}

static int create_slots(struct train_stage *t)
{
    int L = t->stage->n_layers;
    t->slots = calloc(t->limits.slots, sizeof(*t->slots));
    t->grad_slots = calloc(grad_slots(&t->limits), sizeof(*t->grad_slots));
    if (!t->slots || !t->grad_slots)
        return -ENOMEM;
    for (int i = 0; i < t->limits.slots; i++)
        if (!(t->slots[i].layers = calloc(L, sizeof(*t->slots[i].layers))))
            return -ENOMEM;
    for (int i = 0; i < grad_slots(&t->limits); i++) {
        struct train_grad_slot *g = &t->grad_slots[i];
        g->grads = calloc(L, sizeof(*g->grads));
        g->layers = calloc(L, sizeof(*g->layers));
        if (!g->grads || !g->layers)
            return -ENOMEM;
    }
    return 0;
}

int train_stage_create(struct train_stage **out, struct stage *stage,
                       const struct train_limits *limits)
{
    struct train_stage *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->stage = stage;
    t->limits = *limits;
    int err = create_slots(t);
    if (err) {
        train_stage_destroy(t);
        return err;
    }
    *out = t;
    return 0;
}

void train_stage_destroy(struct train_stage *t)
{
    if (!t)
        return;
    for (int i = 0; t->slots && i < t->limits.slots; i++)
        free(t->slots[i].layers);
    for (int i = 0; t->grad_slots && i < grad_slots(&t->limits); i++) {
        free(t->grad_slots[i].grads);
        free(t->grad_slots[i].layers);
    }
    free(t->slots);
    free(t->grad_slots);
    free(t);
}

static int layout_optimizer(struct train_stage *t, struct arena *a, enum dtype dtype)
{
    const struct stage *s = t->stage;
    const struct model_config *c = s->config;
    size_t n = s->params.elements;
    int err = 0;

    t->grad = arena_take(a, &err, n, 1, sizeof(float));
    t->head_grad =
        s->head && c->tied ? arena_take(a, &err, c->V, c->C, sizeof(float)) : NULL;
    t->master = dtype == DTYPE_F32 ? s->weights : NULL;
    if (t->limits.second)
        return err;
    t->m = arena_take(a, &err, n, 1, sizeof(float));
    t->v = arena_take(a, &err, n, 1, sizeof(float));
    if (dtype != DTYPE_F32)
        t->master = arena_take(a, &err, n, 1, sizeof(float));
    t->squares = arena_take(a, &err, s->params.n, 1, sizeof(double));
    return err;
}

/* What a layer keeps beside its input: those fields of `to` that `kept` or `not kept` asks for. */
static int layout_saved(struct train_stage *t, struct arena *a, struct saved_layer *to,
                        size_t T, bool kept, bool again)
{
    const struct model_config *c = t->stage->config;
    enum recompute r = t->limits.recompute;
    size_t R = t->limits.rows, C = c->C, ld = (c->H + 2 * c->K) * c->D;
    bool norms = r == RECOMPUTE_NONE ? kept : again;
    bool attention = r == RECOMPUTE_LAYER ? again : kept;
    int err = 0;

    if (norms) {
        to->normed1 = arena_take(a, &err, R, C, T);
        to->normed2 = arena_take(a, &err, R, C, T);
        to->gate_up = arena_take(a, &err, R, 2 * c->F, T);
        to->act = arena_take(a, &err, R, c->F, T);
    }
    if (attention) {
        to->raw = c->qk_norm ? arena_take(a, &err, R, (c->H + c->K) * c->D, T) : NULL;
        to->qkv = arena_take(a, &err, R, ld, T);
        to->attn = arena_take(a, &err, R, c->H * c->D, T);
        to->lse = arena_take(a, &err, R, c->H, sizeof(float));
        to->mid = arena_take(a, &err, R, C, T);
    }
    return err;
}

static int layout_slot(struct train_stage *t, struct arena *a, struct train_slot *slot,
                       size_t T)
{
    size_t R = t->limits.rows, C = t->stage->config->C;
    int err = 0;
    slot->pack = arena_take(a, &err, train_layout((int)R, t->limits.segs).total, 1,
                            sizeof(int32_t));
    for (int l = 0; l < t->stage->n_layers && !err; l++) {
        slot->layers[l].x = arena_take(a, &err, R, C, T);
        if (!err)
            err = layout_saved(t, a, &slot->layers[l], T, true, false);
    }
    if (t->stage->head)
        slot->out = arena_take(a, &err, R, C, T);
    return err;
}

/* One set of a layer's output gradients; dout is the next layer's dx. */
static int layout_grads(struct train_stage *t, struct arena *a, struct saved_grads *g,
                        size_t T)
{
    const struct model_config *c = t->stage->config;
    size_t R = t->limits.rows;
    int err = 0;
    g->dgate_up = arena_take(a, &err, R, 2 * c->F, T);
    g->dmid = arena_take(a, &err, R, c->C, T);
    g->dqkv = arena_take(a, &err, R, (c->H + 2 * c->K) * c->D, T);
    g->dout = arena_take(a, &err, R, c->C, T);
    if (t->limits.second)
        g->norms = arena_take(a, &err, 2 * c->C + 2 * c->D, 1, sizeof(float));
    return err;
}

/* Of the head's rows. */
static size_t pieces(const struct train_limits *m)
{
    return (m->rows + m->logit_rows - 1) / m->logit_rows;
}

/* Split: every layer has its own. Whole: two sets that the layers take in turn, because a layer's dx is the dout of the
 * one below. */
static int layout_grad_slot(struct train_stage *t, struct arena *a,
                            struct train_grad_slot *g, size_t T)
{
    int L = t->stage->n_layers, err = 0;
    bool split = t->limits.grad_slots > 0;

    for (int l = L - 1; l >= 0 && !err; l--) {
        if (!split && L - 1 - l >= 2) {
            g->grads[l] = g->grads[l + 2];
            g->layers[l] = g->layers[l + 1];
            continue;
        }
        err = layout_grads(t, a, &g->grads[l], T);
        if (!err && (split || l == L - 1))
            err = layout_saved(t, a, &g->layers[l], T, false, true);
        else if (!err)
            g->layers[l] = g->layers[l + 1];
    }
    if (t->stage->embed)
        g->dx = arena_take(a, &err, t->limits.rows, t->stage->config->C, T);
    if (t->stage->head && t->limits.second)
        g->out_norm =
            arena_take(a, &err, pieces(&t->limits), t->stage->config->C, sizeof(float));
    return err;
}

static int layout_workspace(struct train_stage *t, struct arena *a, enum dtype dtype)
{
    const struct model_config *c = t->stage->config;
    size_t R = t->limits.rows, T = dtype_block_bytes(dtype), rows = t->limits.logit_rows;
    int err = 0;

    if (t->limits.grad_slots)
        err = layout_saved(t, a, &t->work, T, false, true);
    else /* a lane computes one op at a time: what B computes again may lie there */
        t->work = t->grad_slots[0].layers[0];
    t->cos_sin = arena_take(a, &err, t->limits.positions, c->D, sizeof(float));
    t->dact = arena_take(a, &err, R, c->F, T);
    t->dattn = arena_take(a, &err, R, c->H * c->D, T);
    t->dnormed = arena_take(a, &err, R, c->C, T);
    t->delta = arena_take(a, &err, R, c->H, sizeof(float));
    if (!t->stage->head)
        return err;
    t->normed = arena_take(a, &err, rows, c->C, T);
    t->logits = arena_take(a, &err, rows, c->V, sizeof(float));
    t->dlogits = dtype == DTYPE_F32 ? t->logits : arena_take(a, &err, rows, c->V, T);
    t->loss = arena_take(a, &err, R, 1, sizeof(float));
    t->bad = arena_take(a, &err, 1, 1, sizeof(int32_t));
    return err;
}

int train_stage_layout(struct train_stage *t, struct arena *a, enum dtype dtype)
{
    size_t T = dtype_block_bytes(dtype), start = a->used;
    int err = stage_layout_weights(t->stage, a, dtype);

    if (!err)
        err = layout_optimizer(t, a, dtype);
    t->bytes.weights = a->used - start;
    start = a->used;
    for (int i = 0; i < t->limits.slots && !err; i++)
        err = layout_slot(t, a, &t->slots[i], T);
    for (int i = 0; i < grad_slots(&t->limits) && !err; i++)
        err = layout_grad_slot(t, a, &t->grad_slots[i], T);
    if (!err)
        err = layout_workspace(t, a, dtype);
    t->bytes.workspace = a->used - start;
    return err;
}

/* Rows that are read at once. */
#define READ_ROWS 256

/* Master weights of a lane that keeps its weights in less. */
static int read_master(struct train_stage *t, const struct model *m)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    const struct params *p = &t->stage->params;
    size_t most = 1;
    int err = 0;

    for (size_t i = 0; i < p->n; i++)
        most = p->list[i].cols > most ? p->list[i].cols : most;
    float *rows = malloc(READ_ROWS * most * sizeof(*rows));
    if (!rows)
        return log_no_memory("master weights");
    ctx->ops->zero(ctx, t->master, p->elements * sizeof(float));
    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->list[i];
        for (size_t r = 0; r < q->rows && !err; r += READ_ROWS) {
            size_t n = q->rows - r < READ_ROWS ? q->rows - r : READ_ROWS;
            err = model_read(m, rows, q->weight, q->layer, r, n);
            ctx->ops->upload(ctx, t->master + q->offset + r * q->cols, rows,
                             n * q->cols * sizeof(*rows));
            ctx->ops->sync(ctx);
        }
    }
    free(rows);
    return err ? err : kernel_error(ctx);
}

static int upload_rope(struct train_stage *t)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    size_t n = (size_t)t->limits.positions * t->stage->config->D;
    float *cos_sin = malloc(n * sizeof(*cos_sin));
    if (!cos_sin)
        return log_no_memory("the RoPE table");
    model_rope_table(t->stage->config, cos_sin, t->limits.positions);
    ctx->ops->upload(ctx, t->cos_sin, cos_sin, n * sizeof(*cos_sin));
    ctx->ops->sync(ctx);
    free(cos_sin);
    return kernel_error(ctx);
}

int train_stage_start(struct train_stage *t, const struct model *m)
{
    struct kernel_ctx *ctx = t->stage->ctx;
    size_t bytes = t->stage->params.elements * sizeof(float);

    t->ops = kernel_train(ctx);
    if (!t->limits.second) {
        ctx->ops->zero(ctx, t->m, bytes);
        ctx->ops->zero(ctx, t->v, bytes);
    }
    int err = train_clear(t);
    if (!err)
        err = upload_rope(t);
    bool apart = t->master && t->master != t->stage->weights;
    return err || !apart ? err : read_master(t, m);
}

/* A layer's activations where they are in the forward pass: kept ones in the slot, the others in `again`. */
static struct saved_layer merge(const struct saved_layer *kept,
                                const struct saved_layer *again)
{
    return (struct saved_layer){
        .x = kept->x,
        .normed1 = kept->normed1 ? kept->normed1 : again->normed1,
        .raw = kept->raw ? kept->raw : again->raw,
        .qkv = kept->qkv ? kept->qkv : again->qkv,
        .attn = kept->attn ? kept->attn : again->attn,
        .lse = kept->lse ? kept->lse : again->lse,
        .mid = kept->mid ? kept->mid : again->mid,
        .normed2 = kept->normed2 ? kept->normed2 : again->normed2,
        .gate_up = kept->gate_up ? kept->gate_up : again->gate_up,
        .act = kept->act ? kept->act : again->act,
    };
}

int train_forward(struct train_stage *t, const struct train_batch *b, int slot, void *y)
{
    struct stage *s = t->stage;
    struct train_slot *kept = &t->slots[slot];
    struct kernel_rows rows = train_rows(b, kept->pack);
    int C = (int)s->config->C;

    s->ctx->ops->upload(s->ctx, kept->pack, b->pack, b->at.total * sizeof(*b->pack));
    if (s->embed)
        s->ctx->ops->embed_fwd(s->ctx, kept->layers[0].x, s->table,
                               kept->pack + b->at.tokens, NULL, b->rows, C);
    for (int l = 0; l < s->n_layers; l++) {
        struct saved_layer a = merge(&kept->layers[l], &t->work);
        void *next = l + 1 < s->n_layers ? kept->layers[l + 1].x
                     : s->head           ? kept->out
                                         : y;
        train_layer_forward(t, l, &rows, &a, next);
    }
    return kernel_error(s->ctx);
}

/* The embedding's gradient from that of the first layer's input. */
static void embed_weight(struct train_stage *t, const struct train_batch *b,
                         const struct train_slot *kept, const void *dx)
{
    const int32_t *pack = kept->pack;
    if (t->stage->embed)
        t->ops->embed_bwd(t->stage->ctx, train_grad(t, MODEL_EMBED, 0),
                          pack + b->at.unique_token, pack + b->at.unique_start,
                          pack + b->at.unique_row, dx, b->unique,
                          (int)t->stage->config->C);
}

int train_backward(struct train_stage *t, const struct train_batch *b, int slot,
                   int grad_slot, const void *dy, void *dx, int what)
{
    struct stage *s = t->stage;
    struct kernel_ctx *ctx = s->ctx;
    struct train_slot *kept = &t->slots[slot];
    struct train_grad_slot *g = &t->grad_slots[grad_slot];
    struct kernel_rows rows = train_rows(b, kept->pack);
    int L = s->n_layers, C = (int)s->config->C;

    if (s->embed)
        dx = g->dx;
    if (s->head)
        train_head(t, b, kept, g, what);
    else if (what & TRAIN_INPUT)
        t->ops->copy_rows(ctx, g->grads[L - 1].dout, dy, b->rows, C, C, C);
    for (int l = L - 1; l >= 0; l--) {
        struct saved_layer a = merge(&kept->layers[l], &g->layers[l]);
        if (what & TRAIN_INPUT) {
            train_layer_again(t, l, &rows, &a);
            train_layer_input(t, l, &rows, &a, &g->grads[l],
                              l ? g->grads[l - 1].dout : dx);
        }
        if (what & TRAIN_WEIGHT)
            train_layer_weight(t, l, b->rows, &a, &g->grads[l]);
    }
    if (what & TRAIN_WEIGHT)
        embed_weight(t, b, kept, g->dx);
    return kernel_error(ctx);
}
