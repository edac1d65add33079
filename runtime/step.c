/* A plan in flight: every op becomes a task on its lane's worker, every hop a transfer. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "runtime/engine.h"

static struct lane *lane_of(const struct engine *e, int stage)
{
    return &e->config.lanes->lanes[e->config.stage_lane[stage]];
}

static bool has_failed(struct engine *e)
{
    return __atomic_load_n(&e->failed, __ATOMIC_RELAXED) != 0;
}

/* Begin and end of an op: device events on the lane's stream, or the host's clock. */
static int mark(struct op_task *o, const struct lane *lane, int which)
{
    if (o->event[which])
        return device_event_record(o->event[which], lane->stream);
    *(which ? &o->end : &o->begin) = time_now();
    return 0;
}

static void run_forward(struct task *t, void *stream)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;
    struct lane *lane = lane_of(e, o->op.stage);
    struct ring *ring = &e->rings[e->ring_of[o->op.stage]];

    if (has_failed(e))
        return;
    int err = mark(o, lane, 0);
    if (!err)
        err = stage_forward(e->stages[o->op.stage], o->step->batches[o->op.mb],
                            ring->x[o->slot]);
    if (err)
        log_error("lane %s: forward of stage %d, micro-batch %d failed: %s",
                  lane->spec.name, o->op.stage, o->op.mb,
                  err == -EDOM ? "its logits are not finite" : strerror(-err));
    if (!err)
        err = mark(o, lane, 1);
    if (!err && o->event[1])
        err = device_stream_wait(stream, o->event[1]);
    o->ran = !err;
    if (err)
        engine_fail(e, err);
}

static void run_transfer(struct task *t, void *stream)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;
    const struct batch *b = o->step->batches[o->op.mb];
    int s = o->op.stage, last = e->config.n_stages - 1, err;

    if (has_failed(e))
        return;
    if (o->tokens)
        err = link_transfer(e->tokens_link, e->stages[0]->tokens + b->slot_first,
                            e->stages[last]->tokens + b->slot_first,
                            b->slot_count * sizeof(int32_t), stream);
    else
        err = link_transfer(e->links[s], e->rings[s].x[o->slot],
                            e->rings[e->ring_of[s - 1]].x[o->slot],
                            b->rows * e->config.model->config.C *
                                dtype_block_bytes(lane_of(e, s)->ctx->dtype),
                            stream);
    if (err) {
        log_error("lane %s: %s of stage %d, micro-batch %d failed: %s",
                  lane_of(e, s)->spec.name, o->tokens ? "receiving tokens" : "RECV_F", s,
                  o->op.mb, strerror(-err));
        engine_fail(e, err);
    }
}

/* Whether a micro-batch's results are on the host once this op has ended. */
static bool gives_results(const struct op_task *o)
{
    return o->op.kind == SCHED_F && o->op.stage == o->step->engine->config.n_stages - 1;
}

static void op_done(struct task *t)
{
    struct op_task *o = (struct op_task *)t;
    struct step *s = o->step;
    struct engine *e = s->engine;

    pthread_mutex_lock(&e->lock);
    o->ended = true;
    e->ended++;
    s->waiting[o->op.mb] -= gives_results(o);
    if (--s->pending == 0 || gives_results(o))
        pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* The worker that moves bytes from one lane to another: the GPU's own for transfers, or, between CPU lanes,
 * the receiver, in its order. */
static void place_transfer(struct task *t, const struct lane *from, const struct lane *to)
{
    bool cpu = from->spec.kind == LANE_CPU && to->spec.kind == LANE_CPU;
    t->worker =
        to->spec.kind == LANE_CPU && !cpu ? from->transfer_worker : to->transfer_worker;
    t->ordered = t->ordered && cpu;
}

static struct op_task *new_op(struct step *s, struct sched_op op)
{
    struct engine *e = s->engine;
    struct op_task *o = &s->ops[s->n++];
    bool strict = e->config.order == ORDER_STRICT;
    *o = (struct op_task){
        .task = {.done = op_done, .ordered = strict, .priority = INT_MAX - s->n},
        .step = s,
        .op = op,
        .slot = (s->pass + op.mb) % ENGINE_RING,
        .lane = e->config.stage_lane[op.stage],
    };
    return o;
}

static int submit(struct op_task *o, const struct task_use *uses, int n)
{
    struct step *s = o->step;
    pthread_mutex_lock(&s->engine->lock);
    s->pending++;
    s->waiting[o->op.mb] += gives_results(o);
    pthread_mutex_unlock(&s->engine->lock);
    int err = task_submit(&o->task, uses, n);
    if (err) {
        engine_fail(s->engine, err);
        op_done(&o->task);
    }
    return err;
}

/* Hidden states from the previous stage's lane. */
static int submit_receive(struct step *s, int stage, int mb)
{
    struct engine *e = s->engine;
    struct op_task *o =
        new_op(s, (struct sched_op){.kind = SCHED_RECV_F, .stage = stage, .mb = mb});
    struct task_use uses[2] = {
        {e->rings[e->ring_of[stage - 1]].data[o->slot], false},
        {e->rings[stage].data[o->slot], true},
    };
    o->task.run = run_transfer;
    o->task.name = "RECV_F";
    place_transfer(&o->task, lane_of(e, stage - 1), lane_of(e, stage));
    return submit(o, uses, 2);
}

/* Tokens of the batch's groups from the last stage to the first. */
static int submit_tokens(struct step *s, int mb)
{
    struct engine *e = s->engine;
    const struct batch *b = s->batches[mb];
    struct op_task *o = new_op(s, (struct sched_op){.kind = SCHED_RECV_F, .mb = mb});
    struct task_use *uses = calloc(2 * b->group_count, sizeof(*uses));
    if (!uses)
        return -ENOMEM;
    for (int i = 0; i < b->group_count; i++) {
        uses[2 * i] = (struct task_use){e->drawn[b->group_first + i], false};
        uses[2 * i + 1] = (struct task_use){e->taken[b->group_first + i], true};
    }
    o->tokens = true;
    o->task.run = run_transfer;
    o->task.name = "tokens";
    place_transfer(&o->task, lane_of(e, e->config.n_stages - 1), lane_of(e, 0));
    int err = submit(o, uses, 2 * b->group_count);
    free(uses);
    return err;
}

static int submit_forward(struct step *s, struct sched_op op)
{
    struct engine *e = s->engine;
    const struct batch *b = s->batches[op.mb];
    int last = e->config.n_stages - 1, n = 0, err = 0;
    bool draws = op.stage == last && b->goal == BATCH_SAMPLE;
    struct task_use *uses = calloc(1 + 3 * b->group_count, sizeof(*uses));
    struct op_task *o;

    if (!uses)
        return -ENOMEM;
    o = new_op(s, op);
    uses[n++] = (struct task_use){e->rings[e->ring_of[op.stage]].data[o->slot], true};
    for (int i = 0; i < b->group_count; i++) {
        int g = b->group_first + i;
        uses[n++] = (struct task_use){e->kv[op.stage * e->config.groups + g], true};
        if (draws)
            uses[n++] = (struct task_use){e->drawn[g], true};
        if (op.stage == 0 && b->decode && !(draws && e->taken[g] == e->drawn[g]))
            uses[n++] = (struct task_use){e->taken[g], false};
    }
    o->task.run = run_forward;
    o->task.name = "F";
    o->task.worker = e->config.lanes->lanes[o->lane].worker;
    for (int i = 0; i < 2 && !err && lane_of(e, op.stage)->spec.kind == LANE_CUDA; i++)
        err = events_take(&e->events[o->lane], &o->event[i]);
    if (!err)
        err = submit(o, uses, n);
    free(uses);
    return err;
}

/* For sched_walk: one op of the plan. A hop is one task, submitted just before the op that needs it, so
 * the plan's own SEND and RECV, if it has them, are passed over. */
static int submit_op(void *user, int lane, size_t index)
{
    struct step *s = user;
    struct sched_op op = s->plan->lane[lane].ops[index];
    int err = 0;

    if (op.kind == SCHED_SEND_F || op.kind == SCHED_RECV_F)
        return 0;
    if (op.kind != SCHED_F) {
        log_error("stage %d, micro-batch %d: inference has forward ops only", op.stage,
                  op.mb);
        return -ENOTSUP;
    }
    if (s->engine->links[op.stage])
        err = submit_receive(s, op.stage, op.mb);
    else if (op.stage == 0 && s->batches[op.mb]->decode && s->engine->tokens_link)
        err = submit_tokens(s, op.mb);
    return err ? err : submit_forward(s, op);
}

static void step_free(struct step *s)
{
    free(s->ops);
    free(s->waiting);
    free(s);
}

/* A step with room for every op and a hop before each. */
static struct step *step_new(struct engine *e, const struct sched_plan *plan,
                             struct batch **batches)
{
    struct step *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct step){.engine = e, .plan = plan, .batches = batches, .pass = e->passes};
    s->waiting = calloc(plan->micro_batches, sizeof(*s->waiting));
    s->ops = calloc(2 * sched_plan_count(plan), sizeof(*s->ops));
    if (!s->waiting || !s->ops) {
        step_free(s);
        return NULL;
    }
    return s;
}

int engine_step(struct engine *e, const struct sched_plan *plan, struct batch **batches,
                struct step **out)
{
    struct sched_error why = {.text = ""};
    struct step *s = step_new(e, plan, batches);
    if (!s)
        return -ENOMEM;
    int err = sched_walk(plan, submit_op, s, &why);
    if (err == -EDEADLK)
        log_error("%s", why.text);
    e->passes += plan->micro_batches;
    if (err) {
        engine_fail(e, err);
        step_end(s);
        return err;
    }
    *out = s;
    return 0;
}

/* Waits until *count is 0. Called with the lock held. */
static int wait_for(struct step *s, const int *count)
{
    struct engine *e = s->engine;
    while (*count && !e->stalled) {
        unsigned long ended = e->ended;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)e->config.deadline;
        int timed_out = 0;
        while (*count && ended == e->ended && !timed_out)
            timed_out = pthread_cond_timedwait(&e->changed, &e->lock, &until);
        if (!*count || ended != e->ended || timed_out != ETIMEDOUT)
            continue;
        char text[512];
        watch_describe(text, sizeof(text), s);
        log_error("nothing has moved for %.0f s: %s", e->config.deadline, text);
        e->stalled = true;
    }
    return e->stalled ? -ETIMEDOUT : 0;
}

int step_wait(struct step *s, int micro_batch)
{
    struct engine *e = s->engine;
    const struct batch *b = s->batches[micro_batch];

    pthread_mutex_lock(&e->lock);
    int err = wait_for(s, &s->waiting[micro_batch]);
    if (!err)
        err = e->failed;
    pthread_mutex_unlock(&e->lock);
    if (!err && b->goal == BATCH_SAMPLE && *b->bad) {
        int last = e->config.n_stages - 1;
        log_error(
            "lane %s: forward of stage %d, micro-batch %d failed: its logits are not "
            "finite",
            lane_of(e, last)->spec.name, last, micro_batch);
        err = -EDOM;
        engine_fail(e, err);
    }
    return err;
}

/* Adds an op's time to the engine's and gives its events back. */
static int collect(struct engine *e, struct op_task *o)
{
    int err = 0;
    if (o->event[0] && o->ran) {
        err = events_time(&e->events[o->lane], &o->begin, o->event[0]);
        if (!err)
            err = events_time(&e->events[o->lane], &o->end, o->event[1]);
    }
    for (int i = 0; i < 2; i++)
        if (o->event[i])
            events_give(&e->events[o->lane], o->event[i]);
    if (err || !o->ran || o->op.kind != SCHED_F)
        return err;
    e->busy[o->op.stage] += o->end - o->begin;
    e->first = o->begin < e->first ? o->begin : e->first;
    e->last = o->end > e->last ? o->end : e->last;
    return 0;
}

int step_end(struct step *s)
{
    struct engine *e = s->engine;
    pthread_mutex_lock(&e->lock);
    int err = wait_for(s, &s->pending);
    int failed = e->failed;
    pthread_mutex_unlock(&e->lock);
    if (err) /* its tasks still look at it */
        return err;
    for (int i = 0; i < s->n && !err; i++)
        err = collect(e, &s->ops[i]);
    step_free(s);
    return failed ? failed : err;
}
