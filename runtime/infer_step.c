/* A plan of forward ops as tasks: every op runs a stage, every hop carries hidden states or tokens. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/infer.h"

static struct infer *infer_of(const struct step *s)
{
    return (struct infer *)s->engine;
}

static struct batch *batch_of(const struct op_task *o)
{
    return ((struct batch **)o->step->work)[o->op.mb];
}

static int forward(struct op_task *o)
{
    struct infer *f = infer_of(o->step);
    return stage_forward(f->stages[o->op.stage], batch_of(o),
                         f->rings[f->ring_of[o->op.stage]].x[o->slot]);
}

static int receive(struct op_task *o)
{
    struct infer *f = infer_of(o->step);
    int s = o->op.stage;
    size_t row = f->config.model->config.C *
                 dtype_block_bytes(engine_lane(&f->engine, s)->ctx->dtype);
    return link_enqueue(o->link, f->rings[s].x[o->slot],
                        f->rings[f->ring_of[s - 1]].x[o->slot], batch_of(o)->rows * row);
}

static int receive_tokens(struct op_task *o)
{
    struct infer *f = infer_of(o->step);
    const struct batch *b = batch_of(o);
    return link_enqueue(o->link, f->stages[0]->tokens + b->slot_first,
                        f->stages[f->config.n_stages - 1]->tokens + b->slot_first,
                        b->slot_count * sizeof(int32_t));
}

static struct op_task *new_op(struct step *s, int kind, int stage, int mb)
{
    struct op_task *o =
        step_op(s, (struct sched_op){.kind = kind, .stage = stage, .mb = mb});
    o->slot = (int)((s->pass + mb) % INFER_RING);
    return o;
}

/* Hidden states from the previous stage's lane. */
static int submit_receive(struct step *s, int stage, int mb)
{
    struct infer *f = infer_of(s);
    struct op_task *o = new_op(s, SCHED_RECV_F, stage, mb);
    struct task_use uses[2] = {
        {f->rings[f->ring_of[stage - 1]].data[o->slot], false},
        {f->rings[stage].data[o->slot], true},
    };
    return step_transfer(o, "RECV_F", f->links[stage], receive, uses, 2);
}

/* Tokens of the batch's groups from the last stage to the first. */
static int submit_tokens(struct step *s, int mb)
{
    struct infer *f = infer_of(s);
    struct op_task *o = new_op(s, SCHED_RECV_F, 0, mb);
    const struct batch *b = batch_of(o);
    struct task_use *uses = calloc(2 * b->group_count, sizeof(*uses));
    if (!uses)
        return log_no_memory("a task");
    for (int i = 0; i < b->group_count; i++) {
        uses[2 * i] = (struct task_use){f->drawn[b->group_first + i], false};
        uses[2 * i + 1] = (struct task_use){f->taken[b->group_first + i], true};
    }
    int err = step_transfer(o, "the tokens", f->tokens_link, receive_tokens, uses,
                            2 * b->group_count);
    free(uses);
    return err;
}

static int submit_forward(struct step *s, int stage, int mb)
{
    struct infer *f = infer_of(s);
    struct op_task *o = new_op(s, SCHED_F, stage, mb);
    const struct batch *b = batch_of(o);
    bool last = stage == f->config.n_stages - 1, draws = last && b->goal == BATCH_SAMPLE;
    struct task_use *uses = calloc(1 + 3 * b->group_count, sizeof(*uses));
    int n = 0;

    if (!uses)
        return log_no_memory("a task");
    o->results = last;
    uses[n++] = (struct task_use){f->rings[f->ring_of[stage]].data[o->slot], true};
    for (int i = 0; i < b->group_count; i++) {
        int g = b->group_first + i;
        uses[n++] = (struct task_use){f->kv[stage * f->config.groups + g], true};
        if (draws)
            uses[n++] = (struct task_use){f->drawn[g], true};
        if (stage == 0 && b->decode && !(draws && f->taken[g] == f->drawn[g]))
            uses[n++] = (struct task_use){f->taken[g], false};
    }
    int err = step_compute(o, forward, uses, n);
    free(uses);
    return err;
}

int infer_submit(struct step *s, struct sched_op op)
{
    struct infer *f = infer_of(s);
    int err = 0;

    if (op.kind != SCHED_F) {
        log_error("stage %d, micro-batch %d: inference has forward ops only", op.stage,
                  op.mb);
        return -ENOTSUP;
    }
    if (f->links[op.stage])
        err = submit_receive(s, op.stage, op.mb);
    else if (op.stage == 0 && ((struct batch **)s->work)[op.mb]->decode && f->tokens_link)
        err = submit_tokens(s, op.mb);
    return err ? err : submit_forward(s, op.stage, op.mb);
}

int infer_step(struct infer *f, const struct sched_plan *plan, struct batch **batches,
               struct step **out)
{
    unsigned long pass = f->passes;
    f->passes += plan->micro_batches;
    return engine_step(&f->engine, plan, batches, pass, out);
}

int infer_wait(struct step *s, int mb)
{
    const struct infer *f = infer_of(s);
    const struct batch *b = ((struct batch **)s->work)[mb];
    int last = f->config.n_stages - 1, err = step_wait(s, mb);

    if (err || b->goal != BATCH_SAMPLE || !*b->bad)
        return err;
    log_error("lane %s: %dF%d failed: its logits are not finite",
              engine_lane(s->engine, last)->spec.name, last, mb);
    engine_fail(s->engine, -EDOM);
    return -EDOM;
}
