/* A free list of device events per lane. */
#include "runtime/events.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/device.h"

int events_init(struct events *e, const struct lane *lane)
{
    *e = (struct events){.lane = lane};
    pthread_mutex_init(&e->lock, NULL);
    if (lane->spec.kind == LANE_CPU)
        return 0;
    int err = events_take(e, &e->base);
    if (!err)
        err = device_event_record(e->base->handle, lane->stream);
    if (!err)
        err = device_event_sync(e->base->handle);
    e->base_time = time_now();
    return err;
}

void events_fini(struct events *e)
{
    if (!e->lane)
        return;
    event_drop(e->base);
    while (e->free) {
        struct event *first = e->free;
        e->free = first->next;
        device_event_destroy(first->handle);
        free(first);
    }
    pthread_mutex_destroy(&e->lock);
    *e = (struct events){0};
}

static int create(struct events *e, struct event **out)
{
    struct event *new = calloc(1, sizeof(*new));
    if (!new)
        return log_no_memory("an event");
    *new = (struct event){.home = e, .holders = 1};
    int err = device_event_create(&new->handle, e->lane->spec.device, true);
    if (err)
        free(new);
    else
        *out = new;
    return err;
}

int events_take(struct events *e, struct event **out)
{
    pthread_mutex_lock(&e->lock);
    struct event *first = e->free;
    if (first)
        e->free = first->next;
    pthread_mutex_unlock(&e->lock);
    if (!first)
        return create(e, out);
    first->holders = 1;
    *out = first;
    return 0;
}

struct event *event_hold(struct event *e)
{
    __atomic_add_fetch(&e->holders, 1, __ATOMIC_RELAXED);
    return e;
}

void event_drop(struct event *e)
{
    if (!e || __atomic_sub_fetch(&e->holders, 1, __ATOMIC_ACQ_REL))
        return;
    pthread_mutex_lock(&e->home->lock);
    e->next = e->home->free;
    e->home->free = e;
    pthread_mutex_unlock(&e->home->lock);
}

int event_time(const struct event *e, double *seconds)
{
    double since = 0;
    int err = device_event_elapsed(&since, e->home->base->handle, e->handle);
    *seconds = e->home->base_time + since;
    return err;
}
