/* Which lanes hand results to which. */
#ifndef PENSTOCK_SCHED_EDGES_H
#define PENSTOCK_SCHED_EDGES_H

#include "schedules/sched.h"

/* What flows from one lane to another in one direction of the model. */
struct sched_edge {
    int from, to;   /* lanes */
    bool backward;  /* gradients */
    size_t count;   /* transfers in one step */
    size_t buffers; /* received and not yet used, at most; 0 without RECV ops */
    double bytes;   /* of all transfers */
    double waited;  /* what lane `to` waits for it between its ops */
};

struct sched_edges {
    struct sched_edge *edge; /* (n) sorted by from, to, backward */
    int n;
};

/* The edges of a plan, with their counts; buffers are counted from where RECV ops and
 * those that use their results stand in the lanes. */
int sched_edges_init(struct sched_edges *edges, const struct sched_plan *plan);
void sched_edges_fini(struct sched_edges *edges);

/* The edge that brings an op's input from another lane. NULL: its input is of its own
 * lane. */
struct sched_edge *sched_edges_input(const struct sched_edges *edges,
                                     const struct sched_plan *plan,
                                     const struct sched_op *op);

#endif
