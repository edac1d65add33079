/* Links: which kind joins which lanes, and what the kinds share. */
#include "runtime/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"

static const char *const names[LINK_KIND_COUNT] = {
    [LINK_AUTO] = "auto",
    [LINK_NCCL] = "nccl",
    [LINK_COPY] = "copy",
    [LINK_HOST] = "host",
};

static const struct link_ops *const kinds[LINK_KIND_COUNT] = {
    [LINK_NCCL] = &link_nccl,
    [LINK_COPY] = &link_copy,
    [LINK_HOST] = &link_host,
};

const char *link_kind_name(enum link_kind kind)
{
    return (unsigned)kind < LINK_KIND_COUNT ? names[kind] : "?";
}

int link_kind_parse(enum link_kind *kind, const char *name)
{
    for (int i = 0; i < LINK_KIND_COUNT; i++) {
        if (!strcmp(name, names[i])) {
            *kind = i;
            return 0;
        }
    }
    log_error("no link \"%.32s\": there are auto, nccl, copy and host", name);
    return -EINVAL;
}

static bool on_cpu(const struct lane *l)
{
    return l->spec.kind == LANE_CPU;
}

enum link_kind link_kind_pick(const struct lane *from, const struct lane *to)
{
    if (on_cpu(from) != on_cpu(to))
        return LINK_HOST;
    if (on_cpu(from) || from->spec.device == to->spec.device || !link_nccl.enqueue)
        return LINK_COPY;
    return LINK_NCCL;
}

bool link_can_join(enum link_kind kind, const struct lane *from, const struct lane *to,
                   const char **why)
{
    const char *reason = NULL;

    if (kind == LINK_NCCL && !link_nccl.enqueue)
        reason = "this build has no NCCL: use copy or auto";
    else if (kind == LINK_NCCL && on_cpu(from) && on_cpu(to))
        reason = "NCCL joins GPUs alone: use copy or auto between CPU lanes";
    else if (kind == LINK_NCCL && (on_cpu(from) || on_cpu(to)))
        reason = "NCCL joins GPUs alone: use host or auto between a GPU and a CPU lane";
    else if (kind == LINK_COPY && on_cpu(from) != on_cpu(to))
        reason = "use host or auto between a GPU and a CPU lane";
    if (why)
        *why = reason;
    return !reason;
}

/* ---- Sides ------------------------------------------------------------------------------------ */

static void destroy_side(struct link_side *s)
{
    if (s->event)
        device_event_destroy(s->event);
    if (s->stream)
        device_stream_destroy(s->stream);
}

int link_add_side(struct link *l, int device)
{
    struct link_side *s = &l->side[l->n_sides++];
    s->device = device;
    int err = device_stream_create(&s->stream, device, true);
    return err ? err : device_event_create(&s->event, device, false);
}

int link_side_join(struct link_side *s, void *stream)
{
    int err = device_event_record(s->event, s->stream);
    return err ? err : device_stream_wait(stream, s->event);
}

/* ---- Links ------------------------------------------------------------------------------------ */

int link_create(struct link **out, enum link_kind kind, struct lane *from,
                struct lane *to, size_t max_bytes, bool backward)
{
    const char *why;

    if (kind == LINK_AUTO)
        kind = link_kind_pick(from, to);
    if (!link_can_join(kind, from, to, &why)) {
        log_error("link %s cannot join lanes %s and %s: %s", link_kind_name(kind),
                  from->spec.name, to->spec.name, why);
        return -EINVAL;
    }
    struct link *l = calloc(1, sizeof(*l));
    if (!l) {
        log_error("no memory for a link");
        return -ENOMEM;
    }
    *l = (struct link){.ops = kinds[kind],
                       .from = from,
                       .to = to,
                       .max_bytes = max_bytes,
                       .backward = backward};
    int err = l->ops->create(l);
    if (err) {
        link_destroy(l);
        return err;
    }
    *out = l;
    return 0;
}

void link_destroy(struct link *l)
{
    if (!l)
        return;
    if (l->ops->destroy)
        l->ops->destroy(l);
    for (int i = 0; i < l->n_sides; i++)
        destroy_side(&l->side[i]);
    free(l);
}

int link_enqueue(struct link *l, void *dst, const void *src, size_t bytes)
{
    if (bytes > l->max_bytes) {
        log_error("link %s from %s to %s was made for %zu bytes, not %zu",
                  link_kind_name(l->ops->kind), l->from->spec.name, l->to->spec.name,
                  l->max_bytes, bytes);
        return -EINVAL;
    }
    return bytes ? l->ops->enqueue(l, dst, src, bytes) : 0;
}

int link_finish(struct link *l, void *after)
{
    if (!l->n_sides)
        return 0;
    struct link_side *last = &l->side[l->n_sides - 1];
    int err = device_event_record(last->event, last->stream);
    if (err)
        return err;
    return after ? device_stream_wait(after, last->event)
                 : device_event_sync(last->event);
}

int link_transfer(struct link *l, void *dst, const void *src, size_t bytes, void *after)
{
    int err = link_enqueue(l, dst, src, bytes);
    return err ? err : link_finish(l, after);
}

void link_abort(struct link *l)
{
    if (l->ops->abort)
        l->ops->abort(l);
}

/* ---- Measuring -------------------------------------------------------------------------------- */

static int take_buffer(void **p, const struct lane *l, size_t bytes)
{
    if (!on_cpu(l))
        return device_alloc(p, l->spec.device, bytes);
    *p = malloc(bytes);
    if (!*p) {
        log_error("no memory for %zu bytes to measure a link", bytes);
        return -ENOMEM;
    }
    memset(*p, 1, bytes); /* so that the pages are there */
    return 0;
}

static void drop_buffer(void *p, const struct lane *l)
{
    if (p && on_cpu(l))
        free(p);
    else if (p)
        device_free(l->spec.device, p);
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int time_transfers(struct link *l, double *times, void *dst, const void *src,
                          size_t bytes, int repeats)
{
    int err = link_transfer(l, dst, src, bytes, NULL); /* the first one is slower */

    for (int i = 0; i < repeats && !err; i++) {
        double begin = time_now();
        err = link_transfer(l, dst, src, bytes, NULL);
        times[i] = time_now() - begin;
    }
    return err;
}

int link_measure(struct link *l, struct place *place, double *seconds, size_t bytes,
                 int repeats)
{
    void *src = NULL, *dst = NULL;
    double *times = calloc((size_t)repeats, sizeof(*times));
    int err = times ? 0 : -ENOMEM;

    if (err)
        log_error("no memory to measure a link");
    if (!err)
        err = place_bind_thread(place, &l->from->spec);
    if (!err)
        err = take_buffer(&src, l->from, bytes);
    if (!err)
        err = place_bind_thread(place, &l->to->spec);
    if (!err)
        err = take_buffer(&dst, l->to, bytes);
    if (!err)
        err = time_transfers(l, times, dst, src, bytes, repeats);
    if (!err) {
        qsort(times, (size_t)repeats, sizeof(*times), compare);
        *seconds = times[repeats / 2];
    }
    drop_buffer(dst, l->to);
    drop_buffer(src, l->from);
    free(times);
    return err;
}
