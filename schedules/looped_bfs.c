/* looped-bfs: gpipe on v chunks per lane, one chunk after the other (Lamy-Poirier,
 * 2023). */
#include "schedules/list.h"

static void looped_bfs_lane(struct sched_plan *plan, const struct sched_shape *shape,
                            int lane)
{
    for (int chunk = 0; chunk < shape->chunks; chunk++)
        for (int mb = 0; mb < shape->micro_batches; mb++)
            sched_plan_add(plan, SCHED_F, chunk * shape->lanes + lane, mb);
    for (int chunk = shape->chunks - 1; chunk >= 0; chunk--)
        for (int mb = 0; mb < shape->micro_batches; mb++)
            sched_plan_add(plan, SCHED_B, chunk * shape->lanes + lane, mb);
}

const struct schedule schedule_looped_bfs = {
    .name = "looped-bfs",
    .about = "gpipe on v chunks per lane, one chunk after the other",
    .idle = "(p-1)(T_F+T_B)/v",
    .peak = "m",
    .limits = "none",
    .place = SCHED_LOOP,
    .chunks = 2,
    .any_chunks = true,
    .lane = looped_bfs_lane,
};
