/* The engine's memory, links and weights. Steps are in step.c. */
#include "runtime/engine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/device.h"

static struct lane *lane_of(const struct engine *e, int stage)
{
    return &e->config.lanes->lanes[e->config.stage_lane[stage]];
}

static size_t row_bytes(const struct engine *e, const struct lane *lane)
{
    return e->config.model->config.C * dtype_block_bytes(lane->ctx->dtype);
}

static int create_stages(struct engine *e)
{
    const struct engine_config *c = &e->config;
    int n = c->n_stages, err = 0;

    e->stages = calloc(n, sizeof(*e->stages));
    e->rings = calloc(n, sizeof(*e->rings));
    e->ring_of = calloc(n, sizeof(*e->ring_of));
    e->links = calloc(n, sizeof(*e->links));
    e->busy = calloc(n, sizeof(*e->busy));
    e->events = calloc(c->lanes->n, sizeof(*e->events));
    e->lane_bytes = calloc(c->lanes->n, sizeof(*e->lane_bytes));
    e->predicted = calloc(n, sizeof(*e->predicted));
    e->measured = calloc(n, sizeof(*e->measured));
    if (!e->stages || !e->rings || !e->ring_of || !e->links || !e->busy || !e->events ||
        !e->lane_bytes || !e->predicted || !e->measured)
        return -ENOMEM;
    for (int s = 0; s < n && !err; s++) {
        bool joined = s && c->stage_lane[s] == c->stage_lane[s - 1];
        e->ring_of[s] = joined ? e->ring_of[s - 1] : s;
        err = stage_create(&e->stages[s], &c->model->config, s, n, c->ranges[s],
                           &c->limits);
    }
    return err;
}

/* Lays out a stage and, where it begins one, its ring; tells the bytes it took. */
static int layout_stage(struct engine *e, int s, struct arena *a, size_t *taken)
{
    struct lane *lane = lane_of(e, s);
    size_t before = a->used;
    size_t bytes = e->config.limits.rows * row_bytes(e, lane);
    int err = stage_layout(e->stages[s], a, lane->ctx->dtype);
    for (int k = 0; k < ENGINE_RING && !err && e->ring_of[s] == s; k++)
        err = arena_alloc(a, &e->rings[s].x[k], bytes);
    *taken = a->used - before;
    return err;
}

/* Bytes of every lane, by a dry run. */
static int predict(struct engine *e)
{
    for (int l = 0; l < e->config.lanes->n; l++) {
        struct arena dry = arena_dry();
        int err = 0;
        for (int s = 0; s < e->config.n_stages && !err; s++)
            if (e->config.stage_lane[s] == l)
                err = layout_stage(e, s, &dry, &e->predicted[s]);
        if (err)
            return err;
        e->lane_bytes[l] = dry.used;
        /* What its kernels hold by now: cuBLAS's work space. Shown with the lane's first stage. */
        for (int s = 0; s < e->config.n_stages; s++)
            if (e->config.stage_lane[s] == l) {
                e->predicted[s] += e->config.lanes->lanes[l].ctx->scratch_bytes;
                break;
            }
    }
    return 0;
}

static size_t host_memory_free(void)
{
    size_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && !kib && fgets(line, sizeof(line), f))
        sscanf(line, "MemAvailable: %zu kB", &kib);
    if (f)
        fclose(f);
    return kib ? kib * 1024 : SIZE_MAX;
}

/* Refuses, before anything is taken, what the lanes of one memory cannot hold together. */
static int check_memory(const struct engine *e, int device)
{
    size_t need = 0, have = 0;
    const char *name = "host memory";
    struct device_info info;

    for (int l = 0; l < e->config.lanes->n; l++)
        if (e->config.lanes->lanes[l].spec.device == device) {
            need += e->lane_bytes[l];
            name = device < 0 ? name : e->config.lanes->lanes[l].spec.name;
        }
    if (device < 0)
        have = host_memory_free();
    else if (device_query(&info, device))
        return -ENODEV;
    else
        have = info.mem_free;
    if (need <= have)
        return 0;
    log_error("out of memory: %s needs %.2f GiB and has %.2f GiB free; use more lanes, a "
              "shorter context (-c) or fewer prompts",
              name, need / 1073741824.0, have / 1073741824.0);
    return -ENOMEM;
}

static int take_memory(struct engine *e)
{
    struct lane_set *lanes = e->config.lanes;
    int err = 0;
    for (int l = 0; l < lanes->n && !err; l++)
        err = check_memory(e, lanes->lanes[l].spec.device);
    for (int l = 0; l < lanes->n && !err; l++) {
        struct lane *lane = &lanes->lanes[l];
        err = arena_init(&lane->arena, lane->ctx, e->lane_bytes[l]);
        if (!err && lane->spec.kind == LANE_CPU)
            err = place_bind_memory(e->config.place, &lane->spec, lane->arena.base,
                                    lane->arena.bytes);
    }
    for (int s = 0; s < e->config.n_stages && !err; s++)
        err = layout_stage(e, s, &lane_of(e, s)->arena, &e->measured[s]);
    return err;
}

static int create_data(struct engine *e)
{
    int n = e->config.n_stages, groups = e->config.groups, err = 0;
    bool one_lane = e->config.stage_lane[0] == e->config.stage_lane[n - 1];

    e->kv = calloc((size_t)n * groups, sizeof(*e->kv));
    e->drawn = calloc(groups, sizeof(*e->drawn));
    e->taken = calloc(groups, sizeof(*e->taken));
    if (!e->kv || !e->drawn || !e->taken)
        return -ENOMEM;
    for (int i = 0; i < n * groups && !err; i++)
        err = task_data_create(&e->kv[i]);
    for (int g = 0; g < groups && !err; g++) {
        err = task_data_create(&e->drawn[g]);
        if (!err && one_lane)
            e->taken[g] = e->drawn[g];
        else if (!err)
            err = task_data_create(&e->taken[g]);
    }
    for (int s = 0; s < n && !err; s++)
        for (int k = 0; k < ENGINE_RING && !err && e->ring_of[s] == s; k++)
            err = task_data_create(&e->rings[s].data[k]);
    if (one_lane)
        e->stages[n - 1]->tokens = e->stages[0]->tokens;
    return err;
}

/* A link to be made on the receiving lane's thread, so that its staging memory is near. */
struct new_link {
    const struct engine_config *config;
    struct link **out;
    struct lane *from, *to;
    size_t bytes;
};

static int create_link(void *arg)
{
    struct new_link *a = arg;
    int err = place_bind_thread(a->config->place, &a->to->spec);
    if (!err)
        err = link_create(a->out, a->config->link, a->from, a->to, a->bytes, false);
    return err;
}

static int create_links(struct engine *e)
{
    const struct engine_config *c = &e->config;
    int n = c->n_stages, err = 0;

    for (int s = 1; s < n && !err; s++)
        if (e->ring_of[s] == s) {
            struct lane *to = lane_of(e, s);
            err = task_call(to->worker, create_link,
                            &(struct new_link){c, &e->links[s], lane_of(e, s - 1), to,
                                               c->limits.rows * row_bytes(e, to)});
        }
    if (!err && lane_of(e, 0) != lane_of(e, n - 1))
        err = task_call(lane_of(e, 0)->worker, create_link,
                        &(struct new_link){c, &e->tokens_link, lane_of(e, n - 1),
                                           lane_of(e, 0),
                                           c->limits.slots * sizeof(int32_t)});
    return err;
}

/* What a lane's worker does before the first op. */
struct start {
    struct engine *e;
    struct lane *lane;
    size_t *done;
};

static int start_lane(void *arg)
{
    struct start *a = arg;
    int err = place_bind_thread(a->e->config.place, &a->lane->spec);
    for (int s = 0; s < a->e->config.n_stages && !err; s++)
        if (lane_of(a->e, s) == a->lane)
            err = stage_load(a->e->stages[s], a->lane->ctx, a->e->config.model, a->done);
    return err;
}

/* Reports the loading of weights to the caller until told to stop. */
struct loading {
    struct engine *e;
    size_t done, total;
    int stop;
};

static void *show_loading(void *arg)
{
    struct loading *l = arg;
    const struct engine_config *c = &l->e->config;
    while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
        c->progress(c->user, "loading",
                    (double)__atomic_load_n(&l->done, __ATOMIC_RELAXED) / l->total);
        usleep(50000);
    }
    c->progress(c->user, "loading", 1);
    return NULL;
}

static int start_lanes(struct engine *e)
{
    int n = e->config.lanes->n;
    struct start *args = calloc(n, sizeof(*args));
    int *workers = calloc(n, sizeof(*workers));
    struct loading l = {.e = e, .total = 1};
    pthread_t shower;
    bool shown = false;
    int err = args && workers ? 0 : -ENOMEM;

    for (int s = 0; s < e->config.n_stages; s++)
        l.total += e->stages[s]->params.elements;
    for (int i = 0; i < n && !err; i++) {
        args[i] = (struct start){e, &e->config.lanes->lanes[i], &l.done};
        workers[i] = args[i].lane->worker;
    }
    if (!err && e->config.progress)
        shown = !pthread_create(&shower, NULL, show_loading, &l);
    if (!err)
        err = task_call_all(workers, n, start_lane, args, sizeof(*args));
    __atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
    if (shown)
        pthread_join(shower, NULL);
    for (int i = 0; i < n && !err; i++)
        err = events_init(&e->events[i], &e->config.lanes->lanes[i]);
    free(args);
    free(workers);
    return err;
}

static int init_lock(struct engine *e)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int err = pthread_mutex_init(&e->lock, NULL);
    if (!err)
        err = pthread_cond_init(&e->changed, &attr);
    pthread_condattr_destroy(&attr);
    return -err;
}

int engine_create(struct engine **out, const struct engine_config *config)
{
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->config = *config;
    e->first = INFINITY;
    int err = init_lock(e);
    if (!err)
        err = create_stages(e);
    if (!err)
        err = predict(e);
    if (!err)
        err = take_memory(e);
    if (!err)
        err = create_data(e);
    if (!err)
        err = create_links(e);
    if (!err)
        err = start_lanes(e);
    if (err) {
        engine_destroy(e);
        return err;
    }
    *out = e;
    return 0;
}

static void destroy_data(struct engine *e)
{
    int n = e->config.n_stages, groups = e->config.groups;
    for (int i = 0; e->kv && i < n * groups; i++)
        task_data_destroy(e->kv[i]);
    for (int g = 0; e->drawn && e->taken && g < groups; g++) {
        if (e->taken[g] != e->drawn[g])
            task_data_destroy(e->taken[g]);
        task_data_destroy(e->drawn[g]);
    }
    for (int s = 0; e->rings && s < n; s++)
        for (int k = 0; k < ENGINE_RING; k++)
            task_data_destroy(e->rings[s].data[k]);
}

void engine_destroy(struct engine *e)
{
    if (!e || e->stalled) /* hanging workers may still look at it: the process ends */
        return;
    destroy_data(e);
    for (int s = 0; s < e->config.n_stages; s++) {
        if (e->links)
            link_destroy(e->links[s]);
        if (e->stages)
            stage_destroy(e->stages[s]);
    }
    link_destroy(e->tokens_link);
    for (int l = 0; l < e->config.lanes->n; l++) {
        if (e->events)
            events_fini(&e->events[l]);
        arena_fini(&e->config.lanes->lanes[l].arena);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e->stages);
    free(e->rings);
    free(e->ring_of);
    free(e->links);
    free(e->busy);
    free(e->events);
    free(e->lane_bytes);
    free(e->predicted);
    free(e->measured);
    free(e->kv);
    free(e->drawn);
    free(e->taken);
    free(e);
}

void engine_fail(struct engine *e, int err)
{
    pthread_mutex_lock(&e->lock);
    if (!e->failed)
        e->failed = err;
    pthread_mutex_unlock(&e->lock);
}
