/* When everything in a plan happens, for given costs. */
#ifndef PENSTOCK_SCHED_SIMULATE_H
#define PENSTOCK_SCHED_SIMULATE_H

#include "schedules/costs.h"
#include "schedules/edges.h"
#include "schedules/sched.h"

struct sched_span {
    double start, end;
};

struct sched_lane_sim {
    /* (n) of the lane's ops. RECV: the transfer; SEND: a moment. */
    struct sched_span *span;
    double busy, idle;       /* idle = warmup + waiting + drain, all up to the makespan */
    double warmup;           /* until its first op begins */
    double waiting;          /* between its first and its last op: for transfers */
    double drain;            /* behind its last op */
    double peak;             /* activations, in A */
    struct sched_op longest; /* the op before which it waits longest */
    double longest_wait;
    int longest_from; /* the lane it waits for then; -1: it never waits */
};

/* A result on its way between two lanes. */
struct sched_transfer {
    int edge;           /* of sched_sim's edges */
    struct sched_op op; /* that takes it */
    struct sched_span span;
};

struct sched_sim {
    double makespan;
    double bubble;               /* idle / (lanes x makespan) */
    struct sched_lane_sim *lane; /* (lanes) */
    int lanes;
    struct sched_edges edges; /* with their waits, and bytes */
    struct sched_transfer *transfer; /* (transfers) */
    int transfers;
    struct sched_span *spans; /* of all lanes, one behind the other */
    struct sched_cost *cost;  /* (stages) */
    double *arrival;          /* (micro_batches, stages, 2) of the inputs of F and B */
};

/* Everything 0, with room for the plan; for what fills it in. -ENOMEM. */
int sched_sim_init(struct sched_sim *sim, const struct sched_plan *plan);

/* An op starts when its lane is free and its inputs have arrived; an F&B pair is one op.
 * SEND and RECV ops take no time: a transfer begins when its result is there. -EDEADLK,
 * -EINVAL (err), -ENOMEM. */
int sched_simulate(struct sched_sim *sim, const struct sched_plan *plan,
                   const struct sched_costs *costs, struct sched_error *err);
void sched_sim_fini(struct sched_sim *sim);

/* Notes what brings an op its input, if it comes from another lane. */
void sched_sim_add_transfer(struct sched_sim *sim, const struct sched_plan *plan,
                            const struct sched_op *op, struct sched_span span);

/* Makespan, idle, drain, bubble and peaks, from busy, warmup and what is given here: (lanes) when each lane's last op
 * ended. */
void sched_sim_sum_up(struct sched_sim *sim, const struct sched_plan *plan,
                      const double *last);

#endif
