/* 1f1b-eager: 1f1b with twice the warm-up, so that one hop of latency is hidden. */
#include "schedules/list.h"

static void eager_lane(struct sched_plan *plan, const struct sched_shape *shape, int lane)
{
    sched_1f1b_lane(plan, lane, 2 * (shape->lanes - 1 - lane));
}

const struct schedule schedule_1f1b_eager = {
    .name = "1f1b-eager",
    .about = "1f1b with twice the warm-up: hides a hop's latency",
    .idle = "(p-1)(T_F+T_B)",
    .peak = "min(m, 2(p-1-s)+1)",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 1,
    .lane = eager_lane,
};
