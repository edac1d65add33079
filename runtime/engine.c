/* A plan in flight: every op becomes a task on its lane's worker, every hop a transfer. */
#include "runtime/engine.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"

static int init_lock(struct engine *e)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int err = pthread_mutex_init(&e->lock, NULL);
    if (!err)
        err = pthread_cond_init(&e->changed, &attr);
    pthread_condattr_destroy(&attr);
    return -err;
}

int engine_init(struct engine *e, struct lane_set *lanes, int n_stages,
                const int *stage_lane, enum engine_order order, double deadline)
{
    *e = (struct engine){.lanes = lanes,
                         .n_stages = n_stages,
                         .stage_lane = stage_lane,
                         .order = order,
                         .deadline = deadline,
                         .first = INFINITY,
                         .priority = INT_MAX};
    int err = fault_read(&e->fault);
    if (!err)
        err = init_lock(e);
    e->times = calloc(n_stages, sizeof(*e->times));
    e->events = calloc(lanes->n, sizeof(*e->events));
    if (!err && (!e->times || !e->events))
        err = log_no_memory("the engine");
    for (int l = 0; l < lanes->n && !err; l++)
        err = events_init(&e->events[l], &lanes->lanes[l]);
    return err;
}

void engine_fini(struct engine *e)
{
    for (int l = 0; e->events && l < e->lanes->n; l++)
        events_fini(&e->events[l]);
    if (e->lanes) {
        pthread_cond_destroy(&e->changed);
        pthread_mutex_destroy(&e->lock);
    }
    free(e->events);
    free(e->times);
    *e = (struct engine){0};
}

struct lane *engine_lane(const struct engine *e, int stage)
{
    return &e->lanes->lanes[e->stage_lane[stage]];
}

double engine_busy(const struct engine *e, int stage)
{
    double seconds = 0;
    for (int kind = 0; kind < ENGINE_KINDS; kind++)
        seconds += e->times[stage][kind].seconds;
    return seconds;
}

void engine_reset_times(struct engine *e)
{
    memset(e->times, 0, e->n_stages * sizeof(*e->times));
    e->first = INFINITY;
    e->last = 0;
}

bool engine_fail(struct engine *e, int err)
{
    pthread_mutex_lock(&e->lock);
    bool first = !e->failed;
    if (first)
        e->failed = err;
    pthread_mutex_unlock(&e->lock);
    return first;
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

static void report(const struct op_task *o, int err)
{
    char text[SCHED_OP_TEXT];
    const struct engine *e = o->step->engine;
    log_error("lane %s: %s%s%s failed: %s", e->lanes->lanes[o->lane].spec.name,
              o->hop ? o->hop : "", o->hop ? " of " : "", sched_op_print(text, &o->op),
              err == -EDOM ? "its result is not finite" : strerror(-err));
}

static void run_compute(struct task *t, void *stream)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;
    struct lane *lane = &e->lanes->lanes[o->lane];

    if (has_failed(e))
        return;
    int err = mark(o, lane, 0);
    fault_begin(o);
    if (!err)
        err = o->work(o, stream);
    if (err)
        report(o, err);
    if (!err)
        err = fault_end(o);
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

    if (has_failed(e))
        return;
    fault_begin(o);
    int err = o->work(o, stream);
    if (err) {
        report(o, err);
        engine_fail(e, err);
    }
}

static void op_done(struct task *t)
{
    struct op_task *o = (struct op_task *)t;
    struct step *s = o->step;
    struct engine *e = s->engine;

    pthread_mutex_lock(&e->lock);
    o->ended = true;
    e->ended++;
    s->waiting[o->op.mb] -= o->results;
    if (--s->pending == 0 || o->results)
        pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

struct op_task *step_op(struct step *s, struct sched_op op)
{
    struct op_task *o = &s->ops[s->n++];
    int place = sched_plan_place(s->plan, op.stage, op.mb);
    *o = (struct op_task){
        .step = s, .op = op, .place = place, .lane = s->engine->stage_lane[place]};
    o->task.done = op_done;
    o->task.ordered = s->engine->order == ORDER_STRICT;
    o->task.priority = s->engine->priority;
    if (s->engine->order != ORDER_FREE)
        s->engine->priority -= s->engine->priority > INT_MIN;
    return o;
}

static int submit(struct op_task *o, const struct task_use *uses, int n)
{
    struct step *s = o->step;
    pthread_mutex_lock(&s->engine->lock);
    s->pending++;
    s->waiting[o->op.mb] += o->results;
    pthread_mutex_unlock(&s->engine->lock);
    int err = task_submit(&o->task, uses, n);
    if (err) {
        engine_fail(s->engine, err);
        op_done(&o->task);
    }
    return err;
}

int step_compute(struct op_task *o, int (*work)(struct op_task *o, void *stream),
                 const struct task_use *uses, int n)
{
    struct engine *e = o->step->engine;
    const struct lane *lane = &e->lanes->lanes[o->lane];

    o->work = work;
    o->task.run = run_compute;
    o->task.name = sched_kind_name(o->op.kind);
    o->task.worker = lane->worker;
    for (int i = 0; i < 2 && lane->spec.kind == LANE_CUDA; i++) {
        int err = events_take(&e->events[o->lane], &o->event[i]);
        if (err) {
            o->step->n--;
            return err;
        }
    }
    return submit(o, uses, n);
}

int step_transfer(struct op_task *o, const char *hop, const struct lane *from,
                  const struct lane *to, int (*work)(struct op_task *o, void *stream),
                  const struct task_use *uses, int n)
{
    bool cpu = from->spec.kind == LANE_CPU && to->spec.kind == LANE_CPU;

    o->work = work;
    o->hop = hop;
    o->from = from->index;
    o->task.run = run_transfer;
    o->task.name = "hop";
    o->task.worker =
        to->spec.kind == LANE_CPU && !cpu ? from->transfer_worker : to->transfer_worker;
    o->task.ordered = o->task.ordered && cpu;
    return submit(o, uses, n);
}

/* For sched_walk: one op of the plan. A hop is one task, submitted with the op that needs it, so the plan's own SEND
 * and RECV, if it has them, are passed over. */
static int submit_op(void *user, int lane, size_t index)
{
    struct step *s = user;
    struct sched_op op = s->plan->lane[lane].ops[index];
    return sched_kind_computes(op.kind) ? s->engine->submit(s, op) : 0;
}

static void step_free(struct step *s)
{
    free(s->ops);
    free(s->waiting);
    free(s);
}

/* A step with room for every op and a hop before each, and one to every stage of another copy. */
static struct step *step_new(struct engine *e, const struct sched_plan *plan, void *work,
                             unsigned long pass)
{
    struct step *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct step){.engine = e, .plan = plan, .work = work, .pass = pass};
    s->waiting = calloc(plan->micro_batches, sizeof(*s->waiting));
    s->ops = calloc(2 * sched_plan_count(plan) + e->n_stages, sizeof(*s->ops));
    if (!s->waiting || !s->ops) {
        step_free(s);
        return NULL;
    }
    return s;
}

int engine_step(struct engine *e, const struct sched_plan *plan, void *work,
                unsigned long pass, struct step **out)
{
    struct sched_error why = {.text = ""};
    struct step *s = step_new(e, plan, work, pass);
    if (!s)
        return log_no_memory("a step");
    int err = sched_walk(plan, submit_op, s, &why);
    if (err && why.text[0])
        log_error("%s", why.text);
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
        struct timespec until = time_split(time_now() + e->deadline);
        int timed_out = 0;
        while (*count && ended == e->ended && !timed_out)
            timed_out = pthread_cond_timedwait(&e->changed, &e->lock, &until);
        if (!*count || ended != e->ended || timed_out != ETIMEDOUT)
            continue;
        char text[512];
        watch_describe(text, sizeof(text), s);
        log_error("nothing has moved for %g s: %s", e->deadline, text);
        e->stalled = true;
    }
    return e->stalled ? -ETIMEDOUT : 0;
}

int step_wait(struct step *s, int micro_batch)
{
    struct engine *e = s->engine;
    pthread_mutex_lock(&e->lock);
    int err = wait_for(s, &s->waiting[micro_batch]);
    if (!err)
        err = e->failed;
    pthread_mutex_unlock(&e->lock);
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
    if (err || !o->ran || o->hop)
        return err;
    struct engine_times *t = &e->times[o->place][o->op.kind];
    t->seconds += o->end - o->begin;
    t->n++;
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
