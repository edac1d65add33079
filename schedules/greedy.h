/* Builds a plan op by op, in time: whenever a lane is free, a policy picks one of the ops
 * that it could start. Micro-batches keep their order in every stage. */
#ifndef PENSTOCK_SCHED_GREEDY_H
#define PENSTOCK_SCHED_GREEDY_H

#include "schedules/costs.h"
#include "schedules/sched.h"

/* A stage of one copy of the weights. */
struct greedy_stage {
    int stage, lane, chunk;     /* chunk: its place among the lane's stages */
    int first, count;           /* micro-batches that it serves */
    int next, before;           /* neighbours in the model, -1: none */
    double f, i, w, b;          /* times of its ops */
    double to_next, to_before;  /* hops */
    double *input, *gradient;   /* (count) when they arrive; unknown: infinity */
    int f_done, i_done, w_done; /* begun, that is; i counts B too */
};

/* How one lane chooses. */
struct greedy_rule {
    double patience; /* wait for a better op that comes within this share of the time of
                        the one at hand */
    int owed;        /* W that may be owed before W goes first */
    bool forward_first;        /* F before I */
    bool deepest_f, deepest_i; /* among the lane's stages the deepest first, else the
                                  oldest micro-batch */
};

struct greedy_policy {
    const struct greedy_rule *rule; /* (lanes) */
    const int *limit;      /* (stages of all copies) most micro-batches between F and I;
                         NULL: any number */
    int cap;               /* most chunks of activations on a lane */
    bool split;            /* I and W instead of B */
    const uint32_t *order; /* (F and I of all) GREEDY_OPs, lane by lane, in this order.
                              NULL: free */
    double cutoff;         /* give up when the makespan is sure to be longer */
};

struct greedy {
    int lanes, stages, micro_batches, all; /* all: stages of all copies */
    struct greedy_stage *stage;            /* (all), copy by copy */
    int *lane_first, *lane_stage; /* (lanes + 1), (all): each lane's stages, the deepest
                                     last */
    double *times;                /* behind input and gradient */
    double *free_at, *wake;       /* (lanes) when it is free; when it decides next */
    double *left;                 /* (lanes) time of the ops that it has still to begin */
    double *first_wake;           /* (blocks of lanes) the earliest wake */
    int *alive, *owing;           /* (lanes) activations held, W owed */
    uint32_t *ops;                /* (count) what was built: GREEDY_OPs, lane by lane */
    size_t *op_first;             /* (lanes + 1) where a lane's ops begin */
    size_t *op_n, *order_at;      /* (lanes) ops built; place in the given order */
    size_t count;                 /* ops of the whole plan, backwards split */
    size_t built;                 /* ops begun by the last run */
};

/* An op as greedy stores it: index of the stage among all, times 4, and the kind. */
#define GREEDY_OP(stage, kind) ((uint32_t)(stage) << 2 | (uint32_t)(kind))

/* For the lanes, stages and micro-batches of a plan; its ops do not matter. */
int greedy_init(struct greedy *g, const struct sched_plan *plan,
                const struct sched_costs *costs);
void greedy_fini(struct greedy *g);

/* Makespan of what the policy builds. Infinity if it gets stuck or passes the cutoff. */
double greedy_run(struct greedy *g, const struct greedy_policy *policy);

/* Replaces a plan's ops by those that were built last. */
int greedy_write(struct greedy *g, struct sched_plan *plan);

#endif
