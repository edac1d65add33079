/* Plans of two copies of the weights as they are trained: the second copy's weight gradients
 * come last. */
#include "schedules/sched.h"

static bool is_second(const struct sched_plan *plan, const struct sched_op *op)
{
    return sched_plan_place(plan, op->stage, op->mb) >= plan->stages;
}

/* The lane's ops but for the second copy's W; its B become I. */
static int push_first(struct sched_plan *late, const struct sched_plan *plan, int lane)
{
    const struct sched_lane *l = &plan->lane[lane];
    int rc = 0;

    for (size_t i = 0; i < l->n && !rc; i++) {
        struct sched_op op = l->ops[i];
        if (!sched_kind_computes(op.kind))
            continue;
        if (is_second(plan, &op) && op.kind == SCHED_W)
            continue;
        if (is_second(plan, &op) && op.kind == SCHED_B)
            op.kind = SCHED_I;
        rc = sched_plan_push(late, lane, op);
    }
    return rc;
}

/* W of the second copy, stage by stage, micro-batches ascending. */
static void add_last(struct sched_plan *late, const struct sched_plan *plan)
{
    for (int s = 0; s < plan->stages; s++)
        for (int mb = 0; mb < plan->micro_batches; mb++)
            if (sched_plan_place(plan, s, mb) >= plan->stages)
                sched_plan_add(late, SCHED_W, s, mb);
}

int sched_plan_late(struct sched_plan *plan)
{
    struct sched_plan late;
    int rc;

    if (plan->micro_batches == 1)
        plan->copies = 1;
    if (plan->copies == 1)
        return 0;
    rc = sched_plan_copy(&late, plan);
    if (rc)
        return rc;
    for (int lane = 0; lane < plan->lanes && !rc; lane++) {
        late.lane[lane].n = 0;
        rc = push_first(&late, plan, lane);
    }
    if (!rc) {
        add_last(&late, plan);
        rc = late.rc;
    }
    if (rc) {
        sched_plan_fini(&late);
        return rc;
    }
    sched_plan_fini(plan);
    *plan = late;
    return 0;
}
