/* The memory, links and weights of inference, and its plans as tasks: infer_step.c. */
#include "runtime/infer.h"

#include <errno.h>
#include <stdlib.h>

static size_t row_bytes(const struct infer *f, const struct lane *lane)
{
    return f->config.model->config.C * dtype_block_bytes(lane->ctx->dtype);
}

static int create_stages(struct infer *f)
{
    const struct infer_config *c = &f->config;
    int n = c->n_stages, err = 0;

    f->stages = calloc(n, sizeof(*f->stages));
    f->rings = calloc(n, sizeof(*f->rings));
    f->ring_of = calloc(n, sizeof(*f->ring_of));
    f->links = calloc(n, sizeof(*f->links));
    f->lane_bytes = calloc(c->lanes->n, sizeof(*f->lane_bytes));
    f->predicted = calloc(n, sizeof(*f->predicted));
    f->measured = calloc(n, sizeof(*f->measured));
    if (!f->stages || !f->rings || !f->ring_of || !f->links || !f->lane_bytes ||
        !f->predicted || !f->measured)
        return log_no_memory("the engine");
    for (int s = 0; s < n && !err; s++) {
        bool joined = s && c->stage_lane[s] == c->stage_lane[s - 1];
        f->ring_of[s] = joined ? f->ring_of[s - 1] : s;
        err = stage_create(&f->stages[s], &c->model->config, s, n, c->ranges[s],
                           &c->limits);
    }
    return err;
}

/* Lays out a stage and, where it begins one, its ring; tells the bytes it took. */
static int layout_stage(struct infer *f, int s, struct arena *a, size_t *taken)
{
    struct lane *lane = engine_lane(&f->engine, s);
    size_t before = a->used;
    size_t bytes = f->config.limits.rows * row_bytes(f, lane);
    int err = stage_layout(f->stages[s], a, lane->ctx->dtype);
    for (int k = 0; k < INFER_RING && !err && f->ring_of[s] == s; k++)
        err = arena_alloc(a, &f->rings[s].x[k], bytes);
    *taken = a->used - before;
    return err;
}

/* Bytes of every lane, by a dry run. */
static int predict(struct infer *f)
{
    for (int l = 0; l < f->config.lanes->n; l++) {
        struct arena dry = arena_dry();
        int err = 0;
        for (int s = 0; s < f->config.n_stages && !err; s++)
            if (f->config.stage_lane[s] == l)
                err = layout_stage(f, s, &dry, &f->predicted[s]);
        if (err)
            return err;
        f->lane_bytes[l] = dry.used;
        /* What its kernels hold by now: cuBLAS's work space. Shown with the lane's first stage. */
        for (int s = 0; s < f->config.n_stages; s++)
            if (f->config.stage_lane[s] == l) {
                f->predicted[s] += f->config.lanes->lanes[l].ctx->scratch_bytes;
                break;
            }
    }
    return 0;
}

static int take_memory(struct infer *f)
{
    int err = setup_memory(f->config.lanes, f->config.place, f->lane_bytes,
                           "more lanes, a shorter context (-c) or fewer prompts");
    for (int s = 0; s < f->config.n_stages && !err; s++)
        err = layout_stage(f, s, &engine_lane(&f->engine, s)->arena, &f->measured[s]);
    return err;
}

static int create_data(struct infer *f)
{
    int n = f->config.n_stages, groups = f->config.groups, err = 0;
    bool one_lane = f->config.stage_lane[0] == f->config.stage_lane[n - 1];

    f->kv = calloc((size_t)n * groups, sizeof(*f->kv));
    f->drawn = calloc(groups, sizeof(*f->drawn));
    f->taken = calloc(groups, sizeof(*f->taken));
    if (!f->kv || !f->drawn || !f->taken)
        return log_no_memory("the engine");
    for (int i = 0; i < n * groups && !err; i++)
        err = task_data_create(&f->kv[i]);
    for (int g = 0; g < groups && !err; g++) {
        err = task_data_create(&f->drawn[g]);
        if (!err && one_lane)
            f->taken[g] = f->drawn[g];
        else if (!err)
            err = task_data_create(&f->taken[g]);
    }
    for (int s = 0; s < n && !err; s++)
        for (int k = 0; k < INFER_RING && !err && f->ring_of[s] == s; k++)
            err = task_data_create(&f->rings[s].data[k]);
    if (one_lane)
        f->stages[n - 1]->tokens = f->stages[0]->tokens;
    return err;
}

static int create_links(struct infer *f)
{
    const struct infer_config *c = &f->config;
    struct lane *first = engine_lane(&f->engine, 0);
    struct lane *last = engine_lane(&f->engine, c->n_stages - 1);
    int err = 0;

    for (int s = 1; s < c->n_stages && !err; s++)
        if (f->ring_of[s] == s) {
            struct lane *to = engine_lane(&f->engine, s);
            err = setup_link(&f->links[s], c->place, c->link,
                             engine_lane(&f->engine, s - 1), to,
                             c->limits.rows * row_bytes(f, to), false);
        }
    if (!err && first != last)
        err = setup_link(&f->tokens_link, c->place, c->link, last, first,
                         c->limits.slots * sizeof(int32_t), false);
    return err;
}

/* Stages that are described and counted, and take nothing yet. */
static int describe(struct infer **out, const struct infer_config *config)
{
    struct infer *f = calloc(1, sizeof(*f));
    if (!f)
        return log_no_memory("the engine");
    f->config = *config;
    int err = engine_init(&f->engine, config->lanes, config->n_stages, config->stage_lane,
                          config->order, config->deadline);
    f->engine.submit = infer_submit;
    if (!err)
        err = create_stages(f);
    if (!err)
        err = predict(f);
    if (err)
        infer_destroy(f);
    else
        *out = f;
    return err;
}

int infer_fits(const struct infer_config *config, struct setup_shortage *s)
{
    struct infer *f;
    int err = describe(&f, config);
    if (err)
        return err;
    err = setup_fits(s, config->lanes, f->lane_bytes);
    infer_destroy(f);
    return err;
}

int infer_create(struct infer **out, const struct infer_config *config)
{
    struct infer *f;
    int err = describe(&f, config);
    if (err)
        return err;
    err = take_memory(f);
    if (!err)
        err = create_data(f);
    if (!err)
        err = create_links(f);
    if (!err)
        err = setup_load(&f->engine, config->place, f->stages, config->model,
                         config->progress, config->user);
    if (err) {
        infer_destroy(f);
        return err;
    }
    *out = f;
    return 0;
}

static void destroy_data(struct infer *f)
{
    int n = f->config.n_stages, groups = f->config.groups;
    for (int i = 0; f->kv && i < n * groups; i++)
        task_data_destroy(f->kv[i]);
    for (int g = 0; f->drawn && f->taken && g < groups; g++) {
        if (f->taken[g] != f->drawn[g])
            task_data_destroy(f->taken[g]);
        task_data_destroy(f->drawn[g]);
    }
    for (int s = 0; f->rings && s < n; s++)
        for (int k = 0; k < INFER_RING; k++)
            task_data_destroy(f->rings[s].data[k]);
}

void infer_destroy(struct infer *f)
{
    if (!f ||
        f->engine.stalled) /* hanging workers may still look at it: the process ends */
        return;
    destroy_data(f);
    for (int s = 0; s < f->config.n_stages; s++) {
        if (f->links)
            link_destroy(f->links[s]);
        if (f->stages)
            stage_destroy(f->stages[s]);
    }
    link_destroy(f->tokens_link);
    for (int l = 0; l < f->config.lanes->n; l++)
        arena_fini(&f->config.lanes->lanes[l].arena);
    engine_fini(&f->engine);
    free(f->stages);
    free(f->rings);
    free(f->ring_of);
    free(f->links);
    free(f->lane_bytes);
    free(f->predicted);
    free(f->measured);
    free(f->kv);
    free(f->drawn);
    free(f->taken);
    free(f);
}
