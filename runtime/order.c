/* Marks of the last writer and of the readers since. */
#include "runtime/order.h"

#include <stdlib.h>

#include "kernels/device.h"

void order_init(struct order *o)
{
    *o = (struct order){0};
    pthread_mutex_init(&o->lock, NULL);
}

static void forget(struct order *o)
{
    event_drop(o->wrote.event);
    o->wrote = (struct mark){0};
    while (o->n_read)
        event_drop(o->read[--o->n_read].event);
}

void order_fini(struct order *o)
{
    forget(o);
    free(o->read);
    pthread_mutex_destroy(&o->lock);
}

/* What is on the same stream is in order by itself. */
static int wait_mark(const struct mark *m, void *stream)
{
    return m->event && m->stream != stream ? device_stream_wait(stream, m->event->handle)
                                           : 0;
}

int order_wait(struct order *o, bool write, void *stream)
{
    pthread_mutex_lock(&o->lock);
    int err = wait_mark(&o->wrote, stream);
    for (int i = 0; write && i < o->n_read && !err; i++)
        err = wait_mark(&o->read[i], stream);
    pthread_mutex_unlock(&o->lock);
    return err;
}

/* The mark of a stream's last reader, or a new one; NULL: no memory. */
static struct mark *reader_mark(struct order *o, void *stream)
{
    for (int i = 0; i < o->n_read; i++)
        if (o->read[i].stream == stream)
            return &o->read[i];
    if (o->n_read == o->cap) {
        int cap = o->cap ? 2 * o->cap : 4;
        struct mark *more = realloc(o->read, (size_t)cap * sizeof(*more));
        if (!more)
            return NULL;
        o->read = more;
        o->cap = cap;
    }
    o->read[o->n_read] = (struct mark){.stream = stream};
    return &o->read[o->n_read++];
}

int order_mark(struct order *o, bool write, struct event *end, void *stream)
{
    pthread_mutex_lock(&o->lock);
    if (write)
        forget(o);
    struct mark *m = write ? &o->wrote : reader_mark(o, stream);
    if (m) {
        event_drop(m->event);
        *m = (struct mark){event_hold(end), stream};
    }
    pthread_mutex_unlock(&o->lock);
    return m ? 0 : log_no_memory("the order of tasks");
}
