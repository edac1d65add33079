/* Reads a plan from CSV that anybody may have written. */
#include "schedules/csv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rows {
    struct sched_lane *lane; /* (n) */
    int n, cap;
    size_t ops;
    int last_stage, last_mb; /* the highest seen; -1: none */
};

/* A piece of the text, white space and quotes around it taken off. */
struct cell {
    const char *text;
    size_t len;
    int row, column;
};

static int fail_cell(const struct cell *c, struct sched_error *err, const char *what)
{
    char shown[33];
    size_t n = c->len < 32 ? c->len : 32;

    for (size_t i = 0; i < n; i++)
        shown[i] = isprint((unsigned char)c->text[i]) ? c->text[i] : '?';
    shown[n] = 0;
    return sched_fail(err, -EINVAL, c->row, -1, -1, "line %d, cell %d: \"%s\" %s",
                      c->row + 1, c->column + 1, shown, what);
}

static struct cell trim(struct cell c)
{
    while (c.len && isspace((unsigned char)c.text[0])) {
        c.text++;
        c.len--;
    }
    while (c.len && isspace((unsigned char)c.text[c.len - 1]))
        c.len--;
    return c;
}

/* ---- Cells to ops ------------------------------------------------------------------ */

static int rows_add_row(struct rows *r)
{
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 16;
        struct sched_lane *lane = realloc(r->lane, (size_t)cap * sizeof(*lane));
        if (!lane)
            return -ENOMEM;
        r->lane = lane;
        r->cap = cap;
    }
    r->lane[r->n++] = (struct sched_lane){0};
    return 0;
}

static int rows_add_op(struct rows *r, struct sched_op op)
{
    struct sched_lane *l = &r->lane[r->n - 1];

    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16;
        struct sched_op *ops = realloc(l->ops, cap * sizeof(*ops));
        if (!ops)
            return -ENOMEM;
        l->ops = ops;
        l->cap = cap;
    }
    l->ops[l->n++] = op;
    r->ops++;
    if (op.stage > r->last_stage)
        r->last_stage = op.stage;
    if (op.mb > r->last_mb)
        r->last_mb = op.mb;
    return 0;
}

/* Is this an op that says nothing about the order of the work, such as 2UNSHARD or
 * 1WAIT_SEND_F0? */
static bool is_skipped(const struct cell *c)
{
    static const char *const names[] = {"UNSHARD",     "RESHARD",     "REDUCE_GRAD",
                                        "WAIT_SEND_F", "WAIT_SEND_B", "WAIT_REDUCE_GRAD"};
    size_t from = 0, end = c->len;

    while (from < end && isdigit((unsigned char)c->text[from]))
        from++;
    while (end > from && isdigit((unsigned char)c->text[end - 1]))
        end--;
    for (size_t i = 0; from && i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == end - from &&
            !memcmp(names[i], c->text + from, end - from))
            return true;
    return false;
}

static int read_op(struct rows *r, struct cell c, bool pair, struct sched_error *err)
{
    struct sched_op op;

    c = trim(c);
    if (sched_op_parse(&op, c.text, c.len))
        return fail_cell(&c, err, "is no op such as 2F0");
    op.pair = pair;
    return rows_add_op(r, op);
}

/* "(0F1;3B0)OVERLAP_F_B" */
static int read_pair(struct rows *r, const struct cell *c, struct sched_error *err)
{
    static const char kind[] = "OVERLAP_F_B";
    const char *semicolon = memchr(c->text, ';', c->len),
               *close = memchr(c->text, ')', c->len);
    struct cell first = *c, second = *c, tail = *c;
    int rc;

    if (!semicolon || !close || semicolon > close)
        return fail_cell(c, err, "is no pair such as (0F1;3B0)OVERLAP_F_B");
    tail.text = close + 1;
    tail.len = c->len - (size_t)(tail.text - c->text);
    tail = trim(tail);
    if (tail.len != strlen(kind) || memcmp(tail.text, kind, tail.len))
        return fail_cell(c, err, "is no pair such as (0F1;3B0)OVERLAP_F_B");
    first.text = c->text + 1;
    first.len = (size_t)(semicolon - first.text);
    second.text = semicolon + 1;
    second.len = (size_t)(close - second.text);
    rc = read_op(r, first, true, err);
    return rc ? rc : read_op(r, second, false, err);
}

static int read_cell(struct rows *r, struct cell c, struct sched_error *err)
{
    c = trim(c);
    if (c.len >= 2 && c.text[0] == '"' && c.text[c.len - 1] == '"') {
        c.text++;
        c.len -= 2;
        c = trim(c);
    }
    if (!c.len || is_skipped(&c))
        return 0;
    return c.text[0] == '(' ? read_pair(r, &c, err) : read_op(r, c, false, err);
}

static int read_row(struct rows *r, const char *text, const char *end,
                    struct sched_error *err)
{
    struct cell c = {.row = r->n};
    int rc = 0;

    if (r->n == SCHED_MAX_LANES)
        return sched_fail(err, -EINVAL, -1, -1, -1, "more than %d rows", SCHED_MAX_LANES);
    if (rows_add_row(r))
        return -ENOMEM;
    while (text <= end && !rc) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        c.text = text;
        c.len = (size_t)((comma ? comma : end) - text);
        rc = read_cell(r, c, err);
        c.column++;
        text += c.len + 1;
    }
    return rc;
}

static int read_rows(struct rows *r, const char *text, size_t len,
                     struct sched_error *err)
{
    const char *end = text + len;
    int rc = 0;

    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        text += 3; /* the mark that some spreadsheets put before UTF-8 */
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    while (text < end && !rc) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        rc = read_row(r, text, newline ? newline : end, err);
        text = newline ? newline + 1 : end;
    }
    return rc;
}

/* ---- Rows to a plan ---------------------------------------------------------------- */

/* The lowest stage (or micro-batch) that no op has, if there are fewer ops than the
 * highest promises: so that a hostile number makes no large table. */
static int check_gap(const struct rows *r, bool stages, struct sched_error *err)
{
    int last = stages ? r->last_stage : r->last_mb, lowest = 0;
    bool *seen;

    if ((size_t)last < r->ops)
        return 0;
    seen = calloc(r->ops + 1, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
    for (int i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->lane[i].n; k++) {
            int number = stages ? r->lane[i].ops[k].stage : r->lane[i].ops[k].mb;
            if ((size_t)number < r->ops)
                seen[number] = true;
        }
    while (seen[lowest])
        lowest++;
    free(seen);
    return sched_fail(err, -EINVAL, -1, stages ? lowest : -1, stages ? -1 : lowest,
                      "no lane has an op of it, but there is one of %s %d",
                      stages ? "stage" : "micro-batch", last);
}

/* Majority vote of a stage's ops about its lane. */
struct vote {
    int lane;
    int64_t lead;
};

static void vote_count(struct vote *v, int lane)
{
    if (v->lead == 0)
        v->lane = lane;
    v->lead += v->lane == lane ? 1 : -1;
}

/* votes: (3, stages): by the first half of the micro-batches, the second, and all. */
static void count_votes(struct vote *votes, const struct rows *r,
                        const struct sched_plan *plan)
{
    int half = (plan->micro_batches + 1) / 2;

    for (int s = 0; s < 3 * plan->stages; s++)
        votes[s] = (struct vote){-1, 0};
    for (int i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->lane[i].n; k++) {
            const struct sched_op *op = &r->lane[i].ops[k];
            if (!sched_kind_computes(op->kind))
                continue;
            vote_count(&votes[(op->mb < half ? 0 : plan->stages) + op->stage], i);
            vote_count(&votes[2 * plan->stages + op->stage], i);
        }
}

/* Do the two halves of the micro-batches run every stage on two lanes (but the one in the
 * middle)? */
static bool is_two_way(const struct vote *votes, int stages)
{
    for (int s = 0; s < stages; s++) {
        int first = votes[s].lane, second = votes[stages + s].lane;
        if (first < 0 || second < 0 || (first == second && 2 * s != stages - 1))
            return false;
    }
    return stages > 1;
}

static int place_stages(struct sched_plan *plan, const struct rows *r)
{
    size_t stages = (size_t)plan->stages;
    struct vote *votes = malloc(3 * stages * sizeof(*votes));
    int *places;

    if (!votes)
        return -ENOMEM;
    count_votes(votes, r, plan);
    plan->copies = is_two_way(votes, plan->stages) ? 2 : 1;
    places = realloc(plan->stage_lane, (size_t)plan->copies * stages * sizeof(*places));
    if (!places) {
        free(votes);
        return -ENOMEM;
    }
    plan->stage_lane = places;
    for (size_t s = 0; s < (size_t)plan->copies * stages; s++)
        places[s] = votes[plan->copies > 1 ? s : 2 * stages + s].lane;
    free(votes);
    return 0;
}

static void set_peers(struct sched_plan *plan)
{
    for (int i = 0; i < plan->lanes; i++)
        for (size_t k = 0; k < plan->lane[i].n; k++) {
            struct sched_op *op = &plan->lane[i].ops[k];
            bool up = op->kind == SCHED_SEND_F || op->kind == SCHED_RECV_B;
            int peer;
            if (sched_kind_computes(op->kind) || op->kind == SCHED_STEP)
                continue;
            peer = sched_plan_lane(plan, op->stage + (up ? 1 : -1), op->mb);
            op->peer = (uint16_t)(peer < 0 ? 0 : peer);
        }
}

static int plan_from_rows(struct sched_plan *plan, struct rows *r, int micro_batches,
                          struct sched_error *err)
{
    int rc;

    if (!r->ops)
        return sched_fail(err, -EINVAL, -1, -1, -1, "there are no ops");
    rc = check_gap(r, true, err);
    rc = rc ? rc : check_gap(r, false, err);
    rc = rc ? rc
            : sched_plan_init(plan, "file", r->n, r->last_stage + 1,
                              micro_batches ? micro_batches : r->last_mb + 1);
    if (rc)
        return rc;
    rc = place_stages(plan, r);
    if (rc) {
        sched_plan_fini(plan);
        return rc;
    }
    for (int i = 0; i < r->n; i++) {
        plan->lane[i] = r->lane[i];
        r->lane[i] = (struct sched_lane){0};
    }
    set_peers(plan);
    return 0;
}

int sched_csv_parse(struct sched_plan *plan, const char *text, size_t len,
                    int micro_batches, struct sched_error *err)
{
    struct rows r = {.last_stage = -1, .last_mb = -1};
    int rc = read_rows(&r, text, len, err);

    memset(plan, 0, sizeof(*plan));
    rc = rc ? rc : plan_from_rows(plan, &r, micro_batches, err);
    if (rc == -ENOMEM)
        sched_fail(err, rc, -1, -1, -1, "out of memory");
    for (int i = 0; i < r.n; i++)
        free(r.lane[i].ops);
    free(r.lane);
    return rc;
}

int sched_csv_read(struct sched_plan *plan, FILE *file, int micro_batches,
                   struct sched_error *err)
{
    size_t len = 0, cap = 0, got;
    char *text = NULL;
    int rc = 0;

    memset(plan, 0, sizeof(*plan));
    do {
        if (len == cap) {
            char *bigger = realloc(text, cap ? 2 * cap : 65536);
            if (!bigger) {
                rc = sched_fail(err, -ENOMEM, -1, -1, -1, "out of memory");
                break;
            }
            text = bigger;
            cap = cap ? 2 * cap : 65536;
        }
        got = fread(text + len, 1, cap - len, file);
        len += got;
    } while (got);
    if (!rc && ferror(file))
        rc = sched_fail(err, -EIO, -1, -1, -1, "%s", strerror(errno));
    if (!rc)
        rc = sched_csv_parse(plan, text, len, micro_batches, err);
    free(text);
    return rc;
}
