/* Plans and comparisons as JSON. */
#include "schedules/draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sched_print_number(FILE *file, double x)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, file);
}

/* "name": number, with a comma before it. */
static void put_number(FILE *file, const char *name, double x)
{
    fprintf(file, ",\"%s\":", name);
    sched_print_number(file, x);
}

/* One number of every lane. */
static void put_lanes(FILE *file, const char *name, const struct sched_sim *sim,
                      size_t offset)
{
    fprintf(file, ",\"%s\":[", name);
    for (int i = 0; i < sim->lanes; i++) {
        double x;
        memcpy(&x, (const char *)&sim->lane[i] + offset, sizeof(x));
        fputs(i ? "," : "", file);
        sched_print_number(file, x);
    }
    fputc(']', file);
}

/* The fields that a plan has alone and in a comparison. */
static void put_summary(FILE *file, const struct sched_plan *plan,
                        const struct sched_sim *sim)
{
    fprintf(file,
            "\"schedule\":\"%s\",\"lanes\":%d,\"micro_batches\":%d,\"chunks\":%d,"
            "\"copies\":%d",
            plan->name, plan->lanes, plan->micro_batches, plan->chunks, plan->copies);
    put_number(file, "makespan", sim->makespan);
    put_number(file, "bubble", sim->bubble);
    put_lanes(file, "peak_activations", sim, offsetof(struct sched_lane_sim, peak));
    put_lanes(file, "idle", sim, offsetof(struct sched_lane_sim, idle));
}

static void put_op(FILE *file, const struct sched_plan *plan, const struct sched_sim *sim,
                   int lane, size_t k)
{
    const struct sched_op *op = &plan->lane[lane].ops[k];
    const struct sched_span *span = &sim->lane[lane].span[k];
    char text[SCHED_OP_TEXT];

    fprintf(file,
            "{\"lane\":%d,\"op\":\"%s\",\"kind\":\"%s\",\"stage\":%d,\"micro_batch\":%d",
            lane, sched_op_print(text, op), sched_kind_name(op->kind), (int)op->stage,
            (int)op->mb);
    if (op->pair)
        fputs(",\"pair\":true", file);
    put_number(file, "start", span->start);
    put_number(file, "end", span->end);
    fputc('}', file);
}

static void put_edges(FILE *file, const struct sched_edges *edges)
{
    fputs(",\"edges\":[", file);
    for (int i = 0; i < edges->n; i++) {
        const struct sched_edge *e = &edges->edge[i];
        fprintf(
            file,
            "%s{\"from\":%d,\"to\":%d,\"kind\":\"%s\",\"transfers\":%zu,\"buffers\":%zu",
            i ? ",\n" : "", e->from, e->to, e->backward ? "B" : "F", e->count,
            e->buffers);
        put_number(file, "bytes", e->bytes);
        put_number(file, "waited", e->waited);
        fputc('}', file);
    }
    fputc(']', file);
}

int sched_draw_json(const struct sched_plan *plan, const struct sched_sim *sim,
                    FILE *file)
{
    const char *separator = "";

    fputc('{', file);
    put_summary(file, plan, sim);
    put_lanes(file, "warmup", sim, offsetof(struct sched_lane_sim, warmup));
    put_lanes(file, "waiting", sim, offsetof(struct sched_lane_sim, waiting));
    put_lanes(file, "drain", sim, offsetof(struct sched_lane_sim, drain));
    put_edges(file, &sim->edges);
    fputs(",\"ops\":[\n", file);
    for (int i = 0; i < plan->lanes; i++)
        for (size_t k = 0; k < plan->lane[i].n; k++) {
            fputs(separator, file);
            put_op(file, plan, sim, i, k);
            separator = ",\n";
        }
    fputs("]}\n", file);
    return ferror(file) ? -EIO : 0;
}

int sched_draw_compare_json(const struct sched_comparison *c, FILE *file)
{
    fprintf(file, "{\"lanes\":%d,\"micro_batches\":%d,\"schedules\":[", c->lanes,
            c->micro_batches);
    for (int i = 0; i < c->results; i++) {
        fputs(i ? ",\n{" : "\n{", file);
        put_summary(file, &c->result[i].plan, &c->result[i].sim);
        fputc('}', file);
    }
    fputs("],\"refused\":[", file);
    for (int i = 0; i < c->refusals; i++)
        fprintf(file, "%s\n{\"schedule\":\"%s\",\"reason\":\"%s\"}", i ? "," : "",
                c->refusal[i].name, c->refusal[i].reason.text);
    fputs("]}\n", file);
    return ferror(file) ? -EIO : 0;
}
