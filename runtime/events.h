/* Device events that are used again, and the times they give on the host's clock. */
#ifndef PENSTOCK_EVENTS_H
#define PENSTOCK_EVENTS_H

#include "runtime/lane.h"

/* The events of one lane. All calls come from the submitting thread. */
struct events {
    const struct lane *lane; /* borrowed */
    void **free;             /* (n) */
    int n, cap;
    void *base;       /* recorded at base_time */
    double base_time; /* host clock, seconds */
};

/* Does nothing for a CPU lane. */
int events_init(struct events *e, const struct lane *lane);
void events_fini(struct events *e);
int events_take(struct events *e, void **event);
void events_give(struct events *e, void *event);

/* When a complete event was reached, on the host's clock. */
int events_time(const struct events *e, double *seconds, void *event);

#endif
