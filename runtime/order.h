/* The order of tasks on the device, where they complete at enqueue: who reads waits for the last writer, who writes
 * also for the readers since. */
#ifndef PENSTOCK_ORDER_H
#define PENSTOCK_ORDER_H

#include <pthread.h>
#include <stdbool.h>

#include "runtime/events.h"

/* The end of something that was enqueued; its event is held. */
struct mark {
    struct event *event; /* recorded; NULL: none */
    void *stream;        /* it is recorded on */
};

/* What was last enqueued that uses some data. Tasks that write it are enqueued one after the other, with its readers
 * between them in any order, which StarPU sees to. */
struct order {
    pthread_mutex_t lock; /* of the readers */
    struct mark wrote;
    struct mark *read; /* (n_read) since then, one per stream */
    int n_read, cap;
};

void order_init(struct order *o);
void order_fini(struct order *o);

/* Before a use is enqueued: makes its stream wait for what must have ended. */
int order_wait(struct order *o, bool write, void *stream);
/* When it is enqueued: the event, recorded on the stream, is its end. -ENOMEM. */
int order_mark(struct order *o, bool write, struct event *end, void *stream);

#endif
