/* A plan in flight: its ops become tasks, somebody waits for them, and their times are kept. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "runtime/engine.h"

/* How long the host looks for ends on the device without a pause, and the pause after that: what decodes waits for
 * every token. */
#define EAGER_SECONDS 500e-6
#define PAUSE_NS      20000

/* ---- Ops that end ----------------------------------------------------------------------------- */

/* With the lock held. */
static void op_ended(struct op_task *o)
{
    struct step *s = o->step;
    struct engine *e = s->engine;

    o->ended = true;
    e->ended++;
    s->waiting[o->op.mb] -= o->results;
    if (--s->pending == 0 || o->results)
        pthread_cond_broadcast(&e->changed);
}

/* The task is complete. If it ran ahead, the device may not have ended it: see look. */
static void op_done(struct task *t)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;

    pthread_mutex_lock(&e->lock);
    o->enqueued = true;
    if (!e->ahead || !o->ran)
        op_ended(o);
    pthread_mutex_unlock(&e->lock);
}

/* Whether an op has ended on the device; an error ends it too. */
static bool has_ended(struct op_task *o, int *failed)
{
    if (o->ended || !o->enqueued)
        return o->ended;
    int done = device_event_query(o->event[1]->handle);
    if (done < 0 && !*failed)
        *failed = done;
    if (done)
        op_ended(o);
    return done;
}

/* Finds what has ended on the device since it was last looked at. With the lock held. */
static void look(struct step *s)
{
    struct engine *e = s->engine;

    for (int i = 0; e->ahead && i < 2 * e->lanes->n; i++) {
        struct op_queue *q = &s->flying[i];
        while (q->head && has_ended(q->head, &e->failed))
            q->head = q->head->next;
    }
}

/* ---- Ops as tasks ----------------------------------------------------------------------------- */

struct op_task *step_op(struct step *s, struct sched_op op)
{
    struct op_task *o = &s->ops[s->n++];
    int place = sched_plan_place(s->plan, op.stage, op.mb);
    *o = (struct op_task){
        .step = s, .op = op, .place = place, .lane = s->engine->stage_lane[place]};
    o->task.done = op_done;
    o->task.ahead = s->engine->ahead;
    o->task.ordered = s->engine->order == ORDER_STRICT;
    o->task.priority = s->engine->priority;
    if (s->engine->order != ORDER_FREE)
        s->engine->priority -= s->engine->priority > INT_MIN;
    return o;
}

static void let_go(struct op_task *o)
{
    for (int i = 0; i < 2; i++) {
        event_drop(o->event[i]);
        o->event[i] = NULL;
    }
    free(o->uses);
    o->uses = NULL;
}

/* What an op on the device needs: events of a lane on that device, its uses. */
static int equip(struct op_task *o, int lane, const struct task_use *uses, int n)
{
    struct engine *e = o->step->engine;
    int err = 0;

    for (int i = 0; i < 2 && !err; i++)
        err = events_take(&e->events[lane], &o->event[i]);
    if (err || !e->ahead)
        return err;
    o->uses = malloc(n * sizeof(*uses));
    if (!o->uses)
        return log_no_memory("a task");
    memcpy(o->uses, uses, n * sizeof(*uses));
    o->n_uses = n;
    return 0;
}

static void append(struct op_queue *q, struct op_task *o)
{
    if (q->head)
        q->tail->next = o;
    else
        q->head = o;
    q->tail = o;
}

/* device: whose lane is that of its events; NULL: it runs on the CPU. */
static int submit(struct op_task *o, const struct lane *device,
                  const struct task_use *uses, int n)
{
    struct step *s = o->step;
    int err = device ? equip(o, device->index, uses, n) : 0;

    if (err) {
        let_go(o);
        s->n--;
        return err;
    }
    pthread_mutex_lock(&s->engine->lock);
    s->pending++;
    s->waiting[o->op.mb] += o->results;
    if (s->engine->ahead)
        append(&s->flying[2 * o->lane + !!o->hop], o);
    pthread_mutex_unlock(&s->engine->lock);
    err = task_submit(&o->task, uses, n);
    if (err) {
        engine_fail(s->engine, err);
        op_done(&o->task);
    }
    return err;
}

int step_compute(struct op_task *o, int (*work)(struct op_task *o),
                 const struct task_use *uses, int n)
{
    const struct lane *lane = &o->step->engine->lanes->lanes[o->lane];

    o->work = work;
    o->task.run = engine_compute;
    o->task.name = sched_kind_name(o->op.kind);
    o->task.worker = lane->worker;
    return submit(o, lane->spec.kind == LANE_CUDA ? lane : NULL, uses, n);
}

int step_transfer(struct op_task *o, const char *hop, struct link *link,
                  int (*work)(struct op_task *o), const struct task_use *uses, int n)
{
    const struct lane *from = link->from, *to = link->to, *last = NULL;
    int sides = link->n_sides;

    o->work = work;
    o->hop = hop;
    o->from = from->index;
    o->link = link;
    o->task.run = engine_transfer;
    o->task.name = "hop";
    o->task.worker =
        to->spec.kind == LANE_CPU && sides ? from->transfer_worker : to->transfer_worker;
    o->task.ordered = o->task.ordered && !sides;
    if (sides)
        last = link->side[sides - 1].device == to->spec.device ? to : from;
    return submit(o, last, uses, n);
}

/* ---- Steps ------------------------------------------------------------------------------------ */

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
    for (int i = 0; i < s->n; i++)
        let_go(&s->ops[i]);
    free(s->flying);
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
    s->flying = calloc(2 * (size_t)e->lanes->n, sizeof(*s->flying));
    if (!s->waiting || !s->ops || !s->flying) {
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

/* Lets some time pass, at most until the deadline: until a task completes or, where tasks run ahead, until it is time
 * to look again. */
static void doze(struct engine *e, double since, double until)
{
    struct timespec end = time_split(until), pause = {0, PAUSE_NS};

    if (!e->ahead) {
        pthread_cond_timedwait(&e->changed, &e->lock, &end);
        return;
    }
    pthread_mutex_unlock(&e->lock);
    if (time_now() - since < EAGER_SECONDS)
        sched_yield();
    else
        nanosleep(&pause, NULL);
    pthread_mutex_lock(&e->lock);
}

static void give_up(struct step *s)
{
    char text[512];
    watch_describe(text, sizeof(text), s);
    log_error("nothing has moved for %g s: %s", s->engine->deadline, text);
    s->engine->stalled = true;
}

/* Waits until *count is 0. Called with the lock held. */
static int wait_for(struct step *s, const int *count)
{
    struct engine *e = s->engine;
    unsigned long ended = e->ended;
    double moved = time_now();

    for (look(s); *count && !e->stalled; look(s)) {
        doze(e, moved, moved + e->deadline);
        if (ended == e->ended && *count && time_now() >= moved + e->deadline)
            give_up(s);
        if (ended != e->ended)
            moved = time_now();
        ended = e->ended;
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

/* Adds an op's time to the engine's, and tells who observes. */
static int collect(struct engine *e, struct op_task *o)
{
    int err = 0;
    if (!o->ran)
        return 0;
    if (o->event[0]) {
        err = event_time(o->event[0], &o->begin);
        if (!err)
            err = event_time(o->event[1], &o->end);
    }
    if (!err && e->observe)
        e->observe(e->observer, o);
    if (err || o->hop)
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
