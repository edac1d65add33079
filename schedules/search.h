/* Searches an order for given costs, by improving the rules of the greedy builder. */
#ifndef PENSTOCK_SCHED_SEARCH_H
#define PENSTOCK_SCHED_SEARCH_H

#include "schedules/list.h"

/* One placement of the stages. */
struct search_place {
    enum sched_place place;
    int chunks;
};

/* Improves on *best, a plan for this placement or another, whose makespan is *makespan:
 * if something faster within the cap is found, it takes best's place. work: ops that may
 * be tried; what is used is taken off. */
int search_place(struct sched_plan *best, double *makespan,
                 const struct search_place *place, const struct sched_shape *shape,
                 int64_t *work);

#endif
