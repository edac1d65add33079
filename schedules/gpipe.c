/* gpipe: all forwards, then all backwards (Huang et al., 2019). */
#include "schedules/list.h"

static void gpipe_lane(struct sched_plan *plan, const struct sched_shape *shape, int lane)
{
    for (int mb = 0; mb < shape->micro_batches; mb++)
        sched_plan_add(plan, SCHED_F, lane, mb);
    for (int mb = 0; mb < shape->micro_batches; mb++)
        sched_plan_add(plan, SCHED_B, lane, mb);
}

const struct schedule schedule_gpipe = {
    .name = "gpipe",
    .about = "all forwards, then all backwards",
    .idle = "(p-1)(T_F+T_B)",
    .peak = "m",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 1,
    .lane = gpipe_lane,
};
