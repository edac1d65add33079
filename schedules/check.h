/* Is a plan complete, runnable, paired and within memory? */
#ifndef PENSTOCK_SCHED_CHECK_H
#define PENSTOCK_SCHED_CHECK_H

#include "schedules/sched.h"

/* Every stage on one lane; for every stage and micro-batch F, and B or I and W, once, in
 * this order (a plan without any backward op is one for inference: F alone); SEND and
 * RECV ops, if there are any, for every result that another lane reads, both sides in one
 * order; no cycle through the lanes; no lane with more activations than cap (in A, 0: no
 * limit). -EINVAL or -EDEADLK with the first fault in err; -ENOMEM. */
int sched_check(const struct sched_plan *plan, double cap, struct sched_error *err);

/* The first part of it: every stage on a lane, every op one that its lane may have, pairs
 * well formed. */
int sched_check_ops(const struct sched_plan *plan, struct sched_error *err);

/* The most activations that a lane holds at once, in A: the model's activations of one
 * micro-batch divided by the number of lanes. In a plan without backward an op holds its
 * own while it runs. */
double sched_peak(const struct sched_plan *plan, int lane);

#endif
