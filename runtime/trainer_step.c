/* A training plan as tasks: every op runs a stage forward or backward, every hop carries activations or
 * gradients. */
#include <errno.h>

#include "runtime/trainer.h"

static struct trainer *trainer_of(const struct step *s)
{
    return (struct trainer *)s->engine;
}

static struct trainer_stage *stage_of(const struct op_task *o)
{
    return &trainer_of(o->step)->stages[o->place];
}

static int place_of(const struct step *s, struct sched_op op)
{
    return sched_plan_place(s->plan, op.stage, op.mb);
}

static const struct train_batch *batch_of(const struct op_task *o)
{
    return ((struct train_batch **)o->step->work)[o->op.mb];
}

static int take(struct buffer_pool *p, int mb)
{
    int i = p->queue[p->head];
    p->head = (p->head + 1) % p->n;
    p->count--;
    p->of[mb] = i;
    return i;
}

/* Gives back what a micro-batch has, and tells what it was. */
static int give(struct buffer_pool *p, int mb)
{
    int i = p->of[mb];
    p->queue[(p->head + p->count++) % p->n] = i;
    p->of[mb] = -1;
    return i;
}

static size_t bytes_of(const struct op_task *o)
{
    const struct stage *s = stage_of(o)->stage;
    return batch_of(o)->rows * s->config->C *
           dtype_block_bytes(o->step->engine->lanes->lanes[o->lane].ctx->dtype);
}

/* rows * C values of the lane's type. */
static struct op_array rows_of(const struct op_task *o, void *x)
{
    return (struct op_array){x, batch_of(o)->rows * stage_of(o)->stage->config->C,
                             o->step->engine->lanes->lanes[o->lane].ctx->dtype};
}

static struct op_array grads_of(const struct op_task *o)
{
    const struct train_stage *t = stage_of(o)->train;
    return (struct op_array){t->grad, t->stage->params.elements, DTYPE_F32};
}

/* A previous stage's output on the same lane becomes this stage's input. */
static void copy_input(struct op_task *o, const void *x)
{
    struct train_stage *t = stage_of(o)->train;
    int C = (int)t->stage->config->C;
    t->ops->copy_rows(t->stage->ctx, t->slots[o->slot].layers[0].x, x, batch_of(o)->rows,
                      C, C, C);
}

static int forward(struct op_task *o)
{
    struct trainer_stage *s = stage_of(o);

    if (o->op.stage && !s->forward)
        copy_input(o, s[-1].y.x[o->in]);
    bool last = o->op.stage == o->step->plan->stages - 1;
    return train_forward(s->train, batch_of(o), o->slot, last ? NULL : s->y.x[o->out]);
}

static int backward(struct op_task *o)
{
    struct trainer_stage *s = stage_of(o);
    int stage = o->op.stage, last = o->step->plan->stages - 1;
    int what = o->op.kind == SCHED_W   ? TRAIN_WEIGHT
               : o->op.kind == SCHED_I ? TRAIN_INPUT
                                       : TRAIN_INPUT | TRAIN_WEIGHT;
    void *dy = NULL;

    if (stage < last && (what & TRAIN_INPUT))
        dy = s->backward ? s->dy.x[o->in] : s[1].dx.x[o->in];
    return train_backward(s->train, batch_of(o), o->slot, o->grad_slot, dy,
                          stage ? s->dx.x[o->out] : NULL, what);
}

static int receive_forward(struct op_task *o)
{
    struct trainer_stage *s = stage_of(o);
    return link_enqueue(o->link, s->train->slots[o->slot].layers[0].x, s[-1].y.x[o->in],
                        bytes_of(o));
}

static int receive_backward(struct op_task *o)
{
    struct trainer_stage *s = stage_of(o);
    return link_enqueue(o->link, s->dy.x[o->out], s[1].dx.x[o->in], bytes_of(o));
}

/* The hop that fills the slot of stage op.stage from buffer `in` of the previous stage. */
static int submit_receive_forward(struct step *step, struct sched_op op, int slot, int in)
{
    struct trainer *t = trainer_of(step);
    int place = place_of(step, op);
    struct trainer_stage *s = &t->stages[place];
    struct op_task *o = step_op(
        step, (struct sched_op){.kind = SCHED_RECV_F, .stage = op.stage, .mb = op.mb});
    struct task_use uses[2] = {{s[-1].y.data[in], false}, {s->slots.data[slot], true}};
    o->slot = slot;
    o->in = in;
    return step_transfer(o, "RECV_F", s->forward, receive_forward, uses, 2);
}

/* The hop that fills buffer `out` of the stage's dy from buffer `in` of the next stage. */
static int submit_receive_backward(struct step *step, struct sched_op op, int in, int out)
{
    struct trainer *t = trainer_of(step);
    int place = place_of(step, op);
    struct trainer_stage *s = &t->stages[place];
    struct op_task *o = step_op(
        step, (struct sched_op){.kind = SCHED_RECV_B, .stage = op.stage, .mb = op.mb});
    struct task_use uses[2] = {{s[1].dx.data[in], false}, {s->dy.data[out], true}};
    o->in = in;
    o->out = out;
    return step_transfer(o, "RECV_B", s->backward, receive_backward, uses, 2);
}

static int submit_forward(struct step *step, struct sched_op op)
{
    struct trainer *t = trainer_of(step);
    int place = place_of(step, op);
    struct trainer_stage *s = &t->stages[place];
    bool last = op.stage == step->plan->stages - 1;
    int slot = take(&s->slots, op.mb), in = op.stage ? give(&s[-1].y, op.mb) : 0;
    int out = last ? 0 : take(&s->y, op.mb), n = 0, err = 0;
    struct task_use uses[3];

    if (s->forward)
        err = submit_receive_forward(step, op, slot, in);
    else if (op.stage)
        uses[n++] = (struct task_use){s[-1].y.data[in], false};
    if (err)
        return err;
    struct op_task *o = step_op(step, op);
    o->slot = slot;
    o->in = in;
    o->out = out;
    o->wrote[0] = rows_of(o, last ? s->train->slots[slot].out : s->y.x[out]);
    uses[n++] = (struct task_use){s->slots.data[slot], true};
    if (!last)
        uses[n++] = (struct task_use){s->y.data[out], true};
    return step_compute(o, forward, uses, n);
}

/* B or I: the gradient of the output comes in, that of the input goes out. */
static int submit_input(struct step *step, struct sched_op op)
{
    struct trainer *t = trainer_of(step);
    int place = place_of(step, op);
    struct trainer_stage *s = &t->stages[place];
    bool last = op.stage == step->plan->stages - 1;
    int grad = take(&s->grads, op.mb), in = last ? 0 : give(&s[1].dx, op.mb), n = 0,
        err = 0;
    struct task_use uses[6];

    if (!last && s->backward) {
        int received = take(&s->dy, op.mb);
        err = submit_receive_backward(step, op, in, received);
        in = give(&s->dy, op.mb);
        uses[n++] = (struct task_use){s->dy.data[in], true};
    } else if (!last) {
        uses[n++] = (struct task_use){s[1].dx.data[in], false};
    }
    if (err)
        return err;
    struct op_task *o = step_op(step, op);
    o->slot = s->slots.of[op.mb];
    o->grad_slot = grad;
    o->in = in;
    o->results = last;
    uses[n++] = (struct task_use){s->slots.data[o->slot], true};
    uses[n++] = (struct task_use){s->grads.data[grad], true};
    if (!s->second)
        uses[n++] = (struct task_use){s->sums, true};
    if (op.stage) {
        o->out = take(&s->dx, op.mb);
        uses[n++] = (struct task_use){s->dx.data[o->out], true};
        o->wrote[0] = rows_of(o, s->dx.x[o->out]);
    }
    if (op.kind == SCHED_B) {
        o->wrote[1] = grads_of(o);
        give(&s->slots, op.mb);
        give(&s->grads, op.mb);
    }
    return step_compute(o, backward, uses, n);
}

static int submit_weight(struct step *step, struct sched_op op)
{
    struct trainer_stage *s = &trainer_of(step)->stages[place_of(step, op)];
    struct op_task *o = step_op(step, op);
    o->slot = give(&s->slots, op.mb);
    o->grad_slot = give(&s->grads, op.mb);
    o->wrote[1] = grads_of(o);
    struct task_use uses[3] = {{s->slots.data[o->slot], true},
                               {s->grads.data[o->grad_slot], true},
                               {s->sums, true}};
    return step_compute(o, backward, uses, 3);
}

/* Adds one to a pool's users, or takes one away; n remembers the most. */
static void count(struct buffer_pool *p, int change)
{
    p->count += change;
    p->n = p->count > p->n ? p->count : p->n;
}

/* For sched_walk: what trainer_begin will take and give; a second copy's W come when all is walked. */
static int count_op(void *user, int lane, size_t index)
{
    struct trainer *t = user;
    struct sched_op op = t->config.plan->lane[lane].ops[index];
    struct trainer_stage *s =
        &t->stages[sched_plan_place(t->config.plan, op.stage, op.mb)];
    bool last = op.stage == t->config.plan->stages - 1;

    if (op.kind == SCHED_F) {
        count(&s->slots, 1);
        if (op.stage)
            count(&s[-1].y, -1);
        if (!last)
            count(&s->y, 1);
    } else if (op.kind == SCHED_B || op.kind == SCHED_I) {
        count(&s->grads, 1);
        if (!last)
            count(&s[1].dx, -1);
        if (op.stage)
            count(&s->dx, 1);
    }
    if (op.kind == SCHED_B || (op.kind == SCHED_W && !s->second)) {
        count(&s->slots, -1);
        count(&s->grads, -1);
    }
    s->splits |= op.kind == SCHED_I;
    return 0;
}

/* Buffers where n are in use at once: one more if it pays, but not more than there are micro-batches. */
static int one_more(const struct trainer *t, int n, bool pays)
{
    return pays && n < t->config.plan->micro_batches ? n + 1 : n;
}

int trainer_count(struct trainer *t)
{
    const struct sched_plan *plan = t->config.plan;
    struct sched_error why = {.text = ""};
    int err = sched_walk(plan, count_op, t, &why);
    if (err)
        log_error("%s", why.text);
    for (int i = 0; i < plan->copies * plan->stages; i++) {
        struct trainer_stage *s = &t->stages[i];
        int stage = i % plan->stages;
        if (!s->second) /* that has one for each micro-batch */
            s->slots.n =
                one_more(t, s->slots.n, stage > 0); /* a hop fills it meanwhile */
        s->y.n = one_more(t, s->y.n, s->y.n > 0);
        s->dx.n = one_more(t, s->dx.n, s->dx.n > 0);
        s->dy.n = stage < plan->stages - 1 ? one_more(t, 1, true) : 0;
    }
    return err;
}

int trainer_submit(struct step *s, struct sched_op op)
{
    switch (op.kind) {
    case SCHED_F:
        return submit_forward(s, op);
    case SCHED_B:
    case SCHED_I:
        return submit_input(s, op);
    default: /* see submit_late */
        return trainer_of(s)->stages[place_of(s, op)].second ? 0 : submit_weight(s, op);
    }
}

static int receive_sums(struct op_task *o)
{
    return trainer_send_sums(trainer_of(o->step), o->place);
}

/* The first copy's sums come to the second, when they are complete. */
static int submit_sums(struct step *step, struct sched_op op)
{
    struct trainer *t = trainer_of(step);
    struct op_task *o = step_op(
        step, (struct sched_op){.kind = SCHED_STEP, .stage = op.stage, .mb = op.mb});
    struct task_use uses[2] = {{t->stages[op.stage].sums, false},
                               {t->stages[o->place].sums, true}};
    return step_transfer(o, "the gradients", t->stages[o->place].out, receive_sums, uses,
                         2);
}

/* The second copy's W, and the sums before the first of every stage. In the lanes' order, behind all else. */
static int submit_late(struct step *step)
{
    const struct sched_plan *plan = step->plan;
    int err = 0;

    for (int l = 0; l < plan->lanes; l++)
        for (size_t i = 0; i < plan->lane[l].n && !err; i++) {
            struct sched_op op = plan->lane[l].ops[i];
            if (op.kind != SCHED_W || place_of(step, op) < plan->stages)
                continue;
            if (sched_plan_place(plan, op.stage, op.mb - 1) < plan->stages)
                err = submit_sums(step, op);
            if (!err)
                err = submit_weight(step, op);
        }
    return err;
}

int trainer_begin(struct trainer *t, struct train_batch **batches, struct step **out)
{
    int err = engine_step(&t->engine, t->config.plan, batches, 0, out);

    if (err)
        return err;
    err = submit_late(*out);
    if (err) {
        engine_fail(&t->engine, err);
        step_end(*out);
        return err;
    }
    fault_check(*out);
    return 0;
}

int trainer_step(struct trainer *t, struct train_batch **batches)
{
    struct step *step;
    int err = trainer_begin(t, batches, &step);
    int ended;

    if (err)
        return err;
    for (int mb = 0; mb < t->config.plan->micro_batches && !err; mb++) {
        err = step_wait(step, mb);
        if (!err && *batches[mb]->bad) {
            err = -EDOM;
            engine_fail(&t->engine, err);
        }
    }
    ended = step_end(step);
    err = err ? err : ended;
    return err ? err : trainer_return_sums(t);
}
