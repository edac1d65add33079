/* All schedules on one shape. */
#ifndef PENSTOCK_SCHED_COMPARE_H
#define PENSTOCK_SCHED_COMPARE_H

#include "schedules/list.h"
#include "schedules/simulate.h"

struct sched_result {
    struct sched_plan plan;
    struct sched_sim sim;
    double peak; /* of the lane with the most activations */
};

struct sched_refusal {
    const char *name;
    struct sched_error reason;
};

struct sched_comparison {
    int lanes, micro_batches;
    struct sched_result *result;   /* (results) the shortest makespan first */
    struct sched_refusal *refusal; /* (refusals) */
    int results, refusals;
};

/* Makes and simulates every schedule that trains. shape->chunks holds for those that take
 * any number of them; a schedule that the shape does not admit is among the refusals.
 * -ENOMEM (err). */
int sched_compare(struct sched_comparison *c, const struct sched_shape *shape,
                  struct sched_error *err);
void sched_comparison_fini(struct sched_comparison *c);

#endif
