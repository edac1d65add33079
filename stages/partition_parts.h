/* What the ways to the best cut share: sums of work and bytes, and whether a lane is too full. */
#ifndef PENSTOCK_PARTITION_PARTS_H
#define PENSTOCK_PARTITION_PARTS_H

#include "stages/partition.h"

/* Numbers of equal worth that were added up in different orders. */
#define PARTITION_SAME (1 + 1e-12)

struct partition_sums {
    const struct partition_problem *p;
    double *work;       /* (layers + 1) seconds at speed 1 of the first i layers */
    double *bytes;      /* (layers + 1) of the first i layers */
    double *lane_work;  /* (lanes) whatever the cut: the embedding, the head */
    double *lane_bytes; /* (lanes) whatever the cut: the same, and what is fixed */
};

/* How good a cut is, most important first. */
struct partition_score {
    double excess;  /* bytes by which the fullest lane is over its cap, 0 if all fit */
    double slowest; /* seconds of the slowest lane */
    double squares; /* sum of the squares of the lanes' seconds */
};

double partition_speed(const struct partition_problem *p, int lane);
int partition_lane(const struct partition_problem *p, int stage);
/* Negative: that much is free; -INFINITY without a cap. */
double partition_excess(const struct partition_problem *p, int lane, double bytes);

/* -EINVAL and one line if the stages cannot share the layers. */
int partition_refuse(int stages, size_t layers);

/* Where lanes hold several stages of unequal layers: makes the cut (stages layer counts) that it is given better,
 * and as good as can be if *exact. */
int partition_search(const struct partition_sums *sums, int *count, bool *exact);

#endif
