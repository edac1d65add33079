/* Plans as trace events, for Perfetto and chrome://tracing. */
#include "schedules/draw.h"

#include <errno.h>

static void put_time(FILE *file, const char *name, double x)
{
    fprintf(file, ",\"%s\":", name);
    sched_print_number(file, x * 1000); /* microseconds */
}

/* A row of the trace: process pid is the plan, thread tid the lane or link. */
struct track {
    FILE *file;
    int pid, tid;
};

static void put_track_name(struct track t, const char *name)
{
    fprintf(t.file,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
            "\"name\":\"%s\"}}",
            t.pid, t.tid, name);
    fprintf(t.file,
            ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
            "\"args\":{\"sort_index\":%d}}",
            t.pid, t.tid, t.tid);
}

static void put_lane_name(struct track t)
{
    char name[32];

    snprintf(name, sizeof(name), "lane %d", t.tid);
    put_track_name(t, name);
}

/* One op, or an F&B pair as one. */
static void put_op(struct track t, const struct sched_op *op,
                   const struct sched_span *span)
{
    FILE *file = t.file;
    char text[SCHED_OP_TEXT], second[SCHED_OP_TEXT];

    if (op->pair)
        fprintf(file, ",\n{\"name\":\"%s&%s\",\"cat\":\"F&B\"", sched_op_print(text, op),
                sched_op_print(second, op + 1));
    else
        fprintf(file, ",\n{\"name\":\"%s\",\"cat\":\"%s\"", sched_op_print(text, op),
                sched_kind_name(op->kind));
    fprintf(file, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", t.pid, t.tid);
    put_time(file, "ts", span->start);
    put_time(file, "dur", span->end - span->start);
    fprintf(file, ",\"args\":{\"stage\":%d,\"micro_batch\":%d}}", (int)op->stage,
            (int)op->mb);
}

static void put_flow_end(struct track t, const char *name, char phase, int64_t id,
                         double time)
{
    fprintf(t.file,
            ",\n{\"name\":\"%s\",\"cat\":\"transfer\",\"ph\":\"%c\",\"id\":\"%d.%lld\","
            "\"pid\":%d,\"tid\":%d%s",
            name, phase, t.pid, (long long)id, t.pid, t.tid,
            phase == 'f' ? ",\"bp\":\"e\"" : "");
    put_time(t.file, "ts", time);
    fputc('}', t.file);
}

/* An arrow's number: the same at both of its ends. from: the stage that produced the
 * result. */
static int64_t flow_id(const struct sched_plan *plan, const struct sched_op *op, int from)
{
    int64_t cell = (int64_t)op->mb * plan->stages + from;

    return 2 * cell + (op->kind != SCHED_F);
}

/* The arrows that begin and end at an op, if its result or its input crosses lanes. */
static void put_flows(struct track t, const struct sched_plan *plan,
                      const struct sched_op *op, const struct sched_span *span)
{
    int lane = t.tid;
    int step = op->kind == SCHED_F ? 1 : -1;
    int next = sched_plan_lane(plan, op->stage + step, op->mb);
    int before = sched_plan_lane(plan, op->stage - step, op->mb);
    const char *name = op->kind == SCHED_F ? "activation" : "gradient";
    double middle = (span->start + span->end) / 2;

    if (op->kind == SCHED_W)
        return;
    if (next >= 0 && next != lane)
        put_flow_end(t, name, 's', flow_id(plan, op, op->stage), span->end);
    if (before >= 0 && before != lane)
        put_flow_end(t, name, 'f', flow_id(plan, op, op->stage - step), middle);
}

/* A measured pair ran as two ops. */
static void put_lane(struct track t, const struct sched_picture *p)
{
    const struct sched_lane *l = &p->plan->lane[t.tid];

    put_lane_name(t);
    for (size_t k = 0; k < l->n; k++) {
        const struct sched_span *span = &p->sim->lane[t.tid].span[k];
        struct sched_op op = l->ops[k];
        if (!sched_kind_computes(op.kind))
            continue;
        if (p->measured || !k || !l->ops[k - 1].pair)
            put_op(t,
                   p->measured ? &(struct sched_op){op.kind, 0, 0, op.stage, op.mb}
                               : &l->ops[k],
                   span);
        put_flows(t, p->plan, &op, span);
    }
}

/* Transfers over one edge, which it carries one after the other. */
static void put_link(struct track t, const struct sched_picture *p, int edge)
{
    const struct sched_edge *e = &p->sim->edges.edge[edge];
    double free_at = 0;
    char name[64];

    snprintf(name, sizeof(name), "link %d to %d, %s", e->from, e->to,
             e->backward ? "gradients" : "activations");
    put_track_name(t, name);
    for (int i = 0; i < p->sim->transfers; i++) {
        const struct sched_transfer *x = &p->sim->transfer[i];
        struct sched_op op = {.kind = x->op.kind == SCHED_F ? SCHED_RECV_F : SCHED_RECV_B,
                              .stage = x->op.stage,
                              .mb = x->op.mb};
        struct sched_span span = x->span;
        if (x->edge != edge)
            continue;
        span.start = span.start > free_at ? span.start : free_at;
        span.end = span.end > span.start ? span.end : span.start;
        free_at = span.end;
        put_op(t, &op, &span);
    }
}

static void put_picture(FILE *file, const struct sched_picture *p, int pid)
{
    fprintf(file,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
            "\"%s%s%s, %d lanes, %d micro-batches\"}}",
            pid, p->plan->name, p->label ? ", " : "", p->label ? p->label : "",
            p->plan->lanes, p->plan->micro_batches);
    for (int i = 0; i < p->plan->lanes; i++)
        put_lane((struct track){file, pid, i}, p);
    for (int i = 0; i < p->sim->edges.n; i++)
        put_link((struct track){file, pid, p->plan->lanes + i}, p, i);
}

int sched_draw_pictures_trace(const struct sched_picture *p, int n, FILE *file)
{
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",\n" : "", file);
        put_picture(file, &p[i], i);
    }
    fputs("\n]}\n", file);
    return ferror(file) ? -EIO : 0;
}

int sched_draw_trace(const struct sched_plan *plan, const struct sched_sim *sim,
                     FILE *file)
{
    struct sched_picture p = {.plan = plan, .sim = sim};

    return sched_draw_pictures_trace(&p, 1, file);
}
