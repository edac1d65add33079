/* 1f1b: one forward, one backward, after a warm-up as long as the way to the last lane
 * (PipeDream-Flush, Narayanan et al., 2021). */
#include "schedules/list.h"

void sched_1f1b_lane(struct sched_plan *plan, int lane, int warmup)
{
    int m = plan->micro_batches, w = warmup < m ? warmup : m;

    for (int f = 0; f < w; f++)
        sched_plan_add(plan, SCHED_F, lane, f);
    for (int b = 0; b < m - w; b++) {
        sched_plan_add(plan, SCHED_F, lane, w + b);
        sched_plan_add(plan, SCHED_B, lane, b);
    }
    for (int b = m - w; b < m; b++)
        sched_plan_add(plan, SCHED_B, lane, b);
}

static void one_f_one_b_lane(struct sched_plan *plan, const struct sched_shape *shape,
                             int lane)
{
    sched_1f1b_lane(plan, lane, shape->lanes - 1 - lane);
}

const struct schedule schedule_1f1b = {
    .name = "1f1b",
    .about = "one forward, one backward: gpipe's time in less memory",
    .idle = "(p-1)(T_F+T_B)",
    .peak = "min(m, p-s)",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 1,
    .lane = one_f_one_b_lane,
};
