/* Memory, links and weights of lanes. */
#include "runtime/setup.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/device.h"

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

/* What the lanes of one memory need together, and what it has free. */
static int weigh_memory(struct setup_shortage *s, const struct lane_set *lanes,
                        const size_t *bytes, int device)
{
    struct device_info info;

    *s = (struct setup_shortage){.name = "host memory"};
    for (int l = 0; l < lanes->n; l++)
        if (lanes->lanes[l].spec.device == device) {
            s->need += bytes[l];
            s->name = device < 0 ? s->name : lanes->lanes[l].spec.name;
        }
    if (device < 0)
        s->have = host_memory_free();
    else if (device_query(&info, device))
        return -ENODEV;
    else
        s->have = info.mem_free;
    return s->need <= s->have ? 0 : -ENOMEM;
}

int setup_fits(struct setup_shortage *s, const struct lane_set *lanes,
               const size_t *bytes)
{
    int err = 0;
    for (int l = 0; l < lanes->n && !err; l++)
        err = weigh_memory(s, lanes, bytes, lanes->lanes[l].spec.device);
    return err;
}

int setup_memory(struct lane_set *lanes, struct place *place, const size_t *bytes,
                 const char *advice)
{
    struct setup_shortage s;
    int err = setup_fits(&s, lanes, bytes);
    if (err == -ENOMEM)
        log_error("out of memory: %s needs %.2f GiB and has %.2f GiB free; use %s",
                  s.name, s.need / 0x1p30, s.have / 0x1p30, advice);
    for (int l = 0; l < lanes->n && !err; l++) {
        struct lane *lane = &lanes->lanes[l];
        err = arena_init(&lane->arena, lane->ctx, bytes[l]);
        if (!err && lane->spec.kind == LANE_CPU)
            err = place_bind_memory(place, &lane->spec, lane->arena.base,
                                    lane->arena.bytes);
    }
    return err;
}

struct new_link {
    struct link **out;
    struct place *place;
    enum link_kind kind;
    struct lane *from, *to;
    size_t bytes;
    bool backward;
};

static int create_link(void *arg)
{
    struct new_link *a = arg;
    int err = place_bind_thread(a->place, &a->to->spec);
    return err ? err
               : link_create(a->out, a->kind, a->from, a->to, a->bytes, a->backward);
}

int setup_link(struct link **out, struct place *place, enum link_kind kind,
               struct lane *from, struct lane *to, size_t bytes, bool backward)
{
    struct new_link a = {out, place, kind, from, to, bytes, backward};
    return task_call(to->worker, create_link, &a);
}

/* The loading of all lanes, and what one of them does. */
struct loading {
    struct engine *engine;
    struct place *place;
    struct stage **stages;
    const struct model *model;
    void (*progress)(void *user, const char *what, double done);
    void *user;
    size_t done, total;
    int stop;
};

struct lane_loading {
    struct loading *all;
    struct lane *lane;
};

static int load_lane(void *arg)
{
    struct lane_loading *a = arg;
    struct loading *l = a->all;
    int err = place_bind_thread(l->place, &a->lane->spec);
    for (int s = 0; s < l->engine->n_stages && !err; s++)
        if (engine_lane(l->engine, s) == a->lane)
            err = stage_load(l->stages[s], a->lane->ctx, l->model, &l->done);
    return err;
}

/* Reports until told to stop. */
static void *show_loading(void *arg)
{
    struct loading *l = arg;
    while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
        l->progress(l->user, "loading",
                    (double)__atomic_load_n(&l->done, __ATOMIC_RELAXED) / l->total);
        usleep(50000);
    }
    l->progress(l->user, "loading", 1);
    return NULL;
}

static int load_lanes(struct loading *l)
{
    struct lane_set *lanes = l->engine->lanes;
    struct lane_loading *args = calloc(lanes->n, sizeof(*args));
    int *workers = calloc(lanes->n, sizeof(*workers));
    int err = args && workers ? 0 : log_no_memory("loading");

    for (int i = 0; i < lanes->n && !err; i++) {
        args[i] = (struct lane_loading){l, &lanes->lanes[i]};
        workers[i] = lanes->lanes[i].worker;
    }
    if (!err)
        err = task_call_all(workers, lanes->n, load_lane, args, sizeof(*args));
    free(args);
    free(workers);
    return err;
}

int setup_load(struct engine *e, struct place *place, struct stage **stages,
               const struct model *model,
               void (*progress)(void *user, const char *what, double done), void *user)
{
    struct loading l = {.engine = e,
                        .place = place,
                        .stages = stages,
                        .model = model,
                        .progress = progress,
                        .user = user,
                        .total = 1};
    pthread_t shower;

    for (int s = 0; s < e->n_stages; s++)
        l.total += stages[s]->params.elements;
    bool shown = progress && !pthread_create(&shower, NULL, show_loading, &l);
    int err = load_lanes(&l);
    __atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
    if (shown)
        pthread_join(shower, NULL);
    return err;
}
