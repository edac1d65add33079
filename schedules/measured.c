/* Spans of ops that ran, put where the plan has them. */
#include "schedules/measured.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Spans by what ran; a span that is missing has start NAN. */
struct table {
    const struct sched_plan *plan;
    struct sched_span *span; /* (micro_batches, stages, KINDS) */
    double zero;             /* when the first op began */
};

#define KINDS (SCHED_RECV_B + 1)

static struct sched_span *cell(const struct table *t, int kind, int stage, int mb)
{
    return &t->span[((size_t)mb * (size_t)t->plan->stages + (size_t)stage) * KINDS +
                    (size_t)kind];
}

static int fill_table(struct table *t, const struct sched_ran *ran, size_t n)
{
    size_t cells = (size_t)t->plan->micro_batches * (size_t)t->plan->stages * KINDS;

    t->zero = INFINITY;
    t->span = malloc(cells * sizeof(*t->span));
    if (!t->span)
        return -ENOMEM;
    for (size_t i = 0; i < cells; i++)
        t->span[i] = (struct sched_span){NAN, NAN};
    for (size_t i = 0; i < n; i++) {
        const struct sched_op *op = &ran[i].op;
        if (op->kind >= KINDS || sched_plan_place(t->plan, op->stage, op->mb) < 0)
            continue;
        *cell(t, op->kind, op->stage, op->mb) = ran[i].span;
        if (sched_kind_computes(op->kind) && ran[i].span.start < t->zero)
            t->zero = ran[i].span.start;
    }
    return 0;
}

/* The op that an op takes its input from: false if it takes none. */
static bool input_of(const struct sched_plan *plan, const struct sched_op *op,
                     struct sched_op *from)
{
    int step = op->kind == SCHED_F ? -1 : 1;

    *from = (struct sched_op){.kind = op->kind, .stage = op->stage + step, .mb = op->mb};
    return op->kind != SCHED_W && from->stage >= 0 && from->stage < plan->stages;
}

/* When the result that a lane's op takes had been computed; -INFINITY: it takes none from another lane. */
static double produced(const struct table *t, int lane, const struct sched_op *op)
{
    struct sched_op from;

    if (!input_of(t->plan, op, &from) ||
        sched_plan_lane(t->plan, from.stage, from.mb) == lane)
        return -INFINITY;
    if (op->kind == SCHED_F)
        return cell(t, SCHED_F, from.stage, from.mb)->end;
    double full = cell(t, SCHED_B, from.stage, from.mb)->end;
    return isnan(full) ? cell(t, SCHED_I, from.stage, from.mb)->end : full;
}

/* SEND: the moment at which its result was there. */
static struct sched_span span_of(const struct table *t, const struct sched_op *op,
                                 double free_at)
{
    struct sched_span s = {NAN, NAN};

    if (op->kind < KINDS && op->kind != SCHED_SEND_F && op->kind != SCHED_SEND_B)
        s = *cell(t, op->kind, op->stage, op->mb);
    if (isnan(s.start))
        return (struct sched_span){free_at, free_at};
    return (struct sched_span){s.start - t->zero, s.end - t->zero};
}

static void note_wait(struct sched_sim *sim, const struct sched_plan *plan, int lane,
                      const struct sched_op *op, double time)
{
    struct sched_lane_sim *l = &sim->lane[lane];
    struct sched_edge *e = sched_edges_input(&sim->edges, plan, op);

    l->waiting += time;
    if (e)
        e->waited += time;
    if (e && time > l->longest_wait) {
        l->longest_wait = time;
        l->longest = *op;
        l->longest_from = e->from;
    }
}

static void add_transfer(struct sched_sim *sim, const struct table *t,
                         const struct sched_op *op)
{
    int kind = op->kind == SCHED_F ? SCHED_RECV_F : SCHED_RECV_B;
    struct sched_span s = *cell(t, kind, op->stage, op->mb);

    if (op->kind != SCHED_W && !isnan(s.start))
        sched_sim_add_transfer(
            sim, t->plan, op,
            (struct sched_span){fmax(0, s.start - t->zero), fmax(0, s.end - t->zero)});
}

/* Places a lane's spans. *last: when its last op ended. */
static int place_lane(struct sched_sim *sim, const struct table *t, int lane,
                      double *last, struct sched_error *err)
{
    const struct sched_lane *ops = &t->plan->lane[lane];
    struct sched_lane_sim *l = &sim->lane[lane];
    char text[SCHED_OP_TEXT];

    for (size_t k = 0; k < ops->n; k++) {
        const struct sched_op *op = &ops->ops[k];
        bool computes = sched_kind_computes(op->kind);
        if (computes && isnan(cell(t, op->kind, op->stage, op->mb)->start))
            return sched_fail(err, -EINVAL, lane, op->stage, op->mb, "%s did not run",
                              sched_op_print(text, op));
        l->span[k] = span_of(t, op, *last);
        if (!computes)
            continue;
        add_transfer(sim, t, op);
        double wait = l->span[k].start - *last;
        if (l->warmup < 0)
            l->warmup = l->span[k].start;
        else if (wait > 0)
            note_wait(sim, t->plan, lane, op, wait);
        l->busy += l->span[k].end - l->span[k].start;
        *last = l->span[k].end;
    }
    return 0;
}

int sched_measured(struct sched_sim *sim, const struct sched_plan *plan,
                   const struct sched_ran *ran, size_t n, struct sched_error *err)
{
    struct table t = {.plan = plan};
    double *last = calloc((size_t)plan->lanes, sizeof(*last));
    int rc = sched_sim_init(sim, plan);

    if (!rc)
        rc = last ? fill_table(&t, ran, n) : -ENOMEM;
    if (rc)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    for (int i = 0; i < plan->lanes && !rc; i++)
        rc = place_lane(sim, &t, i, &last[i], err);
    if (!rc)
        sched_sim_sum_up(sim, plan, last);
    else
        sched_sim_fini(sim);
    free(t.span);
    free(last);
    return rc;
}

/* The spans of a simulation as a table. */
static int table_of(struct table *t, const struct sched_sim *sim)
{
    int rc = fill_table(t, NULL, 0);

    for (int i = 0; i < t->plan->lanes && !rc; i++)
        for (size_t k = 0; k < t->plan->lane[i].n; k++) {
            const struct sched_op *op = &t->plan->lane[i].ops[k];
            if (sched_kind_computes(op->kind))
                *cell(t, op->kind, op->stage, op->mb) = sim->lane[i].span[k];
        }
    return rc;
}

double sched_exposed(const struct sched_sim *sim, const struct sched_plan *plan)
{
    struct table t = {.plan = plan};
    double exposed = 0;

    if (table_of(&t, sim))
        return NAN;
    for (int i = 0; i < plan->lanes; i++) {
        double last = 0;
        for (size_t k = 0; k < plan->lane[i].n; k++) {
            const struct sched_op *op = &plan->lane[i].ops[k];
            const struct sched_span *span = &sim->lane[i].span[k];
            if (!sched_kind_computes(op->kind))
                continue;
            exposed += fmax(0, span->start - fmax(last, produced(&t, i, op)));
            last = fmax(last, span->end);
        }
    }
    free(t.span);
    return sim->makespan > 0 ? exposed / (sim->lanes * sim->makespan) : 0;
}
