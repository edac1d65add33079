/* zb-h1: 1f1b with the backward split; weight gradients fill the drain (Qi et al., Zero
 * Bubble, 2024). */
#include "schedules/list.h"

static void zb_h1_lane(struct sched_plan *plan, const struct sched_shape *shape, int lane)
{
    int m = shape->micro_batches, w = shape->lanes - 1 - lane;
    int done = 0; /* weight gradients */

    if (w > m)
        w = m;
    for (int f = 0; f < w; f++)
        sched_plan_add(plan, SCHED_F, lane, f);
    for (int i = 0; i < m; i++) {
        if (w + i < m)
            sched_plan_add(plan, SCHED_F, lane, w + i);
        sched_plan_add(plan, SCHED_I, lane, i);
        if (i + 1 - done > lane)
            sched_plan_add(plan, SCHED_W, lane, done++);
    }
    while (done < m)
        sched_plan_add(plan, SCHED_W, lane, done++);
}

const struct schedule schedule_zb_h1 = {
    .name = "zb-h1",
    .about = "1f1b with split backward: weight gradients fill the drain",
    .idle = "(p-1)(T_F+T_I-T_W)",
    .peak = "p",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 1,
    .lane = zb_h1_lane,
};
