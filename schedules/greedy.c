/* A discrete-event list scheduler for pipelines. */
#include "schedules/greedy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory ----------------------------------------------------------------------------------- */

static void stage_init(struct greedy *g, const struct sched_plan *plan,
                       const struct sched_costs *costs, int k)
{
    int copy = k / plan->stages, s = k % plan->stages, m = plan->micro_batches;
    struct sched_cost c = sched_costs_stage(costs, plan->lanes, plan->stages, s);
    struct greedy_stage *st = &g->stage[k];
    const int *lane = plan->stage_lane + copy * plan->stages;

    *st = (struct greedy_stage){.stage = s, .lane = lane[s], .next = -1, .before = -1};
    st->f = c.f;
    st->i = c.i;
    st->w = c.w;
    st->b = c.b;
    /* As sched_plan_lane divides them. */
    st->first = (int)(((int64_t)copy * m + plan->copies - 1) / plan->copies);
    st->count =
        (int)(((int64_t)(copy + 1) * m + plan->copies - 1) / plan->copies) - st->first;
    if (s + 1 < plan->stages) {
        st->next = k + 1;
        st->to_next = sched_costs_hop(costs, lane[s], lane[s + 1]);
    }
    if (s > 0) {
        st->before = k - 1;
        st->to_before = sched_costs_hop(costs, lane[s], lane[s - 1]);
    }
}

static int allocate(struct greedy *g)
{
    size_t lanes = (size_t)g->lanes, all = (size_t)g->all;

    g->stage = calloc(all, sizeof(*g->stage));
    g->lane_first = calloc(lanes + 1, sizeof(*g->lane_first));
    g->lane_stage = calloc(all, sizeof(*g->lane_stage));
    g->times =
        calloc((size_t)g->stages * (size_t)g->micro_batches, 2 * sizeof(*g->times));
    g->free_at = calloc(lanes, sizeof(*g->free_at));
    g->wake = calloc(lanes, sizeof(*g->wake));
    g->heap = calloc(lanes, sizeof(*g->heap));
    g->heap_at = calloc(lanes, sizeof(*g->heap_at));
    g->alive = calloc(lanes, sizeof(*g->alive));
    g->owing = calloc(lanes, sizeof(*g->owing));
    g->ops = calloc(g->count, sizeof(*g->ops));
    g->op_first = calloc(lanes + 1, sizeof(*g->op_first));
    g->op_n = calloc(lanes, sizeof(*g->op_n));
    g->order_at = calloc(lanes, sizeof(*g->order_at));
    if (!g->stage || !g->lane_first || !g->lane_stage || !g->times || !g->free_at ||
        !g->wake || !g->heap || !g->heap_at || !g->alive || !g->owing || !g->ops ||
        !g->op_first || !g->op_n || !g->order_at)
        return -ENOMEM;
    return 0;
}

/* Sorts the stages by lane, and a lane's by depth. */
static void stages_by_lane(struct greedy *g)
{
    for (int k = 0; k < g->all; k++)
        g->lane_first[g->stage[k].lane + 1]++;
    for (int i = 0; i < g->lanes; i++)
        g->lane_first[i + 1] += g->lane_first[i];
    for (int s = 0; s < g->stages; s++)
        for (int k = s; k < g->all; k += g->stages) {
            struct greedy_stage *st = &g->stage[k];
            st->chunk = (int)g->op_n[st->lane]++;
            g->lane_stage[g->lane_first[st->lane] + st->chunk] = k;
        }
}

int greedy_init(struct greedy *g, const struct sched_plan *plan,
                const struct sched_costs *costs)
{
    double *times;

    memset(g, 0, sizeof(*g));
    g->lanes = plan->lanes;
    g->stages = plan->stages;
    g->micro_batches = plan->micro_batches;
    g->all = plan->copies * plan->stages;
    g->count = 3 * (size_t)plan->stages * (size_t)plan->micro_batches;
    if (allocate(g)) {
        greedy_fini(g);
        return -ENOMEM;
    }
    times = g->times;
    for (int k = 0; k < g->all; k++) {
        stage_init(g, plan, costs, k);
        g->stage[k].input = times;
        g->stage[k].gradient = times + g->stage[k].count;
        times += 2 * (size_t)g->stage[k].count;
    }
    stages_by_lane(g);
    for (int i = 0; i < g->lanes; i++) {
        g->op_first[i + 1] = g->op_first[i];
        for (int j = g->lane_first[i]; j < g->lane_first[i + 1]; j++)
            g->op_first[i + 1] += 3 * (size_t)g->stage[g->lane_stage[j]].count;
    }
    return 0;
}

void greedy_fini(struct greedy *g)
{
    free(g->stage);
    free(g->lane_first);
    free(g->lane_stage);
    free(g->times);
    free(g->free_at);
    free(g->wake);
    free(g->heap);
    free(g->heap_at);
    free(g->alive);
    free(g->owing);
    free(g->ops);
    free(g->op_first);
    free(g->op_n);
    free(g->order_at);
    memset(g, 0, sizeof(*g));
}

/* ---- Lanes by the time at which they decide ---------------------------------------------------- */

static void heap_place(struct greedy *g, int at, int lane)
{
    g->heap[at] = lane;
    g->heap_at[lane] = at;
}

/* Equal times: the lower lane first, so that nothing depends on the heap's history. */
static bool earlier(const struct greedy *g, int a, int b)
{
    return g->wake[a] < g->wake[b] || (g->wake[a] == g->wake[b] && a < b);
}

static void wake_set(struct greedy *g, int lane, double time)
{
    int at = g->heap_at[lane], n = g->lanes;

    g->wake[lane] = time;
    while (at > 0 && earlier(g, lane, g->heap[(at - 1) / 2])) {
        heap_place(g, at, g->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && earlier(g, g->heap[child + 1], g->heap[child]))
            child++;
        if (!earlier(g, g->heap[child], lane))
            break;
        heap_place(g, at, g->heap[child]);
    }
    heap_place(g, at, lane);
}

/* ---- One decision ------------------------------------------------------------------------------ */

/* Classes of ops, the better ones first. */
enum { URGENT = 1, SECOND, THIRD, LAST, CLASSES };

struct choice {
    uint32_t op;
    double at, time; /* can begin at; takes */
    int class;
    int64_t rank; /* within its class, the lower the better */
};

/* What a decision has found so far. */
struct decision {
    double now;
    struct choice ready;   /* the best op that can begin; class CLASSES: none */
    double later[CLASSES]; /* when the first op of a class can begin that cannot yet */
};

static void consider(struct decision *d, struct choice c)
{
    struct choice *best = &d->ready;

    if (c.at > d->now) {
        if (c.at < d->later[c.class])
            d->later[c.class] = c.at;
    } else if (c.class < best->class || (c.class == best->class && c.rank < best->rank)) {
        *best = c;
    }
}

/* By the depth of the stage or by the age of the micro-batch. */
static int64_t rank_of(bool deepest, const struct greedy_stage *st, int mb)
{
    int64_t depth = INT32_MAX - st->chunk, age = mb;

    return deepest ? depth << 32 | age : age << 32 | depth;
}

/* reserved: chunks of activations that must stay free. */
static void consider_f(const struct greedy *g, const struct greedy_policy *p,
                       struct decision *d, int k, int reserved)
{
    const struct greedy_stage *st = &g->stage[k];
    int mb = st->f_done;

    if (mb == st->count || isinf(st->input[mb]))
        return;
    if (p->limit && mb - st->i_done >= p->limit[k])
        return;
    if (g->alive[st->lane] + 1 + reserved > p->cap)
        return;
    consider(d, (struct choice){GREEDY_OP(k, SCHED_F), st->input[mb], st->f,
                                p->forward_first ? SECOND : THIRD,
                                rank_of(p->deepest_f, st, mb)});
}

static void consider_i(const struct greedy *g, const struct greedy_policy *p,
                       struct decision *d, int k)
{
    const struct greedy_stage *st = &g->stage[k];
    int mb = st->i_done;

    if (mb == st->f_done || isinf(st->gradient[mb]))
        return;
    consider(d,
             (struct choice){GREEDY_OP(k, p->split ? SCHED_I : SCHED_B), st->gradient[mb],
                             p->split ? st->i : st->b, p->forward_first ? THIRD : SECOND,
                             rank_of(p->deepest_i, st, mb)});
}

static void consider_w(const struct greedy *g, const struct greedy_policy *p,
                       struct decision *d, int k)
{
    const struct greedy_stage *st = &g->stage[k];
    bool urgent = p->owed && g->owing[st->lane] > p->owed[st->lane];

    if (!p->split || st->w_done == st->i_done)
        return;
    consider(d, (struct choice){GREEDY_OP(k, SCHED_W), 0, st->w, urgent ? URGENT : LAST,
                                rank_of(false, st, st->w_done)});
}

/* Every deeper stage of a lane keeps room for one micro-batch, or forwards of the others could fill the lane
 * and let nothing through. */
static void consider_all(const struct greedy *g, const struct greedy_policy *p,
                         struct decision *d, int lane)
{
    int end = g->lane_first[lane + 1];

    for (int j = g->lane_first[lane]; j < end; j++) {
        int k = g->lane_stage[j];
        if (!p->order) {
            consider_f(g, p, d, k, end - 1 - j);
            consider_i(g, p, d, k);
        }
        consider_w(g, p, d, k);
    }
}

/* The next op of the lane's given order. */
static void consider_order(const struct greedy *g, const struct greedy_policy *p,
                           struct decision *d, int lane)
{
    size_t first = g->op_first[lane] / 3 * 2, n = g->op_first[lane + 1] / 3 * 2 - first;
    uint32_t op;

    if (g->order_at[lane] == n)
        return;
    op = p->order[first + g->order_at[lane]];
    if ((op & 3) == SCHED_F)
        consider_f(g, p, d, (int)(op >> 2), 0);
    else
        consider_i(g, p, d, (int)(op >> 2));
}

/* ---- Time -------------------------------------------------------------------------------------- */

/* Something arrives on a lane: it decides then, if it is free and would decide later. */
static void arrive(struct greedy *g, int lane, double time)
{
    if (time < g->free_at[lane])
        time = g->free_at[lane];
    if (time < g->wake[lane])
        wake_set(g, lane, time);
}

static void begin_f(struct greedy *g, struct greedy_stage *st, double end)
{
    int mb = st->f_done++;

    g->alive[st->lane]++;
    if (st->next < 0) {
        st->gradient[mb] = end;
        return;
    }
    g->stage[st->next].input[mb] = end + st->to_next;
    arrive(g, g->stage[st->next].lane, end + st->to_next);
}

static void begin_backward(struct greedy *g, struct greedy_stage *st, double end)
{
    int mb = st->i_done++;

    if (st->before < 0)
        return;
    g->stage[st->before].gradient[mb] = end + st->to_before;
    arrive(g, g->stage[st->before].lane, end + st->to_before);
}

static void begin_w(struct greedy *g, struct greedy_stage *st)
{
    st->w_done++;
    g->alive[st->lane]--;
}

static void begin(struct greedy *g, int lane, const struct choice *c, double now)
{
    struct greedy_stage *st = &g->stage[c->op >> 2];
    double end = now + c->time;

    g->ops[g->op_first[lane] + g->op_n[lane]++] = c->op;
    g->free_at[lane] = end;
    wake_set(g, lane, end);
    switch (c->op & 3) {
    case SCHED_F:
        begin_f(g, st, end);
        g->order_at[lane]++;
        break;
    case SCHED_B:
        begin_backward(g, st, end);
        begin_w(g, st);
        g->order_at[lane]++;
        break;
    case SCHED_I:
        begin_backward(g, st, end);
        g->owing[lane]++;
        g->order_at[lane]++;
        break;
    case SCHED_W:
        begin_w(g, st);
        g->owing[lane]--;
        break;
    }
}

/* Until when a lane should stay free, though it has an op ready; 0: it should not. */
static double worth_waiting(const struct decision *d, double patience)
{
    double until = d->now + patience * d->ready.time, first = INFINITY;

    for (int i = URGENT; i < d->ready.class; i++)
        if (d->later[i] <= until && d->later[i] < first)
            first = d->later[i];
    return isinf(first) ? 0 : first;
}

static void decide(struct greedy *g, const struct greedy_policy *p, int lane)
{
    struct decision d = {.now = g->wake[lane], .ready = {.class = CLASSES}};
    double until = INFINITY;

    for (int i = 0; i < CLASSES; i++)
        d.later[i] = INFINITY;
    if (p->order)
        consider_order(g, p, &d, lane);
    consider_all(g, p, &d, lane);
    if (d.ready.class < CLASSES) {
        until = worth_waiting(&d, p->patience);
        if (until == 0) {
            begin(g, lane, &d.ready, d.now);
            return;
        }
    } else {
        for (int i = URGENT; i < CLASSES; i++)
            until = d.later[i] < until ? d.later[i] : until;
    }
    wake_set(g, lane, until);
}

static void reset(struct greedy *g)
{
    for (int k = 0; k < g->all; k++) {
        struct greedy_stage *st = &g->stage[k];
        st->f_done = st->i_done = st->w_done = 0;
        for (int mb = 0; mb < st->count; mb++) {
            st->input[mb] = st->before < 0 ? 0 : INFINITY;
            st->gradient[mb] = INFINITY;
        }
    }
    for (int i = 0; i < g->lanes; i++) {
        g->wake[i] = g->free_at[i] = 0;
        g->alive[i] = g->owing[i] = 0;
        g->op_n[i] = g->order_at[i] = 0;
        heap_place(g, i, i);
    }
}

double greedy_run(struct greedy *g, const struct greedy_policy *policy)
{
    double makespan = 0;

    reset(g);
    while (!isinf(g->wake[g->heap[0]]))
        decide(g, policy, g->heap[0]);
    for (int i = 0; i < g->lanes; i++)
        makespan = g->free_at[i] > makespan ? g->free_at[i] : makespan;
    for (int k = 0; k < g->all; k++)
        if (g->stage[k].w_done < g->stage[k].count)
            return INFINITY;
    return makespan;
}

/* The next micro-batch of an op's stage and kind. */
static int count_op(struct greedy_stage *st, int kind)
{
    switch (kind) {
    case SCHED_F:
        return st->f_done++;
    case SCHED_W:
        return st->w_done++;
    }
    return st->i_done++;
}

int greedy_write(struct greedy *g, struct sched_plan *plan)
{
    for (int k = 0; k < g->all; k++)
        g->stage[k].f_done = g->stage[k].i_done = g->stage[k].w_done = 0;
    for (int i = 0; i < g->lanes; i++) {
        plan->lane[i].n = 0;
        for (size_t at = 0; at < g->op_n[i] && !plan->rc; at++) {
            uint32_t op = g->ops[g->op_first[i] + at];
            struct greedy_stage *st = &g->stage[op >> 2];
            sched_plan_add(plan, op & 3, st->stage, st->first + count_op(st, op & 3));
        }
    }
    return plan->rc;
}
