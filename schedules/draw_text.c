/* Plans as rows of characters, with tables of lanes and edges below. */
#include "schedules/draw.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COLUMNS 100000

/* What stands in one column of a lane's row. */
struct column {
    char text;
    uint8_t kind;  /* SCHED_KIND_COUNT: idle */
    uint8_t later; /* not the lane's first chunk */
};

int sched_draw_chunk(const struct sched_plan *plan, const struct sched_op *op)
{
    if (plan->copies > 1)
        return (int)((int64_t)op->mb * plan->copies / plan->micro_batches);
    return op->stage / plan->lanes;
}

double sched_draw_shortest(const struct sched_plan *plan, const struct sched_sim *sim)
{
    double shortest = INFINITY;

    for (int s = 0; s < plan->stages; s++) {
        const struct sched_cost *c = &sim->cost[s];
        const double times[] = {c->f, c->i, c->w, c->b};
        for (int i = 0; i < 4; i++)
            if (times[i] > 0 && times[i] < shortest)
                shortest = times[i];
    }
    return isinf(shortest) ? 0 : shortest;
}

/* Columns per unit of time: room for kind, micro-batch and a gap in the shortest op. */
static double text_scale(const struct sched_plan *plan, const struct sched_sim *sim)
{
    int label = 2 + snprintf(NULL, 0, "%d", plan->micro_batches - 1);
    double shortest = sched_draw_shortest(plan, sim), scale;

    if (shortest <= 0 || sim->makespan <= 0)
        return 1;
    scale = label / shortest;
    return scale * sim->makespan > MOST_COLUMNS ? MOST_COLUMNS / sim->makespan : scale;
}

/* "B3--- ": kind and micro-batch, then dashes to the op's end, and a gap where there is
 * room. */
static void put_op(struct column *row, int columns, const struct sched_plan *plan,
                   const struct sched_op *op, int from, int to)
{
    char label[SCHED_OP_TEXT];
    bool later = sched_draw_chunk(plan, op) > 0;
    int len =
        snprintf(label, sizeof(label), "%s%d", sched_kind_name(op->kind), (int)op->mb);

    if (later)
        label[0] = (char)tolower((unsigned char)label[0]);
    for (int i = from; i < to && i < columns; i++) {
        int at = i - from;
        char text = at < len ? label[at] : '-';
        if (at >= len && i == to - 1)
            text = ' ';
        row[i] = (struct column){text, op->kind, later};
    }
}

/* The two ops of a pair share its time. */
static void fill_row(struct column *row, int columns, const struct sched_plan *plan,
                     const struct sched_sim *sim, int lane, double scale)
{
    const struct sched_lane *l = &plan->lane[lane];

    for (int i = 0; i < columns; i++)
        row[i] = (struct column){'.', SCHED_KIND_COUNT, 0};
    for (size_t k = 0; k < l->n; k++) {
        struct sched_span span = sim->lane[lane].span[k];
        double middle = (span.start + span.end) / 2;
        if (!sched_kind_computes(l->ops[k].kind))
            continue;
        if (l->ops[k].pair)
            span.end = middle;
        else if (k && l->ops[k - 1].pair)
            span.start = middle;
        put_op(row, columns, plan, &l->ops[k], (int)lround(span.start * scale),
               (int)lround(span.end * scale));
    }
}

/* Backgrounds that stay apart for colour-blind readers; a lane's later chunks are
 * darker. */
static void put_colour(FILE *file, struct column c)
{
    static const char *const codes[SCHED_KIND_COUNT + 1][2] = {
        [SCHED_F] = {"30;48;5;117", "97;48;5;25"},
        [SCHED_B] = {"30;48;5;215", "97;48;5;130"},
        [SCHED_I] = {"30;48;5;228", "30;48;5;178"},
        [SCHED_W] = {"30;48;5;115", "97;48;5;29"},
        [SCHED_KIND_COUNT] = {"0;90", "0;90"}};

    if (codes[c.kind][c.later])
        fprintf(file, "\033[0;%sm", codes[c.kind][c.later]);
}

static void put_row(FILE *file, const struct column *row, int from, int to, bool colour)
{
    for (int i = from; i < to; i++) {
        bool change = i == from || row[i].kind != row[i - 1].kind ||
                      row[i].later != row[i - 1].later;
        if (colour && change)
            put_colour(file, row[i]);
        fputc(row[i].text == '-' && colour ? ' ' : row[i].text, file);
    }
    fputs(colour ? "\033[0m\n" : "\n", file);
}

static int put_rows(const struct sched_plan *plan, const struct sched_sim *sim,
                    bool colour, int width, FILE *file)
{
    double scale = text_scale(plan, sim);
    int columns = (int)lround(sim->makespan * scale) + 1, room = columns;
    int label = snprintf(NULL, 0, "lane %d  ", plan->lanes - 1);
    struct column *row = malloc((size_t)columns * sizeof(*row));

    if (!row)
        return -ENOMEM;
    if (width > 0 && width < columns + label)
        room = width - label > 20 ? width - label : 20;
    for (int from = 0; from < columns - 1; from += room) {
        int to = from + room < columns - 1 ? from + room : columns - 1;
        if (room < columns)
            fprintf(file, "%stime %.4g to %.4g\n", from ? "\n" : "", from / scale,
                    to / scale);
        for (int i = 0; i < plan->lanes; i++) {
            fill_row(row, columns, plan, sim, i, scale);
            fprintf(file, "lane %-*d", label - 5, i);
            put_row(file, row, from, to, colour);
        }
    }
    free(row);
    return 0;
}

static void put_lanes(const struct sched_plan *plan, const struct sched_sim *sim,
                      FILE *file)
{
    char text[SCHED_OP_TEXT];

    fprintf(file, "\n%4s %9s %9s %9s %9s %9s %7s  %s\n", "lane", "busy", "idle",
            "warm-up", "waiting", "drain", "peak A", "longest wait");
    for (int i = 0; i < plan->lanes; i++) {
        const struct sched_lane_sim *l = &sim->lane[i];
        fprintf(file, "%4d %9.6g %9.6g %9.6g %9.6g %9.6g %7.4g", i, l->busy, l->idle,
                l->warmup, l->waiting, l->drain, l->peak);
        if (l->longest_from >= 0)
            fprintf(file, "  %.6g before %s, for lane %d", l->longest_wait,
                    sched_op_print(text, &l->longest), l->longest_from);
        fputc('\n', file);
    }
}

static void put_edges(const struct sched_sim *sim, FILE *file)
{
    const struct sched_edges *edges = &sim->edges;
    bool bytes = edges->n && edges->edge[0].bytes > 0,
         buffers = edges->n && edges->edge[0].buffers;

    if (!edges->n)
        return;
    fprintf(file, "\n%-14s %9s %9s%s%s\n", "edge", "transfers", "waited for",
            buffers ? "  buffers" : "", bytes ? "         bytes" : "");
    for (int i = 0; i < edges->n; i++) {
        const struct sched_edge *e = &edges->edge[i];
        char name[40];
        snprintf(name, sizeof(name), "%d -> %d %s", e->from, e->to,
                 e->backward ? "B" : "F");
        fprintf(file, "%-14s %9zu %10.6g", name, e->count, e->waited);
        if (buffers)
            fprintf(file, "%9zu", e->buffers);
        if (bytes)
            fprintf(file, "%14.6g", e->bytes);
        fputc('\n', file);
    }
}

int sched_draw_text(const struct sched_plan *plan, const struct sched_sim *sim,
                    bool colour, int width, FILE *file)
{
    int rc;

    fprintf(file, "%s: %d lanes, %d micro-batches, %d chunk%s per lane%s\n", plan->name,
            plan->lanes, plan->micro_batches, plan->chunks, plan->chunks > 1 ? "s" : "",
            plan->copies > 1 ? ", two copies of the weights" : "");
    fprintf(file, "makespan %.6g, bubble %.1f %% (idle / (lanes x makespan))\n\n",
            sim->makespan, 100 * sim->bubble);
    rc = put_rows(plan, sim, colour, width, file);
    if (rc)
        return rc;
    put_lanes(plan, sim, file);
    put_edges(sim, file);
    return ferror(file) ? -EIO : 0;
}

int sched_draw_compare_text(const struct sched_comparison *c, FILE *file)
{
    fprintf(file, "%d lanes, %d micro-batches; bubble = idle / (lanes x makespan)\n\n",
            c->lanes, c->micro_batches);
    fprintf(file, "%-12s %6s %10s %8s %7s\n", "schedule", "chunks", "makespan", "bubble",
            "peak A");
    for (int i = 0; i < c->results; i++) {
        const struct sched_result *r = &c->result[i];
        fprintf(file, "%-12s %6d %10.6g %6.1f %% %7.4g%s\n", r->plan.name, r->plan.chunks,
                r->sim.makespan, 100 * r->sim.bubble, r->peak,
                r->plan.copies > 1 ? "  two copies of the weights" : "");
    }
    if (c->refusals)
        fputs("\nnot admitted:\n", file);
    for (int i = 0; i < c->refusals; i++)
        fprintf(file, "  %s\n", c->refusal[i].reason.text);
    return ferror(file) ? -EIO : 0;
}
