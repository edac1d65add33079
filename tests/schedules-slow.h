/* An independent and slow checker of plans, for tests: it shares no code with
 * sched_check, and collects every place (lane, stage, micro-batch) where something is
 * wrong. */
#ifndef TESTS_SCHEDULES_SLOW_H
#define TESTS_SCHEDULES_SLOW_H

#include <stdlib.h>
#include <string.h>

#include "schedules/sched.h"

#define SLOW_FAULTS 4096

struct slow_fault {
    int lane, stage, mb;
};

struct slow {
    const struct sched_plan *plan;
    struct slow_fault fault[SLOW_FAULTS];
    int faults;
    bool trains, comm;
};

static void slow_add(struct slow *s, int lane, int stage, int mb)
{
    if (s->faults < SLOW_FAULTS)
        s->fault[s->faults++] = (struct slow_fault){lane, stage, mb};
}

/* Was a fault found at this place? */
static inline bool slow_has(const struct slow *s, int lane, int stage, int mb)
{
    for (int i = 0; i < s->faults; i++)
        if (s->fault[i].lane == lane && s->fault[i].stage == stage &&
            s->fault[i].mb == mb)
            return true;
    return false;
}

/* Where a stage ought to run, from the definition of copies rather than by
 * sched_plan_lane. */
static int slow_owner(const struct sched_plan *p, int stage, int mb)
{
    bool second = p->copies == 2 && mb >= (p->micro_batches + 1) / 2;

    return p->stage_lane[(second ? p->stages : 0) + stage];
}

static bool slow_inside(const struct sched_plan *p, const struct sched_op *op)
{
    return op->stage >= 0 && op->stage < p->stages && op->mb >= 0 &&
           op->mb < p->micro_batches;
}

/* How often each kind of op is there for a stage and micro-batch, and where first. */
static void slow_count(struct slow *s, int *n, int *at, int stage, int mb)
{
    const struct sched_lane *l = &s->plan->lane[slow_owner(s->plan, stage, mb)];

    for (int kind = 0; kind < SCHED_KIND_COUNT; kind++) {
        n[kind] = 0;
        at[kind] = -1;
    }
    for (size_t k = 0; k < l->n; k++)
        if (l->ops[k].stage == stage && l->ops[k].mb == mb)
            if (n[l->ops[k].kind]++ == 0)
                at[l->ops[k].kind] = (int)k;
}

/* Ops outside of the plan, and on lanes that do not own their stage. */
static void slow_places(struct slow *s)
{
    const struct sched_plan *p = s->plan;

    for (int i = 0; i < p->lanes; i++)
        for (size_t k = 0; k < p->lane[i].n; k++) {
            const struct sched_op *op = &p->lane[i].ops[k];
            bool up = op->kind == SCHED_SEND_F || op->kind == SCHED_RECV_B;
            bool down = op->kind == SCHED_RECV_F || op->kind == SCHED_SEND_B;
            if (!slow_inside(p, op) || slow_owner(p, op->stage, op->mb) != i)
                slow_add(s, i, op->stage, op->mb);
            else if ((up && op->stage == p->stages - 1) || (down && op->stage == 0))
                slow_add(s, i, op->stage, op->mb);
            if (op->pair) {
                const struct sched_op *next = k + 1 < p->lane[i].n ? op + 1 : NULL;
                bool good = next && !next->pair &&
                            ((op->kind == SCHED_F) != (next->kind == SCHED_F));
                int other = !next ? SCHED_W : op->kind == SCHED_F ? next->kind : op->kind;
                if (!good || (other != SCHED_B && other != SCHED_I))
                    slow_add(s, i, op->stage, op->mb);
            }
            s->trains |=
                op->kind == SCHED_B || op->kind == SCHED_I || op->kind == SCHED_W;
            s->comm |= op->kind >= SCHED_SEND_F && op->kind <= SCHED_RECV_B;
        }
}

/* SEND and RECV exist exactly where a result crosses lanes. */
static bool slow_crosses(const struct slow *s, int stage, int other, int mb)
{
    return s->comm && other >= 0 && other < s->plan->stages &&
           slow_owner(s->plan, stage, mb) != slow_owner(s->plan, other, mb);
}

/* Every op once, B or I with W, in their order, with the transfers that are needed. */
static bool slow_cell_is_good(struct slow *s, int stage, int mb)
{
    int n[SCHED_KIND_COUNT], at[SCHED_KIND_COUNT];
    bool up = slow_crosses(s, stage, stage + 1, mb);
    bool down = slow_crosses(s, stage, stage - 1, mb);
    int backward;

    slow_count(s, n, at, stage, mb);
    if (n[SCHED_F] != 1 || n[SCHED_I] != n[SCHED_W] ||
        n[SCHED_B] + n[SCHED_I] != s->trains || n[SCHED_SEND_F] != up ||
        n[SCHED_RECV_F] != down || n[SCHED_SEND_B] != (down && s->trains) ||
        n[SCHED_RECV_B] != (up && s->trains))
        return false;
    backward = at[n[SCHED_B] ? SCHED_B : SCHED_I];
    if (s->trains && (backward < at[SCHED_F] || (n[SCHED_W] && at[SCHED_W] < backward)))
        return false;
    return (!up || at[SCHED_SEND_F] > at[SCHED_F]) &&
           (!down || at[SCHED_RECV_F] < at[SCHED_F]) &&
           (!n[SCHED_SEND_B] || at[SCHED_SEND_B] > backward) &&
           (!n[SCHED_RECV_B] || at[SCHED_RECV_B] < backward);
}

/* For every two lanes, what one sends the other, in order, and what that receives. */
static void slow_orders(struct slow *s, int from, int to)
{
    const struct sched_lane *a = &s->plan->lane[from], *b = &s->plan->lane[to];
    size_t i = 0, j = 0;

    for (;;) {
        for (; i < a->n; i++) {
            const struct sched_op *op = &a->ops[i];
            int step = op->kind == SCHED_SEND_F ? 1 : op->kind == SCHED_SEND_B ? -1 : 0;
            if (step && slow_owner(s->plan, op->stage + step, op->mb) == to)
                break;
        }
        for (; j < b->n; j++) {
            const struct sched_op *op = &b->ops[j];
            int step = op->kind == SCHED_RECV_F ? -1 : op->kind == SCHED_RECV_B ? 1 : 0;
            if (step && slow_owner(s->plan, op->stage + step, op->mb) == from)
                break;
        }
        if (i == a->n || j == b->n)
            return;
        bool forward = a->ops[i].kind == SCHED_SEND_F;
        int stage = a->ops[i].stage + (forward ? 1 : -1);
        if (b->ops[j].kind != (forward ? SCHED_RECV_F : SCHED_RECV_B) ||
            b->ops[j].stage != stage || b->ops[j].mb != a->ops[i].mb) {
            slow_add(s, to, b->ops[j].stage, b->ops[j].mb);
            return;
        }
        i++;
        j++;
    }
}

/* ---- Running it, sweep after sweep ------------------------------------------------- */

struct slow_run {
    const struct slow *s;
    size_t *at; /* (lanes) */
    bool *done; /* (kinds, stages, micro_batches) */
};

static bool *slow_done(const struct slow_run *r, int kind, int stage, int mb)
{
    const struct sched_plan *p = r->s->plan;

    return &r->done[((size_t)kind * (size_t)p->stages + (size_t)stage) *
                        (size_t)p->micro_batches +
                    (size_t)mb];
}

/* The stage whose lane an op waits for; -1: it can run. */
static int slow_waits(const struct slow_run *r, const struct sched_op *op)
{
    const struct sched_plan *p = r->s->plan;
    int s = op->stage, mb = op->mb, step = op->kind == SCHED_F ? -1 : 1;
    bool backward = op->kind == SCHED_B || op->kind == SCHED_I;

    if ((op->kind == SCHED_SEND_F || backward) && !*slow_done(r, SCHED_F, s, mb))
        return s;
    if ((op->kind == SCHED_W || op->kind == SCHED_SEND_B) &&
        !*slow_done(r, SCHED_I, s, mb) && !*slow_done(r, SCHED_B, s, mb))
        return s;
    if (op->kind == SCHED_RECV_F && !*slow_done(r, SCHED_SEND_F, s - 1, mb))
        return s - 1;
    if (op->kind == SCHED_RECV_B && !*slow_done(r, SCHED_SEND_B, s + 1, mb))
        return s + 1;
    if ((op->kind != SCHED_F && !backward) || s + step < 0 || s + step >= p->stages)
        return -1;
    if (r->s->comm && slow_owner(p, s, mb) != slow_owner(p, s + step, mb))
        return *slow_done(r, backward ? SCHED_RECV_B : SCHED_RECV_F, s, mb) ? -1 : s;
    if (!backward)
        return *slow_done(r, SCHED_F, s - 1, mb) ? -1 : s - 1;
    return *slow_done(r, SCHED_I, s + 1, mb) || *slow_done(r, SCHED_B, s + 1, mb) ? -1
                                                                                  : s + 1;
}

/* The op at a lane's head that waits, and for which lane (-1: it does not wait). */
static const struct sched_op *slow_head(const struct slow_run *r, int lane, int *other)
{
    const struct sched_lane *l = &r->s->plan->lane[lane];
    const struct sched_op *op = &l->ops[r->at[lane]];

    for (int i = 0; i < 1 + op->pair; i++) {
        int stage = slow_waits(r, &op[i]);
        *other = stage < 0 ? -1 : slow_owner(r->s->plan, stage, op[i].mb);
        if (*other >= 0)
            return &op[i];
    }
    return op;
}

static bool slow_sweep(struct slow_run *r)
{
    const struct sched_plan *p = r->s->plan;
    bool progress = false;

    for (int i = 0; i < p->lanes; i++)
        while (r->at[i] < p->lane[i].n) {
            int other;
            const struct sched_op *op = slow_head(r, i, &other);
            if (other >= 0)
                break;
            op = &p->lane[i].ops[r->at[i]];
            for (int k = 0, n = 1 + op->pair; k < n; k++)
                *slow_done(r, op[k].kind, op[k].stage, op[k].mb) = true;
            r->at[i] += 1 + op->pair;
            progress = true;
        }
    return progress;
}

/* Lanes that wait for each other in a circle are at fault, each at its op that waits. */
static void slow_cycles(struct slow *s, const struct slow_run *r)
{
    const struct sched_plan *p = s->plan;

    for (int i = 0; i < p->lanes; i++) {
        int lane = i, other;
        const struct sched_op *op;
        if (r->at[i] == p->lane[i].n)
            continue;
        for (int step = 0; step < p->lanes; step++) {
            slow_head(r, lane, &other);
            lane = other;
            if (lane == i || r->at[lane] == p->lane[lane].n)
                break;
        }
        op = slow_head(r, i, &other);
        if (lane == i)
            slow_add(s, i, op->stage, op->mb);
    }
}

static void slow_runs(struct slow *s)
{
    const struct sched_plan *p = s->plan;
    struct slow_run r = {
        s, calloc((size_t)p->lanes, sizeof(size_t)),
        calloc(SCHED_KIND_COUNT, (size_t)p->stages * (size_t)p->micro_batches)};

    while (slow_sweep(&r))
        ;
    slow_cycles(s, &r);
    free(r.at);
    free(r.done);
}

/* Activations of a lane at most, in A, counted by summing over all that came before. */
static inline double slow_peak(const struct sched_plan *p, int lane)
{
    const struct sched_lane *l = &p->lane[lane];
    int peak = 0;
    bool trains = false;

    for (size_t k = 0; k < l->n; k++) {
        int held = 0;
        /* The second op of a pair still has all that the first one had. */
        size_t before = k && l->ops[k - 1].pair ? k - 1 : k;
        for (size_t i = 0; i <= k; i++)
            held += l->ops[i].kind == SCHED_F;
        held += l->ops[k].pair && l->ops[k].kind != SCHED_F;
        for (size_t i = 0; i < before; i++)
            held -= l->ops[i].kind == SCHED_B || l->ops[i].kind == SCHED_W;
        peak = held > peak ? held : peak;
        trains |= l->ops[k].kind == SCHED_B || l->ops[k].kind == SCHED_W;
    }
    if (!trains && peak > 1)
        peak = 1;
    return (double)peak * p->lanes / p->stages;
}

/* True if the plan is good; else the faults are in s. */
static inline bool slow_check(struct slow *s, const struct sched_plan *plan)
{
    memset(s, 0, sizeof(*s));
    s->plan = plan;
    slow_places(s);
    if (s->faults)
        return false;
    for (int mb = 0; mb < plan->micro_batches; mb++)
        for (int stage = 0; stage < plan->stages; stage++) {
            if (!slow_cell_is_good(s, stage, mb))
                slow_add(s, slow_owner(plan, stage, mb), stage, mb);
        }
    for (int a = 0; a < plan->lanes && s->comm; a++)
        for (int b = 0; b < plan->lanes; b++)
            slow_orders(s, a, b);
    if (!s->faults)
        slow_runs(s);
    return s->faults == 0;
}

#endif
