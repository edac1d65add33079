/* v-half: V placement in half of 1f1b's memory (Qi et al., Pipeline Parallelism with
 * Controllable Memory, 2024). One block of F0, F1, I1, I0 is repeated every 6 chunk
 * times, shifted from lane to lane: 2 a lane on the way down the V and 1 on the way up,
 * for forwards and gradients alike. So an activation of chunk 0 lives the shorter and one
 * of chunk 1 the longer, the further a lane is from the input, and every lane holds the
 * same. W ops fill what the block leaves free, before memory runs out. */
#include "schedules/greedy.h"
#include "schedules/list.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 6, DOWN = 2, UP = 1 };

/* When each op of micro-batch 0 is on a lane: F0, F1, I1, I0. The pauses at the turning
 * points keep the four apart modulo the period on every lane; an even number of lanes
 * needs a longer one. */
static void block_times(int times[4], int p, int lane)
{
    int pause = p % 2 ? 1 : 4, far = p - 1 - lane;
    int turn = DOWN * (p - 1) + 2;
    int top = turn + UP * (p - 1) + pause;
    int back = top + DOWN * (p - 1) + 1;

    times[0] = DOWN * lane;
    times[1] = turn + UP * far;
    times[2] = top + DOWN * lane;
    times[3] = back + UP * far;
}

/* The order of one lane's F and I. */
static void order_lane(uint32_t *order, int p, int m, int lane)
{
    const uint32_t ops[4] = {
        GREEDY_OP(lane, SCHED_F), GREEDY_OP(2 * p - 1 - lane, SCHED_F),
        GREEDY_OP(2 * p - 1 - lane, SCHED_I), GREEDY_OP(lane, SCHED_I)};
    int times[4], done[4] = {0};

    block_times(times, p, lane);
    for (int n = 0; n < 4 * m; n++) {
        int next = -1;
        for (int i = 0; i < 4; i++)
            if (done[i] < m && (next < 0 || times[i] < times[next]))
                next = i;
        order[n] = ops[next];
        times[next] += PERIOD;
        done[next]++;
    }
}

static int fill(struct sched_plan *plan, const uint32_t *order)
{
    struct greedy_rule *rule = calloc((size_t)plan->lanes, sizeof(*rule));
    struct greedy_policy policy = {.rule = rule,
                                   .cap = 2 * ((plan->lanes + 2) / 2),
                                   .split = true,
                                   .order = order,
                                   .cutoff = INFINITY};
    struct greedy g = {0};
    int rc = rule ? greedy_init(&g, plan, &sched_costs_unit) : -ENOMEM;

    for (int i = 0; i < plan->lanes && !rc; i++)
        rule[i].owed = INT_MAX;
    if (!rc)
        rc = isinf(greedy_run(&g, &policy)) ? -EDEADLK : greedy_write(&g, plan);
    greedy_fini(&g);
    free(rule);
    return rc;
}

static int v_half_make(struct sched_plan *plan, const struct sched_shape *shape,
                       struct sched_error *err)
{
    int p = shape->lanes, m = shape->micro_batches;
    uint32_t *order = malloc(4 * (size_t)p * (size_t)m * sizeof(*order));
    int rc = order ? sched_make_empty(plan, "v-half", SCHED_VEE, p, 2, m) : -ENOMEM;

    for (int lane = 0; lane < p && !rc; lane++)
        order_lane(order + 4 * (size_t)lane * (size_t)m, p, m, lane);
    if (!rc) {
        rc = fill(plan, order);
        if (rc)
            sched_plan_fini(plan);
    }
    free(order);
    return rc ? sched_fail(err, rc, -1, -1, -1, "v-half: %s", strerror(-rc)) : 0;
}

const struct schedule schedule_v_half = {
    .name = "v-half",
    .about =
        "V placement, split backward: half of 1f1b's idle time in half of its memory",
    .idle = "(p-1)(T_F+T_B)/2",
    .peak = "(p+2)//2",
    .limits = "v = 2",
    .place = SCHED_VEE,
    .chunks = 2,
    .make = v_half_make,
};
