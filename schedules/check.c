/* Refuses plans that are incomplete, cannot run, or need too much memory, and names the
 * fault. */
#include "schedules/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct sched_plan *plan;
    struct sched_error *err;
    bool training;  /* some op is part of a backward */
    bool comm;      /* some op is a transfer */
    size_t cells;   /* stages x micro-batches */
    uint8_t *marks; /* (micro_batches, stages) of 1 << kind, for what has been seen */
    bool *stepped;  /* (stages, 2) of copies */
};

static int fault(const struct check *c, int lane, const struct sched_op *op,
                 const char *what)
{
    char text[SCHED_OP_TEXT];

    return sched_fail(c->err, -EINVAL, lane, op->stage, op->mb, "%s %s",
                      sched_op_print(text, op), what);
}

/* ---- Ops one by one ---------------------------------------------------------------- */

static int op_check_range(const struct sched_plan *plan, int lane,
                          const struct sched_op *op, struct sched_error *err)
{
    bool up = op->kind == SCHED_SEND_F || op->kind == SCHED_RECV_B;
    bool down = op->kind == SCHED_RECV_F || op->kind == SCHED_SEND_B;
    char text[SCHED_OP_TEXT];
    int owner;

    if (op->kind >= SCHED_KIND_COUNT || op->stage < 0 || op->stage >= plan->stages ||
        op->mb < 0 || op->mb >= plan->micro_batches)
        return sched_fail(err, -EINVAL, lane, op->stage, op->mb,
                          "%s is outside of %d stages and %d micro-batches",
                          sched_op_print(text, op), plan->stages, plan->micro_batches);
    if ((up && op->stage == plan->stages - 1) || (down && op->stage == 0))
        return sched_fail(err, -EINVAL, lane, op->stage, op->mb,
                          "%s: there is no stage on that side", sched_op_print(text, op));
    owner = sched_plan_lane(plan, op->stage, op->mb);
    if (owner != lane && op->kind != SCHED_STEP)
        return sched_fail(err, -EINVAL, lane, op->stage, op->mb,
                          "%s runs here, but the stage is on lane %d",
                          sched_op_print(text, op), owner);
    return 0;
}

/* A pair is a forward and a backward that follow each other on a lane, neither part of
 * another pair. */
static int op_check_pair(int lane, const struct sched_op *op, size_t left,
                         struct sched_error *err)
{
    char text[SCHED_OP_TEXT];

    if (!op->pair)
        return 0;
    if (left > 1 && !op[1].pair) {
        const struct sched_op *f = op->kind == SCHED_F ? op : op + 1;
        const struct sched_op *b = op->kind == SCHED_F ? op + 1 : op;
        if (f->kind == SCHED_F && (b->kind == SCHED_B || b->kind == SCHED_I))
            return 0;
    }
    return sched_fail(
        err, -EINVAL, lane, op->stage, op->mb,
        "%s is paired, but not with a forward and a backward that follow each other",
        sched_op_print(text, op));
}

int sched_check_ops(const struct sched_plan *plan, struct sched_error *err)
{
    int rc = 0;

    for (int s = 0; s < plan->copies * plan->stages; s++)
        if (plan->stage_lane[s] < 0 || plan->stage_lane[s] >= plan->lanes)
            return sched_fail(err, -EINVAL, -1, s % plan->stages, -1,
                              "the stage is on no lane");
    for (int i = 0; i < plan->lanes; i++) {
        const struct sched_lane *l = &plan->lane[i];
        for (size_t k = 0; k < l->n && !rc; k++) {
            rc = op_check_range(plan, i, &l->ops[k], err);
            rc = rc ? rc : op_check_pair(i, &l->ops[k], l->n - k, err);
        }
    }
    return rc;
}

/* ---- Complete, and in order within each lane --------------------------------------- */

/* Finds the first forward that is missing, when there are fewer forwards than cells. It
 * needs no table of cells: a hostile file may have billions of them in a few ops. */
static int find_missing(const struct check *c, const size_t *forwards)
{
    const struct sched_plan *plan = c->plan;
    struct sched_op op = {.kind = SCHED_F};
    bool *seen = calloc((size_t)plan->micro_batches, sizeof(*seen));

    if (!seen)
        return -ENOMEM;
    while (op.stage < plan->stages - 1 &&
           forwards[op.stage] >= (size_t)plan->micro_batches)
        op.stage++;
    for (int i = 0; i < plan->lanes; i++)
        for (size_t k = 0; k < plan->lane[i].n; k++)
            if (plan->lane[i].ops[k].kind == SCHED_F &&
                plan->lane[i].ops[k].stage == op.stage)
                seen[plan->lane[i].ops[k].mb] = true;
    while (op.mb < plan->micro_batches - 1 && seen[op.mb])
        op.mb++;
    free(seen);
    return fault(c, sched_plan_lane(plan, op.stage, op.mb), &op, "is missing");
}

/* Counts what kinds of ops there are; refuses a plan with fewer forwards than cells. */
static int check_count(struct check *c)
{
    const struct sched_plan *plan = c->plan;
    size_t *forwards = calloc((size_t)plan->stages, sizeof(*forwards)), n = 0;
    int rc = 0;

    if (!forwards)
        return -ENOMEM;
    for (int i = 0; i < plan->lanes; i++)
        for (size_t k = 0; k < plan->lane[i].n; k++) {
            const struct sched_op *op = &plan->lane[i].ops[k];
            c->training |= sched_kind_computes(op->kind) && op->kind != SCHED_F;
            c->comm |= op->kind >= SCHED_SEND_F && op->kind <= SCHED_RECV_B;
            if (op->kind == SCHED_F) {
                forwards[op->stage]++;
                n++;
            }
        }
    if (n < c->cells)
        rc = find_missing(c, forwards);
    free(forwards);
    return rc;
}

static uint8_t *marks_of(const struct check *c, int stage, int mb)
{
    return &c->marks[(size_t)mb * (size_t)c->plan->stages + (size_t)stage];
}

#define SEEN(kind) (1u << SCHED_##kind)

/* What is wrong with an op, given what its lane has done for its stage and micro-batch so
 * far. */
static const char *op_fault(const struct sched_op *op, unsigned seen)
{
    if (op->kind != SCHED_STEP && seen & (1u << op->kind))
        return "is there twice";
    switch (op->kind) {
    case SCHED_B:
        if (seen & (SEEN(I) | SEEN(W)))
            return "is there together with I or W: the backward would run twice";
        return seen & SEEN(F) ? NULL : "comes before its F";
    case SCHED_I:
        if (seen & SEEN(B))
            return "is there together with B: the backward would run twice";
        return seen & SEEN(F) ? NULL : "comes before its F";
    case SCHED_W:
        if (seen & SEEN(B))
            return "is there together with B: the backward would run twice";
        return seen & SEEN(I) ? NULL : "comes before its I";
    case SCHED_SEND_F:
        return seen & SEEN(F) ? NULL : "comes before its F";
    case SCHED_SEND_B:
        return seen & (SEEN(B) | SEEN(I)) ? NULL : "comes before its backward";
    case SCHED_RECV_F:
        return seen & SEEN(F) ? "comes after the F that needs it" : NULL;
    case SCHED_RECV_B:
        return seen & (SEEN(B) | SEEN(I)) ? "comes after the backward that needs it"
                                          : NULL;
    }
    return NULL;
}

/* STEP stands once per stage and copy, behind all else of its stage on its lane. */
static int check_step(struct check *c, int lane, const struct sched_op *op)
{
    const struct sched_plan *plan = c->plan;

    for (int copy = 0; copy < plan->copies; copy++) {
        bool here =
            plan->stage_lane[(size_t)copy * (size_t)plan->stages + (size_t)op->stage] ==
            lane;
        bool *stepped = &c->stepped[2 * (size_t)op->stage + (size_t)copy];
        if (!here)
            continue;
        if (*stepped && op->kind == SCHED_STEP)
            return fault(c, lane, op, "is there twice");
        if (*stepped && sched_kind_computes(op->kind))
            return fault(c, lane, op, "comes after its stage's STEP");
        if (op->kind == SCHED_STEP) {
            *stepped = true;
            return 0;
        }
    }
    return op->kind == SCHED_STEP
               ? fault(c, lane, op, "runs here, but its stage does not")
               : 0;
}

static int check_lane_order(struct check *c, int lane)
{
    const struct sched_lane *l = &c->plan->lane[lane];

    for (size_t k = 0; k < l->n; k++) {
        uint8_t *seen = marks_of(c, l->ops[k].stage, l->ops[k].mb);
        const char *what = op_fault(&l->ops[k], *seen);
        int rc =
            what ? fault(c, lane, &l->ops[k], what) : check_step(c, lane, &l->ops[k]);
        if (rc)
            return rc;
        if (l->ops[k].kind != SCHED_STEP)
            *seen |= (uint8_t)(1u << l->ops[k].kind);
    }
    return 0;
}

static int missing(const struct check *c, enum sched_kind kind, int stage, int mb,
                   const char *what)
{
    struct sched_op op = {.kind = (uint8_t)kind, .stage = stage, .mb = mb};

    return fault(c, sched_plan_lane(c->plan, stage, mb), &op, what);
}

/* The transfer of a result that stage `from` has produced for the stage next to it. */
static int check_transfer(const struct check *c, int from, int to, int mb)
{
    bool forward = to > from;
    enum sched_kind send = forward ? SCHED_SEND_F : SCHED_SEND_B;
    enum sched_kind recv = forward ? SCHED_RECV_F : SCHED_RECV_B;
    bool sent = *marks_of(c, from, mb) & (1u << send);
    bool received = *marks_of(c, to, mb) & (1u << recv);
    bool apart = sched_plan_lane(c->plan, from, mb) != sched_plan_lane(c->plan, to, mb);

    if (!apart && (sent || received))
        return missing(c, sent ? send : recv, sent ? from : to, mb,
                       "is not needed: both stages are on this lane");
    if (apart && !sent)
        return missing(c, send, from, mb,
                       received ? "is missing, but it is received" : "is missing");
    if (apart && !received)
        return missing(c, recv, to, mb, "is missing, but it is sent");
    return 0;
}

static int check_cell(const struct check *c, int stage, int mb)
{
    unsigned seen = *marks_of(c, stage, mb);
    int rc = 0;

    if (!(seen & SEEN(F)))
        return missing(c, SCHED_F, stage, mb, "is missing");
    if (c->training && !(seen & (SEEN(B) | SEEN(I))))
        return missing(c, SCHED_B, stage, mb, "is missing, and there is no I either");
    if (seen & SEEN(I) && !(seen & SEEN(W)))
        return missing(c, SCHED_W, stage, mb, "is missing, but there is an I");
    if (c->comm && stage + 1 < c->plan->stages) {
        rc = check_transfer(c, stage, stage + 1, mb);
        if (!rc && c->training)
            rc = check_transfer(c, stage + 1, stage, mb);
    }
    return rc;
}

static int check_complete(struct check *c)
{
    int rc = 0;

    for (int i = 0; i < c->plan->lanes && !rc; i++)
        rc = check_lane_order(c, i);
    for (int mb = 0; mb < c->plan->micro_batches && !rc; mb++)
        for (int s = 0; s < c->plan->stages && !rc; s++)
            rc = check_cell(c, s, mb);
    return rc;
}

/* ---- Both sides of a transfer in one order ----------------------------------------- */

/* Counters of one lane for every other lane, which need no clearing between lanes. */
struct counters {
    uint32_t *n;  /* (lanes) */
    int *counted; /* (lanes) the lane that the count is for, + 1 */
};

static uint32_t counters_next(struct counters *c, int lane, int other)
{
    if (c->counted[other] != lane + 1)
        c->n[other] = 0;
    c->counted[other] = lane + 1;
    return c->n[other]++;
}

/* Where a SEND's or RECV's number is kept: by what is sent. */
static uint32_t *number_of(const struct check *c, uint32_t *numbers,
                           const struct sched_op *op)
{
    bool backward = op->kind == SCHED_SEND_B || op->kind == SCHED_RECV_B;
    int from = op->stage;

    if (op->kind == SCHED_RECV_F)
        from--;
    if (op->kind == SCHED_RECV_B)
        from++;
    return &numbers[2 * ((size_t)op->mb * (size_t)c->plan->stages + (size_t)from) +
                    backward];
}

static int other_lane(const struct sched_plan *plan, const struct sched_op *op)
{
    bool up = op->kind == SCHED_SEND_F || op->kind == SCHED_RECV_B;

    return sched_plan_lane(plan, op->stage + (up ? 1 : -1), op->mb);
}

static void number_sends(const struct check *c, uint32_t *numbers,
                         struct counters *counters)
{
    for (int i = 0; i < c->plan->lanes; i++)
        for (size_t k = 0; k < c->plan->lane[i].n; k++) {
            const struct sched_op *op = &c->plan->lane[i].ops[k];
            if (op->kind == SCHED_SEND_F || op->kind == SCHED_SEND_B)
                *number_of(c, numbers, op) =
                    counters_next(counters, i, other_lane(c->plan, op));
        }
}

static int compare_recvs(const struct check *c, uint32_t *numbers,
                         struct counters *counters, int lane)
{
    const struct sched_lane *l = &c->plan->lane[lane];
    char text[SCHED_OP_TEXT];

    for (size_t k = 0; k < l->n; k++) {
        const struct sched_op *op = &l->ops[k];
        int from = other_lane(c->plan, op);
        uint32_t sent, here;
        if (op->kind != SCHED_RECV_F && op->kind != SCHED_RECV_B)
            continue;
        sent = *number_of(c, numbers, op);
        here = counters_next(counters, lane, from);
        if (sent != here)
            return sched_fail(
                c->err, -EINVAL, lane, op->stage, op->mb,
                "%s is number %u of what comes from lane %d, which sends it as number "
                "%u: both sides must have one order",
                sched_op_print(text, op), here + 1, from, sent + 1);
    }
    return 0;
}

static int check_transfers(const struct check *c)
{
    size_t lanes = (size_t)c->plan->lanes;
    uint32_t *numbers = calloc(2 * c->cells, sizeof(*numbers));
    struct counters counters = {calloc(2 * lanes, sizeof(uint32_t)),
                                calloc(lanes, sizeof(int))};
    int rc = numbers && counters.n && counters.counted ? 0 : -ENOMEM;

    if (!rc) {
        number_sends(c, numbers, &counters);
        memset(counters.counted, 0, lanes * sizeof(int));
    }
    for (int i = 0; i < c->plan->lanes && !rc; i++)
        rc = compare_recvs(c, numbers, &counters, i);
    free(numbers);
    free(counters.n);
    free(counters.counted);
    return rc;
}

/* ---- Memory ------------------------------------------------------------------------ */

static bool releases(const struct sched_op *op)
{
    return op->kind == SCHED_B || op->kind == SCHED_W;
}

/* Chunks of activations alive at most, and the op at which they first are. In a pair the
 * forward's come before the backward's go. */
static size_t lane_peak(const struct sched_lane *l, size_t *at)
{
    size_t alive = 0, peak = 0;

    *at = 0;
    for (size_t k = 0; k < l->n; k++) {
        size_t n = l->ops[k].pair && k + 1 < l->n ? 2 : 1, gone = 0;
        for (size_t i = k; i < k + n; i++) {
            alive += l->ops[i].kind == SCHED_F;
            gone += releases(&l->ops[i]);
        }
        if (alive > peak) {
            peak = alive;
            *at = k;
        }
        alive -= gone < alive ? gone : alive;
        k += n - 1;
    }
    return peak;
}

static bool lane_trains(const struct sched_lane *l)
{
    for (size_t k = 0; k < l->n; k++)
        if (releases(&l->ops[k]))
            return true;
    return false;
}

double sched_peak(const struct sched_plan *plan, int lane)
{
    size_t at, chunks = lane_peak(&plan->lane[lane], &at);

    if (chunks > 1 && !lane_trains(&plan->lane[lane]))
        chunks = 1;
    return (double)chunks * plan->lanes / plan->stages;
}

static int check_memory(const struct check *c, double cap)
{
    char text[SCHED_OP_TEXT];

    for (int i = 0; i < c->plan->lanes; i++) {
        double peak = sched_peak(c->plan, i);
        const struct sched_op *op;
        size_t at;
        if (peak <= cap + 1e-9)
            continue;
        lane_peak(&c->plan->lane[i], &at);
        op = &c->plan->lane[i].ops[at];
        return sched_fail(c->err, -EINVAL, i, op->stage, op->mb,
                          "activations peak at %g with %s, over the cap of %g", peak,
                          sched_op_print(text, op), cap);
    }
    return 0;
}

/* ---- All of it --------------------------------------------------------------------- */

static int visit_nothing(void *user, int lane, size_t index)
{
    (void)user;
    (void)lane;
    (void)index;
    return 0;
}

static int check_init(struct check *c)
{
    c->marks = calloc(c->cells, sizeof(*c->marks));
    c->stepped = calloc((size_t)c->plan->stages, 2 * sizeof(*c->stepped));
    return c->marks && c->stepped ? 0 : -ENOMEM;
}

int sched_check(const struct sched_plan *plan, double cap, struct sched_error *err)
{
    struct check c = {.plan = plan,
                      .err = err,
                      .cells = (size_t)plan->stages * (size_t)plan->micro_batches};
    int rc = sched_check_ops(plan, err);

    rc = rc ? rc : check_count(&c);
    rc = rc ? rc : check_init(&c);
    rc = rc ? rc : check_complete(&c);
    if (!rc && c.comm)
        rc = check_transfers(&c);
    rc = rc ? rc : sched_walk(plan, visit_nothing, NULL, err);
    if (!rc && cap > 0)
        rc = check_memory(&c, cap);
    if (rc == -ENOMEM)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    free(c.marks);
    free(c.stepped);
    return rc;
}
