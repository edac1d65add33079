/* Walks a plan and notes when every op starts and ends. */
#include "schedules/simulate.h"

#include "schedules/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct sched_sim *sim;
    const struct sched_plan *plan;
    const struct sched_costs *costs;
    double *free_at; /* (lanes) */
    double *hop;     /* (copies, stages, 2) to the stage behind, to the stage before */
};

static double *arrival_of(const struct run *r, const struct sched_op *op)
{
    size_t cell = (size_t)op->mb * (size_t)r->plan->stages + (size_t)op->stage;

    return &r->sim->arrival[2 * cell + (op->kind != SCHED_F && op->kind != SCHED_RECV_F)];
}

static double op_cost(const struct run *r, const struct sched_op *op)
{
    const struct sched_cost *c = &r->sim->cost[op->stage];

    switch (op->kind) {
    case SCHED_F:
        return c->f;
    case SCHED_B:
        return c->b;
    case SCHED_I:
        return c->i;
    case SCHED_W:
        return c->w;
    }
    return 0;
}

static bool takes_input(const struct sched_op *op)
{
    return op->kind == SCHED_F || op->kind == SCHED_B || op->kind == SCHED_I;
}

/* Notes that a lane is idle until an op's input has come. */
static void note_wait(struct run *r, int lane, const struct sched_op *op, double time)
{
    struct sched_lane_sim *l = &r->sim->lane[lane];
    struct sched_edge *e = sched_edges_input(&r->sim->edges, r->plan, op);

    l->waiting += time;
    if (e)
        e->waited += time;
    if (e && time > l->longest_wait) {
        l->longest_wait = time;
        l->longest = *op;
        l->longest_from = e->from;
    }
}

/* Start and end of the one or two ops that begin together at op. */
static struct sched_span ops_run(struct run *r, int lane, const struct sched_op *op)
{
    double free_at = r->free_at[lane], time = op_cost(r, op);
    const struct sched_op *late = op;
    struct sched_span span;

    if (op->pair) {
        time += op_cost(r, op + 1);
        time *= r->costs->pair > 0 ? r->costs->pair : 1;
        if (*arrival_of(r, op + 1) > *arrival_of(r, op))
            late = op + 1;
    }
    span.start = free_at;
    if (takes_input(late) && *arrival_of(r, late) > free_at)
        span.start = *arrival_of(r, late);
    if (r->sim->lane[lane].warmup < 0)
        r->sim->lane[lane].warmup = span.start;
    else if (span.start > free_at)
        note_wait(r, lane, late, span.start - free_at);
    span.end = span.start + time;
    r->sim->lane[lane].busy += time;
    r->free_at[lane] = span.end;
    return span;
}

/* Tells the neighbouring stage when an op's result arrives there. */
static void pass_on(struct run *r, const struct sched_op *op, double end)
{
    bool forward = op->kind == SCHED_F;
    struct sched_op next = {
        .kind = op->kind, .stage = op->stage + (forward ? 1 : -1), .mb = op->mb};
    size_t copy = 0;

    if (next.stage < 0 || next.stage >= r->plan->stages)
        return;
    if (r->plan->copies > 1)
        copy = (size_t)((int64_t)op->mb * r->plan->copies / r->plan->micro_batches);
    *arrival_of(r, &next) =
        end + r->hop[2 * (copy * (size_t)r->plan->stages + (size_t)op->stage) + !forward];
    sched_sim_add_transfer(r->sim, r->plan, &next,
                           (struct sched_span){end, *arrival_of(r, &next)});
}

/* SEND and RECV: a mark at the time of the transfer. */
static struct sched_span transfer_span(const struct run *r, int lane,
                                       const struct sched_op *op)
{
    double t = r->free_at[lane];
    int from;

    if (op->kind != SCHED_RECV_F && op->kind != SCHED_RECV_B)
        return (struct sched_span){t, t};
    from =
        sched_plan_lane(r->plan, op->stage + (op->kind == SCHED_RECV_F ? -1 : 1), op->mb);
    t = *arrival_of(r, op);
    return (struct sched_span){t - sched_costs_hop(r->costs, from, lane), t};
}

static int run_visit(void *user, int lane, size_t index)
{
    struct run *r = user;
    struct sched_lane_sim *l = &r->sim->lane[lane];
    const struct sched_op *op = &r->plan->lane[lane].ops[index];
    bool second = index && op[-1].pair;

    if (second)
        l->span[index] = l->span[index - 1];
    else if (sched_kind_computes(op->kind))
        l->span[index] = ops_run(r, lane, op);
    else
        l->span[index] = transfer_span(r, lane, op);
    if (takes_input(op))
        pass_on(r, op, l->span[index].end);
    return 0;
}

void sched_sim_sum_up(struct sched_sim *sim, const struct sched_plan *plan,
                      const double *last)
{
    double idle = 0;

    for (int i = 0; i < sim->lanes; i++)
        if (last[i] > sim->makespan)
            sim->makespan = last[i];
    for (int i = 0; i < sim->lanes; i++) {
        struct sched_lane_sim *l = &sim->lane[i];
        l->warmup = l->warmup < 0 ? 0 : l->warmup;
        l->drain = sim->makespan - last[i];
        l->idle = sim->makespan - l->busy;
        l->peak = sched_peak(plan, i);
        idle += l->idle;
    }
    if (sim->makespan > 0)
        sim->bubble = idle / (sim->lanes * sim->makespan);
}

void sched_sim_add_transfer(struct sched_sim *sim, const struct sched_plan *plan,
                            const struct sched_op *op, struct sched_span span)
{
    const struct sched_edge *e = sched_edges_input(&sim->edges, plan, op);

    if (e)
        sim->transfer[sim->transfers++] =
            (struct sched_transfer){(int)(e - sim->edges.edge), *op, span};
}

int sched_sim_init(struct sched_sim *sim, const struct sched_plan *plan)
{
    size_t cells = (size_t)plan->stages * (size_t)plan->micro_batches, at = 0;

    memset(sim, 0, sizeof(*sim));
    sim->lanes = plan->lanes;
    sim->lane = calloc((size_t)plan->lanes, sizeof(*sim->lane));
    sim->spans = calloc(sched_plan_count(plan) + 1, sizeof(*sim->spans));
    sim->cost = calloc((size_t)plan->stages, sizeof(*sim->cost));
    sim->arrival = calloc(cells, 2 * sizeof(*sim->arrival));
    if (!sim->lane || !sim->spans || !sim->cost || !sim->arrival)
        return -ENOMEM;
    for (int i = 0; i < plan->lanes; i++) {
        sim->lane[i].span = sim->spans + at;
        sim->lane[i].longest_from = -1;
        sim->lane[i].warmup = -1; /* not begun */
        at += plan->lane[i].n;
    }
    int rc = sched_edges_init(&sim->edges, plan);
    size_t transfers = 0;
    for (int i = 0; i < sim->edges.n && !rc; i++)
        transfers += sim->edges.edge[i].count;
    sim->transfer = calloc(transfers + 1, sizeof(*sim->transfer));
    return !rc && !sim->transfer ? -ENOMEM : rc;
}

static int run_init(struct run *r)
{
    const struct sched_plan *plan = r->plan;
    size_t places = (size_t)plan->copies * (size_t)plan->stages;

    r->free_at = calloc((size_t)plan->lanes, sizeof(*r->free_at));
    r->hop = calloc(places, 2 * sizeof(*r->hop));
    if (!r->free_at || !r->hop)
        return -ENOMEM;
    sched_costs_stages(r->sim->cost, r->costs, plan->lanes, plan->stages);
    for (size_t i = 0; i < places; i++) {
        int s = (int)(i % (size_t)plan->stages), lane = plan->stage_lane[i];
        if (s + 1 < plan->stages)
            r->hop[2 * i] = sched_costs_hop(r->costs, lane, plan->stage_lane[i + 1]);
        if (s > 0)
            r->hop[2 * i + 1] = sched_costs_hop(r->costs, lane, plan->stage_lane[i - 1]);
    }
    return 0;
}

int sched_simulate(struct sched_sim *sim, const struct sched_plan *plan,
                   const struct sched_costs *costs, struct sched_error *err)
{
    struct run r = {.sim = sim, .plan = plan, .costs = costs};
    int rc = sched_check_ops(plan, err);

    if (rc) {
        memset(sim, 0, sizeof(*sim));
        return rc;
    }
    rc = sched_sim_init(sim, plan);
    rc = rc ? rc : run_init(&r);
    if (rc)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    rc = rc ? rc : sched_walk(plan, run_visit, &r, err);
    if (!rc)
        sched_sim_sum_up(sim, plan, r.free_at);
    for (int i = 0; i < sim->edges.n && !rc; i++)
        sim->edges.edge[i].bytes = (double)sim->edges.edge[i].count * costs->bytes;
    if (rc)
        sched_sim_fini(sim);
    free(r.free_at);
    free(r.hop);
    return rc;
}

void sched_sim_fini(struct sched_sim *sim)
{
    free(sim->lane);
    free(sim->spans);
    free(sim->transfer);
    free(sim->cost);
    free(sim->arrival);
    sched_edges_fini(&sim->edges);
    memset(sim, 0, sizeof(*sim));
}
