/* dualpipe: micro-batches enter at both ends, on two copies of the weights, and forwards
 * of one direction are fused with backwards of the other (DeepSeek-V3, 2024). */
#include "schedules/dualpipe.h"
#include "schedules/list.h"

#include <errno.h>

/* A lane of the second half does what its mirror image does, with the directions
 * exchanged. */
static void dualpipe_lane(struct sched_plan *plan, const struct sched_shape *shape,
                          int lane)
{
    int p = shape->lanes, half = shape->micro_batches / 2;
    bool far = lane >= p / 2;
    struct dualpipe_lane l = {.plan = plan,
                              .depth = p / 2,
                              .rank = far ? p - 1 - lane : lane,
                              .count = half,
                              .stage = {lane, p - 1 - lane},
                              .first = {0, half}};

    if (far) {
        l.stage[0] = p - 1 - lane;
        l.stage[1] = lane;
        l.first[0] = half;
        l.first[1] = 0;
    }
    sched_dualpipe_lane(&l);
}

static int dualpipe_refuse(const struct sched_shape *shape, struct sched_error *err)
{
    if (shape->lanes % 2)
        return sched_fail(err, -EINVAL, -1, -1, -1,
                          "dualpipe: the number of lanes must be even, not %d",
                          shape->lanes);
    if (shape->micro_batches % 2 || shape->micro_batches < 2 * shape->lanes)
        return sched_fail(
            err, -EINVAL, -1, -1, -1,
            "dualpipe: %d lanes need an even number of at least %d micro-batches, "
            "not %d",
            shape->lanes, 2 * shape->lanes, shape->micro_batches);
    return 0;
}

const struct schedule schedule_dualpipe = {
    .name = "dualpipe",
    .about = "both directions on two copies of the weights, F of one fused with B of the "
             "other",
    .idle = "depends on the gain of F&B",
    .peak = "p+1",
    .limits = "p even, m even, m >= 2p",
    .place = SCHED_TWO_WAY,
    .chunks = 1,
    .refuse = dualpipe_refuse,
    .lane = dualpipe_lane,
};
