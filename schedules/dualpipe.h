/* The order that DualPipe and DualPipeV share. */
#ifndef PENSTOCK_SCHED_DUALPIPE_H
#define PENSTOCK_SCHED_DUALPIPE_H

#include "schedules/sched.h"

/* One lane's two streams of micro-batches. Stream 0 enters the pipeline near this lane,
 * stream 1 comes back to it from the turning point. */
struct dualpipe_lane {
    struct sched_plan *plan;
    int depth;    /* lanes from where a stream enters to the turning point */
    int rank;     /* this lane, counted from where stream 0 enters */
    int count;    /* micro-batches of a stream */
    int stage[2]; /* of a stream on this lane */
    int first[2]; /* first micro-batch of a stream */
};

/* Adds the lane's ops. count >= 2 * depth. */
void sched_dualpipe_lane(const struct dualpipe_lane *lane);

#endif
