/* zb-h2: zb-h1 with a longer warm-up, that fills the bubble at the start too (Qi et al.,
 * Zero Bubble, 2024). The lanes reach the optimizer at different times. */
#include "schedules/list.h"

static void zb_h2_lane(struct sched_plan *plan, const struct sched_shape *shape, int lane)
{
    int m = shape->micro_batches, f = 0;
    int done = 0; /* weight gradients */

    while (f < m && f < 2 * (shape->lanes - lane) - 1)
        sched_plan_add(plan, SCHED_F, lane, f++);
    for (int i = 0; i < m; i++) {
        sched_plan_add(plan, SCHED_I, lane, i);
        if (i + 1 - done > 2 * lane)
            sched_plan_add(plan, SCHED_W, lane, done++);
        if (f < m)
            sched_plan_add(plan, SCHED_F, lane, f++);
    }
    while (done < m)
        sched_plan_add(plan, SCHED_W, lane, done++);
}

const struct schedule schedule_zb_h2 = {
    .name = "zb-h2",
    .about = "zb-h1 with a longer warm-up: less idle for more memory",
    .idle = "(p-1)(T_F+T_I-2T_W) on inner lanes",
    .peak = "2p-1",
    .limits = "none; pays from m >= 2p-1; no barrier before the optimizer",
    .place = SCHED_LOOP,
    .chunks = 1,
    .lane = zb_h2_lane,
};
