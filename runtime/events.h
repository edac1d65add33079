/* Device events that are used again, and the times they give on the host's clock. */
#ifndef PENSTOCK_EVENTS_H
#define PENSTOCK_EVENTS_H

#include <pthread.h>

#include "runtime/lane.h"

struct events;

/* A device event. Who may still look at it holds it; when nobody does, it is used again. */
struct event {
    void *handle; /* cudaEvent_t */
    struct events *home;
    struct event *next; /* in the list of free ones */
    int holders;        /* atomic */
};

/* The events of one lane. Calls may come from any thread. */
struct events {
    const struct lane *lane; /* borrowed */
    pthread_mutex_t lock;    /* of the list */
    struct event *free;
    struct event *base; /* recorded at base_time */
    double base_time;   /* host clock, seconds */
};

/* Does nothing for a CPU lane. */
int events_init(struct events *e, const struct lane *lane);
/* Every event has been let go. */
void events_fini(struct events *e);

/* An event that the caller holds. */
int events_take(struct events *e, struct event **out);
struct event *event_hold(struct event *e);
/* NULL: nothing. */
void event_drop(struct event *e);

/* When a complete event was reached, on the host's clock. */
int event_time(const struct event *e, double *seconds);

#endif
