/* What must come before what: walks a plan so that every op follows what it depends
 * on. */
#include "schedules/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What has happened to one (stage, micro-batch). */
enum done {
    DONE_F = 1,
    DONE_GRAD = 2,
    DONE_SEND_F = 4,
    DONE_SEND_B = 8,
    DONE_RECV_F = 16,
    DONE_RECV_B = 32
};

/* What the next op of a lane waits for. */
struct need {
    enum done what;
    int stage, mb;
};

struct walk {
    const struct sched_plan *plan;
    bool comm;     /* results reach other lanes by SEND and RECV ops */
    uint8_t *done; /* (micro_batches, stages) of enum done */
    size_t *at;    /* (lanes) next op */
    int *queue;    /* (lanes) ring of lanes that can go on */
    bool *queued;  /* (lanes) */
    int head, waiting;
};

static const struct {
    enum done what;
    const char *name;
} done_names[] = {{DONE_F, "F"},           {DONE_GRAD, "B"},
                  {DONE_SEND_F, "SEND_F"}, {DONE_SEND_B, "SEND_B"},
                  {DONE_RECV_F, "RECV_F"}, {DONE_RECV_B, "RECV_B"}};

static const char *need_name(enum done what)
{
    for (size_t i = 0; i < sizeof(done_names) / sizeof(done_names[0]); i++)
        if (done_names[i].what == what)
            return done_names[i].name;
    return "?";
}

static uint8_t *done_of(const struct walk *w, int stage, int mb)
{
    return &w->done[(size_t)mb * (size_t)w->plan->stages + (size_t)stage];
}

static bool need_missing(const struct walk *w, struct need *need, enum done what,
                         int stage, int mb)
{
    *need = (struct need){what, stage, mb};
    return !(*done_of(w, stage, mb) & what);
}

/* Is the result of stage `from`, which stage `to` reads, not there yet? */
static bool input_missing(const struct walk *w, struct need *need, int from, int to,
                          int mb)
{
    bool forward = to > from;

    if (from < 0 || from >= w->plan->stages)
        return false;
    if (w->comm && sched_plan_lane(w->plan, from, mb) != sched_plan_lane(w->plan, to, mb))
        return need_missing(w, need, forward ? DONE_RECV_F : DONE_RECV_B, to, mb);
    return need_missing(w, need, forward ? DONE_F : DONE_GRAD, from, mb);
}

/* Must this op wait, and for what? */
static bool op_waits(const struct walk *w, struct need *need, const struct sched_op *op)
{
    int s = op->stage, mb = op->mb;

    switch (op->kind) {
    case SCHED_F:
        return input_missing(w, need, s - 1, s, mb);
    case SCHED_B:
    case SCHED_I:
        return need_missing(w, need, DONE_F, s, mb) ||
               input_missing(w, need, s + 1, s, mb);
    case SCHED_W:
    case SCHED_SEND_B:
        return need_missing(w, need, DONE_GRAD, s, mb);
    case SCHED_SEND_F:
        return need_missing(w, need, DONE_F, s, mb);
    case SCHED_RECV_F:
        return need_missing(w, need, DONE_SEND_F, s - 1, mb);
    case SCHED_RECV_B:
        return need_missing(w, need, DONE_SEND_B, s + 1, mb);
    }
    return false;
}

/* The ops that start together at the head of a lane: 0 at its end, 2 for an F&B pair,
 * else 1. */
static size_t head_ops(const struct walk *w, int lane)
{
    const struct sched_lane *l = &w->plan->lane[lane];
    size_t at = w->at[lane];

    if (at == l->n)
        return 0;
    return l->ops[at].pair && at + 1 < l->n ? 2 : 1;
}

static bool lane_waits(const struct walk *w, struct need *need, int lane)
{
    const struct sched_op *op = w->plan->lane[lane].ops + w->at[lane];

    for (size_t i = 0, n = head_ops(w, lane); i < n; i++)
        if (op_waits(w, need, &op[i]))
            return true;
    return false;
}

static void lane_queue(struct walk *w, int lane)
{
    struct need need;

    if (lane < 0 || w->queued[lane] || !head_ops(w, lane) || lane_waits(w, &need, lane))
        return;
    w->queued[lane] = true;
    w->queue[(w->head + w->waiting++) % w->plan->lanes] = lane;
}

/* Notes that an op is done and wakes the lane that may have waited for it. */
static void op_finish(struct walk *w, const struct sched_op *op)
{
    static const uint8_t marks[SCHED_KIND_COUNT] = {
        [SCHED_F] = DONE_F,           [SCHED_B] = DONE_GRAD,
        [SCHED_I] = DONE_GRAD,        [SCHED_SEND_F] = DONE_SEND_F,
        [SCHED_RECV_F] = DONE_RECV_F, [SCHED_SEND_B] = DONE_SEND_B,
        [SCHED_RECV_B] = DONE_RECV_B};
    bool forward = op->kind == SCHED_F || op->kind == SCHED_SEND_F;

    if (!marks[op->kind])
        return;
    *done_of(w, op->stage, op->mb) |= marks[op->kind];
    lane_queue(w, sched_plan_lane(w->plan, op->stage + (forward ? 1 : -1), op->mb));
}

static int walk_lane(struct walk *w, int lane,
                     int (*visit)(void *user, int lane, size_t index), void *user)
{
    size_t n = head_ops(w, lane), first = w->at[lane];
    int rc;

    w->at[lane] += n;
    for (size_t i = first; i < first + n; i++) {
        rc = visit(user, lane, i);
        if (rc)
            return rc;
    }
    for (size_t i = first; i < first + n; i++)
        op_finish(w, &w->plan->lane[lane].ops[i]);
    lane_queue(w, lane);
    return 0;
}

static int walk_init(struct walk *w, const struct sched_plan *plan)
{
    size_t lanes = (size_t)plan->lanes;

    memset(w, 0, sizeof(*w));
    w->plan = plan;
    w->comm = sched_plan_has_comm(plan);
    w->done = calloc((size_t)plan->stages, (size_t)plan->micro_batches);
    w->at = calloc(lanes, sizeof(*w->at));
    w->queue = calloc(lanes, sizeof(*w->queue));
    w->queued = calloc(lanes, sizeof(*w->queued));
    return w->done && w->at && w->queue && w->queued ? 0 : -ENOMEM;
}

static void walk_fini(struct walk *w)
{
    free(w->done);
    free(w->at);
    free(w->queue);
    free(w->queued);
}

/* The lane that has to perform what is needed. */
static int need_lane(const struct walk *w, const struct need *need)
{
    return sched_plan_lane(w->plan, need->stage, need->mb);
}

/* Appends "2F0 waits for 1F0 on lane 1" to a text that stays within its size. */
static void text_wait(char *text, size_t size, const struct sched_op *op,
                      const struct need *need, int lane)
{
    char name[SCHED_OP_TEXT];
    size_t n = strlen(text);

    snprintf(text + n, size - n, "%s%s waits for %d%s%d on lane %d", n ? ", " : "",
             sched_op_print(name, op), need->stage, need_name(need->what), need->mb,
             lane);
}

/* The op at the head of a lane that waits, and for what. */
static const struct sched_op *lane_blocked(const struct walk *w, struct need *need,
                                           int lane)
{
    const struct sched_op *op = w->plan->lane[lane].ops + w->at[lane];

    return op_waits(w, need, op) || !lane_waits(w, need, lane) ? op : op + 1;
}

/* Follows who waits for whom, from a lane to one that the chain comes back to. -1 if it
 * ends instead, in an op that no lane has left to do. */
static int find_cycle(const struct walk *w, int lane)
{
    struct need need;

    for (int steps = 0; steps <= w->plan->lanes; steps++) {
        if (lane < 0 || !head_ops(w, lane))
            return -1;
        lane_blocked(w, &need, lane);
        lane = need_lane(w, &need);
    }
    return lane;
}

/* Says why nothing goes on, starting at a lane that waits. */
static int fail_blocked(const struct walk *w, int lane, struct sched_error *err)
{
    char text[400] = "";
    int start = find_cycle(w, lane), at, n = 0;
    const struct sched_op *op, *first;
    struct need need;

    at = start < 0 ? lane : start;
    first = lane_blocked(w, &need, at);
    lane = at;
    do {
        op = lane_blocked(w, &need, at);
        at = need_lane(w, &need);
        if (n++ < 8)
            text_wait(text, sizeof(text), op, &need, at);
    } while (start >= 0 && at != start);
    if (start < 0)
        return sched_fail(err, -EDEADLK, lane, first->stage, first->mb,
                          "cannot run: %s, which does not come", text);
    return sched_fail(err, -EDEADLK, lane, first->stage, first->mb,
                      "cannot run, %d ops wait in a cycle: %s%s", n, text,
                      n > 8 ? ", ..." : "");
}

int sched_walk(const struct sched_plan *plan,
               int (*visit)(void *user, int lane, size_t index), void *user,
               struct sched_error *err)
{
    struct walk w;
    int rc = sched_check_ops(plan, err);

    if (rc)
        return rc;
    rc = walk_init(&w, plan);
    if (rc)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    for (int i = 0; i < plan->lanes && !rc; i++)
        lane_queue(&w, i);
    while (!rc && w.waiting) {
        int lane = w.queue[w.head];
        w.head = (w.head + 1) % plan->lanes;
        w.waiting--;
        w.queued[lane] = false;
        rc = walk_lane(&w, lane, visit, user);
    }
    for (int i = 0; i < plan->lanes && !rc; i++)
        if (head_ops(&w, i))
            rc = fail_blocked(&w, i, err);
    walk_fini(&w);
    return rc;
}

struct order {
    struct sched_step_op *out;
    size_t n;
};

static int order_visit(void *user, int lane, size_t index)
{
    struct order *o = user;

    o->out[o->n++] = (struct sched_step_op){lane, index};
    return 0;
}

int sched_order(const struct sched_plan *plan, struct sched_step_op *out,
                struct sched_error *err)
{
    struct order o = {.out = out};

    return sched_walk(plan, order_visit, &o, err);
}
