/* A free list of device events per lane. */
#include "runtime/events.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/device.h"

int events_init(struct events *e, const struct lane *lane)
{
    *e = (struct events){.lane = lane};
    if (lane->spec.kind == LANE_CPU)
        return 0;
    int err = events_take(e, &e->base);
    if (!err)
        err = device_event_record(e->base, lane->stream);
    if (!err)
        err = device_event_sync(e->base);
    e->base_time = time_now();
    return err;
}

void events_fini(struct events *e)
{
    if (e->base)
        device_event_destroy(e->base);
    for (int i = 0; i < e->n; i++)
        device_event_destroy(e->free[i]);
    free(e->free);
    *e = (struct events){0};
}

int events_take(struct events *e, void **event)
{
    if (e->n) {
        *event = e->free[--e->n];
        return 0;
    }
    return device_event_create(event, e->lane->spec.device, true);
}

void events_give(struct events *e, void *event)
{
    if (e->n == e->cap) {
        int cap = e->cap ? 2 * e->cap : 64;
        void **more = realloc(e->free, cap * sizeof(*more));
        if (!more) {
            device_event_destroy(event);
            return;
        }
        e->free = more;
        e->cap = cap;
    }
    e->free[e->n++] = event;
}

int events_time(const struct events *e, double *seconds, void *event)
{
    double since = 0;
    int err = device_event_elapsed(&since, e->base, event);
    *seconds = e->base_time + since;
    return err;
}
