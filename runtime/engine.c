/* What outlives the steps of a run, and what the task of an op does: it computes or moves bytes, on the CPU or
 * enqueued on a stream. */
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

static bool may_run_ahead(const struct lane_set *lanes, enum engine_order order)
{
    bool cuda = true;
    for (int l = 0; l < lanes->n; l++)
        cuda &= lanes->lanes[l].spec.kind == LANE_CUDA;
    return cuda && order == ORDER_STRICT;
}

int engine_init(struct engine *e, struct lane_set *lanes, int n_stages,
                const int *stage_lane, enum engine_order order, double deadline)
{
    *e = (struct engine){.lanes = lanes,
                         .n_stages = n_stages,
                         .stage_lane = stage_lane,
                         .order = order,
                         .ahead = may_run_ahead(lanes, order),
                         .deadline = deadline,
                         .first = INFINITY,
                         .priority = INT_MAX};
    int err = fault_read(&e->fault);
    if (!err)
        err = init_lock(e);
    e->times = calloc(n_stages, sizeof(*e->times));
    e->events = calloc(lanes->n, sizeof(*e->events));
    e->credits = calloc(lanes->n, sizeof(*e->credits));
    if (!err && (!e->times || !e->events || !e->credits))
        err = log_no_memory("the engine");
    for (int l = 0; l < lanes->n && !err; l++)
        err = events_init(&e->events[l], &lanes->lanes[l]);
    return err;
}

void engine_fini(struct engine *e)
{
    for (int l = 0; e->credits && l < e->lanes->n; l++)
        for (int i = 0; i < ENGINE_CREDITS; i++)
            event_drop(e->credits[l].end[i]);
    for (int l = 0; e->events && l < e->lanes->n; l++)
        events_fini(&e->events[l]);
    if (e->lanes) {
        pthread_cond_destroy(&e->changed);
        pthread_mutex_destroy(&e->lock);
    }
    free(e->credits);
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

/* ---- An op on its lane or link ---------------------------------------------------------------- */

/* Begin and end of an op: events on its stream, or the host's clock. */
static int mark_time(struct op_task *o, void *stream, int which)
{
    if (o->event[which])
        return device_event_record(o->event[which]->handle, stream);
    *(which ? &o->end : &o->begin) = time_now();
    return 0;
}

static int wait_for_uses(const struct op_task *o, void *stream)
{
    int err = 0;
    for (int i = 0; i < o->n_uses && !err; i++)
        err = order_wait(task_data_order(o->uses[i].data), o->uses[i].write, stream);
    return err;
}

static int mark_uses(const struct op_task *o, void *stream)
{
    int err = 0;
    for (int i = 0; i < o->n_uses && !err; i++)
        err = order_mark(task_data_order(o->uses[i].data), o->uses[i].write, o->event[1],
                         stream);
    return err;
}

/* Waits until the op that the lane began ENGINE_CREDITS ago has ended: all that it needs is enqueued, so it will. */
static int take_credit(struct credits *c)
{
    struct event **oldest = &c->end[c->next % ENGINE_CREDITS];
    int err = *oldest ? device_event_sync((*oldest)->handle) : 0;
    event_drop(*oldest);
    *oldest = NULL;
    return err;
}

static void use_credit(struct credits *c, struct event *end)
{
    c->end[c->next++ % ENGINE_CREDITS] = event_hold(end);
}

/* Makes who comes after the op wait for its end: by the uses' marks, or the task's own stream. */
static int finish(const struct op_task *o, void *on, void *stream)
{
    if (!o->event[1])
        return 0;
    return o->step->engine->ahead ? mark_uses(o, on)
                                  : device_stream_wait(stream, o->event[1]->handle);
}

static void report(const struct op_task *o, int err)
{
    char text[SCHED_OP_TEXT];
    const struct engine *e = o->step->engine;
    log_error("lane %s: %s%s%s failed: %s", e->lanes->lanes[o->lane].spec.name,
              o->hop ? o->hop : "", o->hop ? " of " : "", sched_op_print(text, &o->op),
              err == -EDOM ? "its result is not finite" : strerror(-err));
}

/* Between begin and end, on a stream or on the CPU. */
static int work(struct op_task *o, void *on)
{
    int err = mark_time(o, on, 0);
    fault_begin(o);
    if (!err)
        err = o->work(o);
    if (err)
        report(o, err);
    if (!err && !o->hop)
        err = fault_end(o);
    return err ? err : mark_time(o, on, 1);
}

void engine_compute(struct task *t, void *stream)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;
    void *on = e->lanes->lanes[o->lane].stream;
    int err = 0;

    if (has_failed(e))
        return;
    if (e->ahead)
        err = take_credit(&e->credits[o->lane]);
    if (!err)
        err = wait_for_uses(o, on);
    if (!err)
        err = work(o, on);
    if (!err && e->ahead)
        use_credit(&e->credits[o->lane], o->event[1]);
    if (!err)
        err = finish(o, on, stream);
    o->ran = !err;
    if (err)
        engine_fail(e, err);
}

void engine_transfer(struct task *t, void *stream)
{
    struct op_task *o = (struct op_task *)t;
    struct engine *e = o->step->engine;
    struct link *l = o->link;
    void *on = l->n_sides ? l->side[l->n_sides - 1].stream : NULL;
    int err = 0;

    if (has_failed(e))
        return;
    for (int i = 0; i < l->n_sides && !err; i++)
        err = wait_for_uses(o, l->side[i].stream);
    if (!err)
        err = work(o, on);
    if (!err)
        err = finish(o, on, stream);
    o->ran = !err;
    if (err)
        engine_fail(e, err);
}
