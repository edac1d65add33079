/* The machine for people: gathers what there is and measures the links between lanes. */
#include "runtime/topo.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/assign.h"
#include "runtime/penstock.h"
#include "stages/output.h"

#define MOST_BOTH_WAYS 4 /* lanes of which every pair is measured, there and back */
#define MOST_PAIRED    8 /* or in one direction */
#define SMALL_BYTES    ((size_t)4 << 10)
#define GPU_BYTES      ((size_t)64 << 20)
#define CPU_BYTES      ((size_t)16 << 20)
#define SMALL_REPEATS  50
#define LARGE_REPEATS  9

static int no_memory(void)
{
    log_error("no memory to describe the machine");
    return -ENOMEM;
}

/* ---- What there is ---------------------------------------------------------------------------- */

/* Multiprocessors of every GPU lane: slices have what the hardware gives them. */
static int count_sms(struct topo *t)
{
    int err = 0;

    for (int i = 0; i < t->n_lanes && !err; i++) {
        const struct lane_spec *s = &t->specs[i];
        void *streams[s->n_slices];
        int sms[s->n_slices];
        struct device_slices *slices;
        if (s->kind != LANE_CUDA || s->slice > 0)
            continue;
        err = device_slices_create(&slices, s->device, s->n_slices, streams, sms);
        if (err)
            break;
        device_slices_destroy(slices);
        for (int k = 0; k < s->n_slices; k++)
            t->lanes[i + k].sms = sms[k];
    }
    return err;
}

static int find_chain(struct topo *t)
{
    int n = t->machine.n_gpus;

    if (n < 2)
        return 0;
    t->chain = calloc((size_t)n, sizeof(*t->chain));
    if (!t->chain)
        return no_memory();
    return assign_chain(t->chain, &t->chain_basis, &t->machine, n, false);
}

static int list_lanes(struct topo *t)
{
    t->lanes = calloc((size_t)t->n_lanes, sizeof(*t->lanes));
    t->nodes = calloc((size_t)t->n_lanes, sizeof(*t->nodes));
    if (!t->lanes || !t->nodes)
        return no_memory();
    for (int i = 0; i < t->n_lanes; i++) {
        t->lanes[i] = (struct lane){.index = i, .spec = t->specs[i]};
        t->nodes[i] = place_lane_node(t->place, &t->specs[i]);
    }
    return 0;
}

static int gather(struct topo *t, const char *devices)
{
    int err = place_open(&t->place);

    if (err)
        return err;
    place_imagine(t->place);
    err = place_parse(t->place, &t->specs, &t->n_lanes, devices);
    if (!err)
        err = place_describe(t->place, &t->machine);
    if (!err)
        err = list_lanes(t);
    if (!err && t->machine.here)
        err = count_sms(t);
    if (!err)
        err = find_chain(t);
    return err;
}

static void drop(struct topo *t)
{
    free(t->links);
    free(t->chain);
    free(t->nodes);
    free(t->lanes);
    lane_specs_free(t->specs, t->n_lanes);
    place_machine_free(&t->machine);
    place_close(t->place);
}

/* ---- Links ------------------------------------------------------------------------------------ */

static int measure(const struct topo *t, struct topo_link *l)
{
    struct lane *from = &t->lanes[l->from], *to = &t->lanes[l->to];
    bool gpus = from->spec.kind == LANE_CUDA && to->spec.kind == LANE_CUDA;
    size_t bytes = gpus ? GPU_BYTES : CPU_BYTES;
    struct link *link;
    double small = 0, large = 0;
    int err = place_bind_thread(t->place, &to->spec);

    if (!err)
        err = link_create(&link, l->kind, from, to, bytes, false);
    if (err)
        return err;
    err = link_measure(link, t->place, &small, SMALL_BYTES, SMALL_REPEATS);
    if (!err)
        err = link_measure(link, t->place, &large, bytes, LARGE_REPEATS);
    link_destroy(link);
    l->latency = small;
    l->bandwidth = large > small ? (double)bytes / (large - small) : 0;
    return err;
}

/* The links to measure between two lanes. `host` between CPU lanes is `copy` by another name. */
static void list_pair(struct topo *t, int from, int to)
{
    const struct lane *a = &t->lanes[from], *b = &t->lanes[to];
    bool cpus = a->spec.kind == LANE_CPU && b->spec.kind == LANE_CPU;

    for (int kind = LINK_AUTO + 1; kind < LINK_KIND_COUNT; kind++)
        if (link_can_join(kind, a, b, NULL) && !(cpus && kind == LINK_HOST))
            t->links[t->n_links++] =
                (struct topo_link){.from = from,
                                   .to = to,
                                   .kind = kind,
                                   .picked = kind == (int)link_kind_pick(a, b)};
}

static bool worth_measuring(int n, int from, int to)
{
    if (n <= MOST_BOTH_WAYS)
        return from != to;
    return n <= MOST_PAIRED ? from < to : to == from + 1;
}

static int list_links(struct topo *t)
{
    int n = t->n_lanes;
    size_t pairs = 0;

    t->neighbours = n > MOST_PAIRED;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            pairs += worth_measuring(n, from, to);
    t->links = calloc(pairs * LINK_KIND_COUNT + 1, sizeof(*t->links));
    if (!t->links)
        return no_memory();
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            if (worth_measuring(n, from, to))
                list_pair(t, from, to);
    return 0;
}

/* A link that cannot be made or fails has said why; the others are still worth knowing. */
static void *measure_links(void *arg)
{
    struct topo *t = arg;

    for (int i = 0; i < t->n_links; i++)
        t->links[i].failed = measure(t, &t->links[i]) != 0;
    return NULL;
}

/* In a thread of its own, which may be bound here and there. */
static int find_links(struct topo *t)
{
    pthread_t thread;
    int err = list_links(t);

    if (err)
        return err;
    err = pthread_create(&thread, NULL, measure_links, t);
    if (err) {
        log_error("no thread to measure links: %s", strerror(err));
        return -err;
    }
    pthread_join(thread, NULL);
    return 0;
}

static bool any_failed(const struct topo *t)
{
    for (int i = 0; i < t->n_links; i++)
        if (t->links[i].failed)
            return true;
    return false;
}

const struct topo_link *topo_link_between(const struct topo *t, int from, int to)
{
    for (int i = 0; i < t->n_links; i++)
        if (t->links[i].from == from && t->links[i].to == to && t->links[i].picked)
            return &t->links[i];
    return NULL;
}

/* ---- Out -------------------------------------------------------------------------------------- */

static int save_picture(const char *path, const struct topo *t)
{
    struct output o;
    int err = output_open(&o, path);

    if (err)
        return err;
    errno = 0;
    topo_draw(o.f, t);
    if (ferror(o.f))
        err = errno ? -errno : -EIO;
    return output_close(&o, err);
}

int penstock_topo(FILE *out, const char *svg, const char *devices)
{
    struct topo t = {0};
    int err = svg ? output_check(svg) : 0;

    if (!err)
        err = gather(&t, devices);
    if (!err && t.machine.here)
        err = find_links(&t);
    if (!err)
        topo_print(out, &t);
    if (!err && svg)
        err = save_picture(svg, &t);
    if (!err && any_failed(&t))
        err = -EIO;
    drop(&t);
    return err;
}
