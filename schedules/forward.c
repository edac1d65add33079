/* forward: inference. Every lane takes the micro-batches in turn. */
#include "schedules/list.h"

#include <errno.h>
#include <string.h>

/* The largest number of stages that one lane owns. */
static int most_stages(const struct sched_plan *plan)
{
    int most = 0;

    for (int lane = 0; lane < plan->lanes; lane++) {
        int n = 0;
        for (int s = 0; s < plan->stages; s++)
            n += plan->stage_lane[s] == lane;
        most = n > most ? n : most;
    }
    return most;
}

int sched_forward(struct sched_plan *plan, int lanes, int stages, const int *stage_lane,
                  int micro_batches)
{
    int rc = sched_plan_init(plan, "forward", lanes, stages, micro_batches);

    if (rc)
        return rc;
    memcpy(plan->stage_lane, stage_lane, (size_t)stages * sizeof(*stage_lane));
    plan->chunks = most_stages(plan);
    for (int mb = 0; mb < micro_batches; mb++)
        for (int s = 0; s < stages; s++)
            sched_plan_add(plan, SCHED_F, s, mb);
    rc = plan->rc;
    if (rc)
        sched_plan_fini(plan);
    return rc;
}

/* With several chunks a lane takes the micro-batches in groups through its chunks in
 * turn, as interleaved does, or the first chunk would wait for every micro-batch to come
 * round. */
static void forward_lane(struct sched_plan *plan, const struct sched_shape *shape,
                         int lane)
{
    int m = shape->micro_batches, g = shape->group;

    for (int first = 0; first < m; first += g)
        for (int chunk = 0; chunk < shape->chunks; chunk++)
            for (int mb = first; mb < m && mb < first + g; mb++)
                sched_plan_add(plan, SCHED_F, chunk * shape->lanes + lane, mb);
}

const struct schedule schedule_forward = {
    .name = "forward",
    .about = "inference: forwards only",
    .idle = "(p-1)T_F",
    .peak = "1 per op in flight",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 1,
    .any_chunks = true,
    .forward_only = true,
    .lane = forward_lane,
};
