/* Writes a plan as CSV. */
#include "schedules/csv.h"

#include <errno.h>
#include <stdlib.h>

struct writer {
    const struct sched_plan *plan;
    FILE *file;
    bool *sent; /* (micro_batches, stages) forwards sent and not yet waited for;
                   NULL: no transfers */
    bool began; /* the row has a cell */
};

/* NULL: there are no transfers to wait for, or the op is none of the plan's. */
static bool *sent_of(const struct writer *w, const struct sched_op *op)
{
    if (!w->sent || op->stage < 0 || op->stage >= w->plan->stages || op->mb < 0 ||
        op->mb >= w->plan->micro_batches)
        return NULL;
    return &w->sent[(size_t)op->mb * (size_t)w->plan->stages + (size_t)op->stage];
}

static void put(struct writer *w, const struct sched_op *op)
{
    char text[SCHED_OP_TEXT];

    fprintf(w->file, "%s%s", w->began ? "," : "", sched_op_print(text, op));
    w->began = true;
}

static void put_pair(struct writer *w, const struct sched_op *op)
{
    char first[SCHED_OP_TEXT], second[SCHED_OP_TEXT];

    fprintf(w->file, "%s(%s;%s)OVERLAP_F_B", w->began ? "," : "",
            sched_op_print(first, op), sched_op_print(second, op + 1));
    w->began = true;
}

static void put_wait(struct writer *w, const struct sched_op *op, const char *name)
{
    fprintf(w->file, ",%dWAIT_%s%d", (int)op->stage, name, (int)op->mb);
}

/* A forward's transfer is over for sure once its gradient has come back. */
static void after_op(struct writer *w, const struct sched_op *op)
{
    bool *sent = sent_of(w, op);

    if (!sent)
        return;
    if (op->kind == SCHED_SEND_F)
        *sent = true;
    if ((op->kind == SCHED_B || op->kind == SCHED_I) && *sent) {
        *sent = false;
        put_wait(w, op, "SEND_F");
    }
}

static void put_last_waits(struct writer *w, const struct sched_lane *l)
{
    for (size_t k = 0; k < l->n; k++) {
        const struct sched_op *op = &l->ops[k];
        const bool *sent = sent_of(w, op);
        if (op->kind == SCHED_SEND_B || (op->kind == SCHED_SEND_F && sent && *sent))
            put_wait(w, op, sched_kind_name(op->kind));
    }
}

static void put_lane(struct writer *w, const struct sched_lane *l)
{
    w->began = false;
    for (size_t k = 0; k < l->n; k++) {
        if (l->ops[k].pair && k + 1 < l->n) {
            put_pair(w, &l->ops[k]);
            after_op(w, &l->ops[k++]);
        } else {
            put(w, &l->ops[k]);
        }
        after_op(w, &l->ops[k]);
    }
    if (w->sent)
        put_last_waits(w, l);
    fputc('\n', w->file);
}

int sched_csv_write(const struct sched_plan *plan, FILE *file)
{
    struct writer w = {.plan = plan, .file = file};

    if (sched_plan_has_comm(plan)) {
        w.sent = calloc((size_t)plan->stages, (size_t)plan->micro_batches);
        if (!w.sent)
            return -ENOMEM;
    }
    for (int i = 0; i < plan->lanes; i++)
        put_lane(&w, &plan->lane[i]);
    free(w.sent);
    return ferror(file) ? -EIO : 0;
}
