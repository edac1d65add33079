/* The memory, links and weights of training, and what happens between steps. Its plans as tasks:
 * trainer_step.c. */
#include "runtime/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/setup.h"

/* Rows whose logits are held at once. */
#define LOGIT_ROWS 256

/* What goes from copy to copy of the weights at once, so that links need little memory for it. */
#define SHARE_BYTES ((size_t)64 << 20)

static int stage_count(const struct trainer *t)
{
    return t->config.plan->stages;
}

/* Stages of all copies of the weights. */
static int place_count(const struct trainer *t)
{
    return t->config.plan->copies * t->config.plan->stages;
}

static struct train_limits limits_of(const struct trainer *t,
                                     const struct trainer_stage *s)
{
    const struct trainer_config *c = &t->config;
    return (struct train_limits){
        .rows = c->rows,
        .segs = c->segs,
        .positions = c->positions,
        .logit_rows = c->rows < LOGIT_ROWS ? c->rows : LOGIT_ROWS,
        .slots = s->slots.n,
        .grad_slots = s->splits ? s->grads.n : 0,
        .recompute = c->recompute,
        .second = s->second,
    };
}

static int create_stages(struct trainer *t)
{
    const struct trainer_config *c = &t->config;
    struct batch_limits none = {0};
    int n = stage_count(t), err = 0;

    for (int i = 0; i < place_count(t) && !err; i++) {
        struct trainer_stage *s = &t->stages[i];
        struct train_limits limits = limits_of(t, s);
        err =
            stage_create(&s->stage, &c->model->config, i % n, n, c->ranges[i % n], &none);
        if (!err)
            err = train_stage_create(&s->train, s->stage, &limits);
    }
    return err;
}

static int pool_init(struct buffer_pool *p, int micro_batches, bool memory)
{
    p->head = 0;
    p->count = p->n;
    p->queue = calloc(p->n ? p->n : 1, sizeof(*p->queue));
    p->data = calloc(p->n ? p->n : 1, sizeof(*p->data));
    p->of = calloc(micro_batches, sizeof(*p->of));
    p->x = memory ? calloc(p->n ? p->n : 1, sizeof(*p->x)) : NULL;
    if (!p->queue || !p->data || !p->of || (memory && !p->x))
        return log_no_memory("a stage's buffers");
    for (int i = 0; i < p->n; i++) {
        int err = task_data_create(&p->data[i]);
        if (err)
            return err;
        p->queue[i] = i;
    }
    return 0;
}

static void pool_fini(struct buffer_pool *p)
{
    for (int i = 0; p->data && i < p->n; i++)
        task_data_destroy(p->data[i]);
    free(p->queue);
    free(p->data);
    free(p->of);
    free(p->x);
}

static int create_pools(struct trainer *t)
{
    int m = t->config.plan->micro_batches, err = 0;
    for (int i = 0; i < place_count(t) && !err; i++) {
        struct trainer_stage *s = &t->stages[i];
        bool near = (i + 1) % stage_count(t) &&
                    engine_lane(&t->engine, i) == engine_lane(&t->engine, i + 1);
        s->dy.n = near ? 0 : s->dy.n;
        err = pool_init(&s->slots, m, false);
        if (!err)
            err = pool_init(&s->grads, m, false);
        if (!err)
            err = pool_init(&s->y, m, true);
        if (!err)
            err = pool_init(&s->dx, m, true);
        if (!err)
            err = pool_init(&s->dy, m, true);
        if (!err)
            err = task_data_create(&s->sums);
    }
    return err;
}

/* Lays out a stage and its hop buffers; tells the bytes it took. */
static int layout_stage(struct trainer *t, int i, struct arena *a, size_t *taken)
{
    struct trainer_stage *s = &t->stages[i];
    enum dtype dtype = engine_lane(&t->engine, i)->ctx->dtype;
    struct buffer_pool *pools[] = {&s->y, &s->dx, &s->dy};
    size_t before = a->used, C = t->config.model->config.C;
    int err = train_stage_layout(s->train, a, dtype);

    for (size_t p = 0; p < ARRAY_LEN(pools); p++)
        for (int k = 0; k < pools[p]->n && !err; k++)
            pools[p]->x[k] =
                arena_take(a, &err, t->config.rows, C, dtype_block_bytes(dtype));
    *taken = a->used - before;
    return err;
}

static int take_memory(struct trainer *t)
{
    int err = 0;
    for (int l = 0; l < t->engine.lanes->n && !err; l++) {
        struct arena dry = arena_dry();
        for (int i = 0; i < place_count(t) && !err; i++)
            if (t->engine.stage_lane[i] == l)
                err = layout_stage(t, i, &dry, &t->stages[i].predicted);
        t->lane_bytes[l] = dry.used;
    }
    if (!err)
        err = setup_memory(t->engine.lanes, t->config.place, t->lane_bytes,
                           "--recompute layer, more --micro-batches, shorter sequences "
                           "(--seq), another schedule or more lanes");
    for (int i = 0; i < place_count(t) && !err; i++)
        err = layout_stage(t, i, &engine_lane(&t->engine, i)->arena,
                           &t->stages[i].measured);
    return err;
}

/* From the first copy's stage to a second's, and back. */
static int create_share_links(struct trainer *t, int place)
{
    const struct trainer_config *c = &t->config;
    struct trainer_stage *s = &t->stages[place];
    struct lane *from = engine_lane(&t->engine, place % stage_count(t)),
                *to = engine_lane(&t->engine, place);
    enum link_kind kind = from == to ? LINK_COPY : c->link;
    int err = setup_link(&s->out, c->place, kind, from, to, SHARE_BYTES, false);
    return err ? err : setup_link(&s->home, c->place, kind, to, from, SHARE_BYTES, true);
}

static int create_links(struct trainer *t)
{
    const struct trainer_config *c = &t->config;
    const struct model_config *m = &c->model->config;
    struct lane *first = engine_lane(&t->engine, 0);
    struct lane *last = engine_lane(&t->engine, stage_count(t) - 1);
    size_t table = m->V * m->C * sizeof(float);
    int err = 0;

    for (int i = stage_count(t); i < place_count(t) && !err; i++)
        err = create_share_links(t, i);
    for (int i = 1; i < place_count(t) && !err; i++) {
        struct lane *from = engine_lane(&t->engine, i - 1),
                    *to = engine_lane(&t->engine, i);
        size_t bytes = (size_t)c->rows * m->C * sizeof(float);
        if (from == to || i % stage_count(t) == 0)
            continue;
        err =
            setup_link(&t->stages[i].forward, c->place, c->link, from, to, bytes, false);
        if (!err)
            err = setup_link(&t->stages[i - 1].backward, c->place, c->link, to, from,
                             bytes, true);
    }
    if (err || !m->tied || first == last)
        return err;
    err = setup_link(&t->table_out, c->place, c->link, first, last, table, false);
    return err ? err
               : setup_link(&t->table_in, c->place, c->link, last, first, table, true);
}

/* A call on a stage's own lane. */
struct stage_call {
    struct trainer *t;
    int stage;
    double *squares;
    const struct kernel_adamw *adamw;
};

static int start_stage(void *arg)
{
    struct stage_call *c = arg;
    return train_stage_start(c->t->stages[c->stage].train, c->t->config.model);
}

/* Calls fn on the lanes of the first n stages, in ascending order, lanes at the same time. */
static int call_stages(struct trainer *t, int n, int (*fn)(void *arg),
                       struct stage_call like, double **squares)
{
    struct stage_call *args = calloc(n, sizeof(*args));
    int *workers = calloc(n, sizeof(*workers));
    int err = args && workers ? 0 : log_no_memory("training");

    for (int i = 0; i < n && !err; i++) {
        args[i] = like;
        args[i].stage = i;
        args[i].squares = squares ? squares[i] : NULL;
        workers[i] = engine_lane(&t->engine, i)->worker;
    }
    if (!err)
        err = task_call_all(workers, n, fn, args, sizeof(*args));
    free(args);
    free(workers);
    return err;
}

static int load(struct trainer *t)
{
    const struct trainer_config *c = &t->config;
    int n = place_count(t);
    struct stage **stages = calloc(n, sizeof(*stages));
    if (!stages)
        return log_no_memory("training");
    for (int i = 0; i < n; i++)
        stages[i] = t->stages[i].stage;
    int err = setup_load(&t->engine, c->place, stages, c->model, c->progress, c->user);
    free(stages);
    return err ? err : call_stages(t, n, start_stage, (struct stage_call){.t = t}, NULL);
}

int trainer_create(struct trainer **out, const struct trainer_config *config)
{
    struct trainer *t = calloc(1, sizeof(*t));
    if (!t)
        return log_no_memory("training");
    t->config = *config;
    t->stages = calloc(place_count(t), sizeof(*t->stages));
    t->lane_bytes = calloc(config->lanes->n, sizeof(*t->lane_bytes));
    int err = t->stages && t->lane_bytes ? 0 : log_no_memory("training");
    if (!err)
        err = engine_init(&t->engine, config->lanes, place_count(t),
                          config->plan->stage_lane, config->order, config->deadline);
    t->engine.submit = trainer_submit;
    for (int i = stage_count(t); i < place_count(t) && !err; i++)
        t->stages[i].second = true;
    if (!err)
        err = trainer_count(t);
    if (!err)
        err = create_pools(t);
    if (!err)
        err = create_stages(t);
    if (!err)
        err = take_memory(t);
    if (!err)
        err = create_links(t);
    if (!err)
        err = load(t);
    if (err) {
        trainer_destroy(t);
        return err;
    }
    *out = t;
    return 0;
}

void trainer_destroy(struct trainer *t)
{
    if (!t ||
        t->engine.stalled) /* hanging workers may still look at it: the process ends */
        return;
    for (int i = 0; t->stages && i < place_count(t); i++) {
        struct trainer_stage *s = &t->stages[i];
        link_destroy(s->forward);
        link_destroy(s->backward);
        link_destroy(s->out);
        link_destroy(s->home);
        pool_fini(&s->slots);
        pool_fini(&s->grads);
        pool_fini(&s->y);
        pool_fini(&s->dx);
        pool_fini(&s->dy);
        task_data_destroy(s->sums);
        train_stage_destroy(s->train);
        stage_destroy(s->stage);
    }
    link_destroy(t->table_out);
    link_destroy(t->table_in);
    for (int l = 0; t->engine.lanes && l < t->engine.lanes->n; l++)
        arena_fini(&t->engine.lanes->lanes[l].arena);
    engine_fini(&t->engine);
    free(t->lane_bytes);
    free(t->stages);
    free(t);
}

/* ---- From copy to copy ------------------------------------------------------------------------ */

static int move(struct link *link, void *to, const void *from, size_t bytes)
{
    int err = 0;
    for (size_t at = 0; at < bytes && !err; at += SHARE_BYTES) {
        size_t left = bytes - at;
        err = link_enqueue(link, (uint8_t *)to + at, (const uint8_t *)from + at,
                           left < SHARE_BYTES ? left : SHARE_BYTES);
    }
    return err;
}

static int move_sums(struct link *link, const struct train_stage *to,
                     const struct train_stage *from)
{
    const struct model_config *c = to->stage->config;
    int err =
        move(link, to->grad, from->grad, to->stage->params.elements * sizeof(float));
    if (!err && to->head_grad)
        err = move(link, to->head_grad, from->head_grad, c->V * c->C * sizeof(float));
    return err;
}

int trainer_send_sums(struct trainer *t, int place)
{
    struct trainer_stage *s = &t->stages[place];
    return move_sums(s->out, s->train, t->stages[place % stage_count(t)].train);
}

static int return_stage(void *arg)
{
    struct stage_call *c = arg;
    struct trainer_stage *s = &c->t->stages[c->stage];
    int err =
        move_sums(s->home, c->t->stages[c->stage % stage_count(c->t)].train, s->train);
    return err ? err : link_finish(s->home, NULL);
}

static int share_stage(void *arg)
{
    struct stage_call *c = arg;
    struct trainer_stage *s = &c->t->stages[c->stage];
    size_t T = dtype_block_bytes(s->stage->ctx->dtype);
    int err = move(s->out, s->stage->weights,
                   c->t->stages[c->stage % stage_count(c->t)].stage->weights,
                   s->stage->params.elements * T);
    return err ? err : link_finish(s->out, NULL);
}

/* Calls fn for every stage of the second copy, all at the same time, where bytes are moved to and from it. */
static int call_second(struct trainer *t, int (*fn)(void *arg))
{
    int n = place_count(t) - stage_count(t);
    struct stage_call *args = calloc(n + 1, sizeof(*args));
    int *workers = calloc(n + 1, sizeof(*workers));
    int err = args && workers ? 0 : log_no_memory("training");

    for (int i = 0; i < n && !err; i++) {
        args[i] = (struct stage_call){.t = t, .stage = stage_count(t) + i};
        workers[i] = engine_lane(&t->engine, args[i].stage)->transfer_worker;
    }
    if (!err && n)
        err = task_call_all(workers, n, fn, args, sizeof(*args));
    free(args);
    free(workers);
    return err;
}

int trainer_return_sums(struct trainer *t)
{
    return call_second(t, return_stage);
}

int trainer_share(struct trainer *t)
{
    return call_second(t, share_stage);
}

/* ---- Between steps ---------------------------------------------------------------------------- */

static int add_head(void *arg)
{
    struct stage_call *c = arg;
    struct train_stage *s = c->t->stages[c->stage].train;
    const struct model_config *m = s->stage->config;
    s->ops->accumulate(s->stage->ctx, train_grad(s, MODEL_EMBED, 0), s->head_grad,
                       m->V * m->C);
    s->stage->ctx->ops->sync(s->stage->ctx);
    return kernel_error(s->stage->ctx);
}

struct table_hop {
    struct link *link; /* NULL: both are on one lane, that of `to` */
    struct train_stage *stage;
    float *to, *from;
    size_t n;
};

static int hop_table(void *arg)
{
    struct table_hop *h = arg;
    struct kernel_ctx *ctx = h->stage->stage->ctx;
    if (h->link)
        return link_transfer(h->link, h->to, h->from, h->n * sizeof(float), NULL);
    ctx->ops->zero(ctx, h->to, h->n * sizeof(float));
    h->stage->ops->accumulate(ctx, h->to, h->from, h->n);
    ctx->ops->sync(ctx);
    return kernel_error(ctx);
}

/* Both uses of a tied table get the sum of both gradients: embedding + head, wherever the stages are cut. */
static int join_table(struct trainer *t)
{
    int last = stage_count(t) - 1;
    const struct model_config *m = &t->config.model->config;
    struct train_stage *head = t->stages[last].train, *embed = t->stages[0].train;
    struct lane *to = engine_lane(&t->engine, last), *back = engine_lane(&t->engine, 0);
    struct table_hop out = {t->table_out, head, train_grad(head, MODEL_EMBED, 0),
                            train_grad(embed, MODEL_EMBED, 0), m->V * m->C};
    struct table_hop in = {t->table_in, embed, out.from, out.to, out.n};
    int err = 0;

    if (!m->tied)
        return 0;
    if (last)
        err = task_call(out.link ? to->transfer_worker : to->worker, hop_table, &out);
    if (!err)
        err =
            task_call(to->worker, add_head, &(struct stage_call){.t = t, .stage = last});
    if (!err && last)
        err = task_call(in.link ? back->transfer_worker : back->worker, hop_table, &in);
    return err;
}

static int sum_stage(void *arg)
{
    struct stage_call *c = arg;
    return train_squares(c->t->stages[c->stage].train, c->squares);
}

/* Adds the parameters' sums in the model's order, which does not depend on the stages: layers, then the
 * rest. */
static double total(const struct trainer *t, double **squares)
{
    double sum = 0;
    for (int layers = 1; layers >= 0; layers--)
        for (int i = 0; i < stage_count(t); i++) {
            const struct params *p = &t->stages[i].stage->params;
            for (size_t k = 0; k < p->n; k++) {
                bool inner = p->list[k].weight >= MODEL_ATTN_NORM;
                sum += inner == (bool)layers ? squares[i][k] : 0;
            }
        }
    return sum;
}

int trainer_finish(struct trainer *t, double *grad_norm)
{
    int n = stage_count(t), err = join_table(t);
    double **squares = calloc(n, sizeof(*squares));

    if (!err && !squares)
        err = log_no_memory("training");
    for (int i = 0; i < n && !err; i++)
        if (!(squares[i] = calloc(t->stages[i].stage->params.n, sizeof(**squares))))
            err = log_no_memory("training");
    if (!err)
        err = call_stages(t, n, sum_stage, (struct stage_call){.t = t}, squares);
    if (!err)
        *grad_norm = sqrt(total(t, squares));
    for (int i = 0; squares && i < n; i++)
        free(squares[i]);
    free(squares);
    return err;
}

static int step_stage(void *arg)
{
    struct stage_call *c = arg;
    struct train_stage *s = c->t->stages[c->stage].train;
    int err = train_adamw(s, c->adamw);
    s->stage->ctx->ops->sync(s->stage->ctx);
    return err ? err : kernel_error(s->stage->ctx);
}

static int clear_stage(void *arg)
{
    struct stage_call *c = arg;
    return train_clear(c->t->stages[c->stage].train);
}

int trainer_search(struct trainer *t, struct train_batch **batches)
{
    struct step *step;
    int err =
        call_stages(t, place_count(t), clear_stage, (struct stage_call){.t = t}, NULL);

    t->engine.failed = 0;
    t->engine.search = true;
    if (!err)
        err = trainer_begin(t, batches, &step);
    if (!err)
        err = step_end(step);
    t->engine.search = false;
    if (err)
        return err;
    log_error(
        "the loss or its gradient is not finite, but every op's result was when the "
        "step was run again");
    return -EDOM;
}

int trainer_adamw(struct trainer *t, const struct kernel_adamw *p)
{
    int err = call_stages(t, stage_count(t), step_stage,
                          (struct stage_call){.t = t, .adamw = p}, NULL);
    return err ? err : trainer_share(t);
}

int trainer_owner(const struct trainer *t, enum model_weight weight, size_t layer)
{
    for (int i = 0; i < stage_count(t); i++)
        if (params_find(&t->stages[i].stage->params, weight, layer))
            return i;
    return -1;
}

struct copy_call {
    struct kernel_ctx *ctx;
    float *host, *lane; /* (n) */
    size_t n;
};

static int download(void *arg)
{
    struct copy_call *c = arg;
    c->ctx->ops->download(c->ctx, c->host, c->lane, c->n * sizeof(float));
    c->ctx->ops->sync(c->ctx);
    return kernel_error(c->ctx);
}

static int upload(void *arg)
{
    struct copy_call *c = arg;
    c->ctx->ops->upload(c->ctx, c->lane, c->host, c->n * sizeof(float));
    c->ctx->ops->sync(c->ctx);
    return kernel_error(c->ctx);
}

/* An array of a parameter, as it lies on its lane. */
static struct copy_call copy_of(struct train_stage *s, float *host,
                                enum trainer_what what, const struct param *p)
{
    float *const arrays[] = {[TRAINER_GRAD] = s->grad,
                             [TRAINER_WEIGHT] = s->master,
                             [TRAINER_M] = s->m,
                             [TRAINER_V] = s->v};
    return (struct copy_call){s->stage->ctx, host, arrays[what] + p->offset,
                              p->rows * p->cols};
}

int trainer_read(struct trainer *t, float *out, enum trainer_what what,
                 enum model_weight weight, size_t layer)
{
    int i = trainer_owner(t, weight, layer);
    if (i < 0)
        return -ENOENT;
    struct train_stage *s = t->stages[i].train;
    struct copy_call c =
        copy_of(s, out, what, params_find(&s->stage->params, weight, layer));
    return task_call(engine_lane(&t->engine, i)->worker, download, &c);
}

int trainer_write(struct trainer *t, const float *values, enum trainer_what what,
                  enum model_weight weight, size_t layer)
{
    int err = trainer_owner(t, weight, layer) < 0 ? -ENOENT : 0;
    for (int i = 0; i < stage_count(t) && !err; i++) {
        struct train_stage *s = t->stages[i].train;
        const struct param *p = params_find(&s->stage->params, weight, layer);
        if (!p)
            continue;
        struct copy_call c = copy_of(s, (float *)values, what, p);
        err = task_call(engine_lane(&t->engine, i)->worker, upload, &c);
    }
    return err;
}
