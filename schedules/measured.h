/* What happened when a plan ran, in the simulator's terms: the same tables and pictures show both. */
#ifndef PENSTOCK_SCHED_MEASURED_H
#define PENSTOCK_SCHED_MEASURED_H

#include "schedules/simulate.h"

/* An op that computed, or as RECV_F or RECV_B the transfer of what a stage received. */
struct sched_ran {
    struct sched_op op;
    struct sched_span span; /* on any clock */
};

/* sim: spans, waits, edges and sums of a plan that ran, time 0 being the first op's start; ran (n) in any order. As
 * simulated, but that arrival stays 0. -EINVAL (err) if an op of the plan that computes is missing, -ENOMEM. */
int sched_measured(struct sched_sim *sim, const struct sched_plan *plan,
                   const struct sched_ran *ran, size_t n, struct sched_error *err);

/* Share of the lanes' time in which a lane waited though everything it waited for had been computed: for transfers, and
 * for whoever starts ops. */
double sched_exposed(const struct sched_sim *sim, const struct sched_plan *plan);

#endif
