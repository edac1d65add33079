/* A discrete-event list scheduler for pipelines. */
#include "schedules/greedy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 32 /* lanes that are searched at once */

/* ---- Memory ------------------------------------------------------------------------ */

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
    g->left = calloc(lanes, sizeof(*g->left));
    g->first_wake = calloc(lanes / BLOCK + 1, sizeof(*g->first_wake));
    g->alive = calloc(lanes, sizeof(*g->alive));
    g->owing = calloc(lanes, sizeof(*g->owing));
    g->ops = calloc(g->count, sizeof(*g->ops));
    g->op_first = calloc(lanes + 1, sizeof(*g->op_first));
    g->op_n = calloc(lanes, sizeof(*g->op_n));
    g->order_at = calloc(lanes, sizeof(*g->order_at));
    if (!g->stage || !g->lane_first || !g->lane_stage || !g->times || !g->free_at ||
        !g->wake || !g->left || !g->first_wake || !g->alive || !g->owing || !g->ops ||
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
    free(g->left);
    free(g->first_wake);
    free(g->alive);
    free(g->owing);
    free(g->ops);
    free(g->op_first);
    free(g->op_n);
    free(g->order_at);
    memset(g, 0, sizeof(*g));
}

/* ---- Lanes by the time at which they decide ---------------------------------------- */

static void wake_set(struct greedy *g, int lane, double time)
{
    int block = lane / BLOCK,
        end = (block + 1) * BLOCK < g->lanes ? (block + 1) * BLOCK : g->lanes;
    double first = INFINITY;

    g->wake[lane] = time;
    for (int i = block * BLOCK; i < end; i++)
        first = g->wake[i] < first ? g->wake[i] : first;
    g->first_wake[block] = first;
}

/* The lane that decides next, the lowest of those at the same time. -1: none ever
 * will. */
static int wake_next(const struct greedy *g)
{
    int blocks = (g->lanes - 1) / BLOCK + 1, block = 0, lane;

    for (int i = 1; i < blocks; i++)
        if (g->first_wake[i] < g->first_wake[block])
            block = i;
    if (isinf(g->first_wake[block]))
        return -1;
    for (lane = block * BLOCK; g->wake[lane] > g->first_wake[block];)
        lane++;
    return lane;
}

/* ---- One decision ------------------------------------------------------------------ */

/* Classes of ops, the better ones first. */
enum { URGENT = 1, SECOND, THIRD, LAST, CLASSES };

/* What a decision has found so far. */
struct decision {
    double now;
    uint32_t op;           /* the best that can begin */
    int class;             /* its class; CLASSES: there is none */
    int64_t rank;          /* within its class, the lower the better */
    double time;           /* that it takes */
    double later[CLASSES]; /* when the first op of a class can begin that cannot yet */
};

static inline void consider(struct decision *d, uint32_t op, int class, int64_t rank,
                            double time)
{
    if (class > d->class || (class == d->class && rank >= d->rank))
        return;
    d->op = op;
    d->class = class;
    d->rank = rank;
    d->time = time;
}

/* By the depth of the stage or by the age of the micro-batch. */
static inline int64_t rank_of(bool deepest, const struct greedy_stage *st, int mb)
{
    int64_t depth = INT32_MAX - st->chunk, age = mb;

    return deepest ? depth << 32 | age : age << 32 | depth;
}

/* reserved: chunks of activations that must stay free. */
static inline void consider_f(const struct greedy *g, const struct greedy_policy *p,
                              struct decision *d, int k, int reserved)
{
    const struct greedy_stage *st = &g->stage[k];
    const struct greedy_rule *rule = &p->rule[st->lane];
    int mb = st->f_done, class = rule->forward_first ? SECOND : THIRD;

    if (mb == st->count || (p->limit && mb - st->i_done >= p->limit[k]) ||
        g->alive[st->lane] + 1 + reserved > p->cap)
        return;
    if (st->input[mb] > d->now)
        d->later[class] = fmin(d->later[class], st->input[mb]);
    else
        consider(d, GREEDY_OP(k, SCHED_F), class, rank_of(rule->deepest_f, st, mb),
                 st->f);
}

static inline void consider_i(const struct greedy *g, const struct greedy_policy *p,
                              struct decision *d, int k)
{
    const struct greedy_stage *st = &g->stage[k];
    const struct greedy_rule *rule = &p->rule[st->lane];
    int mb = st->i_done, class = rule->forward_first ? THIRD : SECOND;

    if (mb == st->f_done)
        return;
    if (st->gradient[mb] > d->now)
        d->later[class] = fmin(d->later[class], st->gradient[mb]);
    else
        consider(d, GREEDY_OP(k, p->split ? SCHED_I : SCHED_B), class,
                 rank_of(rule->deepest_i, st, mb), p->split ? st->i : st->b);
}

static inline void consider_w(const struct greedy *g, const struct greedy_policy *p,
                              struct decision *d, int k)
{
    const struct greedy_stage *st = &g->stage[k];
    bool urgent = g->owing[st->lane] > p->rule[st->lane].owed;

    if (st->w_done < st->i_done)
        consider(d, GREEDY_OP(k, SCHED_W), urgent ? URGENT : LAST,
                 rank_of(false, st, st->w_done), st->w);
}

/* Every deeper stage of a lane keeps room for one micro-batch, or forwards of the others
 * could fill the lane and let nothing through. */
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

/* ---- Time -------------------------------------------------------------------------- */

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

static void begin(struct greedy *g, int lane, const struct decision *d)
{
    struct greedy_stage *st = &g->stage[d->op >> 2];
    double end = d->now + d->time;

    g->ops[g->op_first[lane] + g->op_n[lane]++] = d->op;
    g->built++;
    g->free_at[lane] = end;
    g->left[lane] -= d->time;
    wake_set(g, lane, end);
    switch (d->op & 3) {
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

/* When an op comes that is better than the one at hand, if that is soon enough to wait
 * for it, or if there is none at hand. Infinity: never. */
static double better_at(const struct decision *d, double patience)
{
    double until = d->class < CLASSES ? d->now + patience * d->time : INFINITY;
    double first = INFINITY;

    for (int i = URGENT; i < d->class; i++)
        if (d->later[i] <= until)
            first = fmin(first, d->later[i]);
    return first;
}

static void decide(struct greedy *g, const struct greedy_policy *p, int lane)
{
    struct decision d = {.now = g->wake[lane], .class = CLASSES};
    double wait;

    for (int i = 0; i < CLASSES; i++)
        d.later[i] = INFINITY;
    if (p->order)
        consider_order(g, p, &d, lane);
    consider_all(g, p, &d, lane);
    wait = better_at(&d, p->rule[lane].patience);
    if (d.class < CLASSES && isinf(wait))
        begin(g, lane, &d);
    else
        wake_set(g, lane, wait);
}

static void reset(struct greedy *g, bool split)
{
    g->built = 0;
    for (int i = 0; i < g->lanes; i++) {
        g->free_at[i] = g->left[i] = 0;
        g->alive[i] = g->owing[i] = 0;
        g->op_n[i] = g->order_at[i] = 0;
        wake_set(g, i, 0);
    }
    for (int k = 0; k < g->all; k++) {
        struct greedy_stage *st = &g->stage[k];
        st->f_done = st->i_done = st->w_done = 0;
        g->left[st->lane] += st->count * (st->f + (split ? st->i + st->w : st->b));
        for (int mb = 0; mb < st->count; mb++) {
            st->input[mb] = st->before < 0 ? 0 : INFINITY;
            st->gradient[mb] = INFINITY;
        }
    }
}

double greedy_run(struct greedy *g, const struct greedy_policy *policy)
{
    double makespan = 0;
    int lane;

    reset(g, policy->split);
    while ((lane = wake_next(g)) >= 0) {
        if (g->wake[lane] + g->left[lane] > policy->cutoff)
            return INFINITY;
        decide(g, policy, lane);
    }
    for (int i = 0; i < g->lanes; i++)
        makespan = fmax(makespan, g->free_at[i]);
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
