/* forward: inference. Every lane takes the micro-batches in turn. */
#include "schedules/sched.h"

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
    for (int mb = 0; mb < micro_batches && !rc; mb++)
        for (int s = 0; s < stages && !rc; s++)
            rc = sched_plan_add(plan, SCHED_F, s, mb);
    if (rc)
        sched_plan_fini(plan);
    return rc;
}
