/* Transfers between lanes as explicit SEND and RECV ops. */
#include "schedules/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool op_is_comm(const struct sched_op *op)
{
    return op->kind >= SCHED_SEND_F && op->kind <= SCHED_RECV_B;
}

void sched_comm_remove(struct sched_plan *plan)
{
    for (int i = 0; i < plan->lanes; i++) {
        struct sched_lane *l = &plan->lane[i];
        size_t kept = 0;
        for (size_t k = 0; k < l->n; k++)
            if (!op_is_comm(&l->ops[k]))
                l->ops[kept++] = l->ops[k];
        l->n = kept;
    }
}

/* The plan without transfers, and the same with them as far as the walk has come. */
struct insertion {
    const struct sched_plan *from;
    struct sched_plan to; /* only its lanes' ops are its own */
};

/* Adds the transfer of an op's result, if another lane reads it. The walk visits in an
 * order in which the whole plan could run on one processor, and both sides take the
 * transfer here: so all lanes agree. */
static int insert_transfer(struct insertion *in, int lane, const struct sched_op *op)
{
    bool forward = op->kind == SCHED_F;
    int stage = op->stage + (forward ? 1 : -1);
    int peer = sched_plan_lane(in->from, stage, op->mb);
    struct sched_op send = {.kind = forward ? SCHED_SEND_F : SCHED_SEND_B,
                            .peer = (uint16_t)peer,
                            .stage = op->stage,
                            .mb = op->mb};
    struct sched_op recv = {.kind = forward ? SCHED_RECV_F : SCHED_RECV_B,
                            .peer = (uint16_t)lane,
                            .stage = stage,
                            .mb = op->mb};
    int rc;

    if (op->kind == SCHED_W || op->kind == SCHED_STEP || peer < 0 || peer == lane)
        return 0;
    rc = sched_plan_push(&in->to, lane, send);
    return rc ? rc : sched_plan_push(&in->to, peer, recv);
}

static int insert_visit(void *user, int lane, size_t index)
{
    struct insertion *in = user;
    const struct sched_op *op = &in->from->lane[lane].ops[index];
    bool second = index && op[-1].pair;
    int rc = sched_plan_push(&in->to, lane, *op);

    /* Nothing may stand between the two ops of a pair. */
    if (rc || (op->pair && index + 1 < in->from->lane[lane].n))
        return rc;
    if (second)
        rc = insert_transfer(in, lane, op - 1);
    return rc ? rc : insert_transfer(in, lane, op);
}

/* A training plan without backward ops of a stage would leave its gradients unread:
 * sched_check's work. */
int sched_comm_insert(struct sched_plan *plan, struct sched_error *err)
{
    struct insertion in = {.from = plan, .to = *plan};
    struct sched_lane *without = plan->lane;
    int rc;

    sched_comm_remove(plan);
    in.to.lane = calloc((size_t)plan->lanes, sizeof(*in.to.lane));
    if (!in.to.lane)
        return sched_fail(err, -ENOMEM, -1, -1, -1, "out of memory");
    rc = sched_walk(plan, insert_visit, &in, err);
    if (rc == -ENOMEM)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    if (!rc) {
        plan->lane = in.to.lane;
        in.to.lane = without;
    }
    for (int i = 0; i < plan->lanes; i++)
        free(in.to.lane[i].ops);
    free(in.to.lane);
    return rc;
}
