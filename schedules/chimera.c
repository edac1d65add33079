/* chimera: micro-batches enter at both ends, on two copies of the weights; the forwards
 * of one direction stand in the gaps of the other (Li and Hoefler, 2021). */
#include "schedules/list.h"

#include <errno.h>

/* A unit is p micro-batches, half of them in each direction, and takes 2p slots of a
 * lane, one for each op. In the slots of one parity a lane does forwards of one copy and
 * then backwards of the other; the slots of the other parity are the mirror image. k
 * counts the slots of one parity. */
static void add_slot(struct sched_plan *plan, int lane, int forward, int k)
{
    int p = plan->lanes, half = p / 2, m = plan->micro_batches;
    int first[2] = {0, (m + 1) / 2}, count[2] = {(m + 1) / 2, m / 2};
    bool back = k % p >= half;
    int copy = back ? 1 - forward : forward;
    int mb = k / p * half + k % half;
    int stage = copy ? p - 1 - lane : lane;

    if (mb < count[copy])
        sched_plan_add(plan, back ? SCHED_B : SCHED_F, stage, first[copy] + mb);
}

static void chimera_lane(struct sched_plan *plan, const struct sched_shape *shape,
                         int lane)
{
    int p = shape->lanes, units = (shape->micro_batches - 1) / p + 1;
    int far = p - 1 - lane;

    for (int64_t slot = 0; slot < (int64_t)2 * p * units + p; slot++) {
        bool mirror = (slot - lane) % 2;
        int64_t since = slot - (mirror ? far : lane);
        if (since >= 0 && since / 2 < (int64_t)p * units)
            add_slot(plan, lane, mirror, (int)(since / 2));
    }
}

static int chimera_refuse(const struct sched_shape *shape, struct sched_error *err)
{
    if (shape->lanes % 2 == 0)
        return 0;
    return sched_fail(err, -EINVAL, -1, -1, -1,
                      "chimera: the number of lanes must be even, not %d", shape->lanes);
}

const struct schedule schedule_chimera = {
    .name = "chimera",
    .about = "both directions on two copies of the weights, one in the gaps of the other",
    .idle = "(p-2)(T_F+T_B/2) for T_F < T_B and m = p",
    .peak = "<= p",
    .limits = "p even",
    .place = SCHED_TWO_WAY,
    .chunks = 1,
    .refuse = chimera_refuse,
    .lane = chimera_lane,
};
