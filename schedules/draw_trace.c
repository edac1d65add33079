/* Plans as trace events, for Perfetto and chrome://tracing. */
#include "schedules/draw.h"

#include <errno.h>

static void put_time(FILE *file, const char *name, double x)
{
    fprintf(file, ",\"%s\":", name);
    sched_print_number(file, x * 1000); /* microseconds */
}

static void put_lane_name(FILE *file, int lane)
{
    fprintf(file,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{"
            "\"name\":\"lane %d\"}}",
            lane, lane);
    fprintf(
        file,
        ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":"
        "{\"sort_index\":%d}}",
        lane, lane);
}

/* One op, or an F&B pair as one. */
static void put_op(FILE *file, const struct sched_op *op, const struct sched_span *span,
                   int lane)
{
    char text[SCHED_OP_TEXT], second[SCHED_OP_TEXT];

    if (op->pair)
        fprintf(file, ",\n{\"name\":\"%s&%s\",\"cat\":\"F&B\"", sched_op_print(text, op),
                sched_op_print(second, op + 1));
    else
        fprintf(file, ",\n{\"name\":\"%s\",\"cat\":\"%s\"", sched_op_print(text, op),
                sched_kind_name(op->kind));
    fprintf(file, ",\"ph\":\"X\",\"pid\":0,\"tid\":%d", lane);
    put_time(file, "ts", span->start);
    put_time(file, "dur", span->end - span->start);
    fprintf(file, ",\"args\":{\"stage\":%d,\"micro_batch\":%d}}", (int)op->stage,
            (int)op->mb);
}

static void put_flow_end(FILE *file, const char *name, char phase, int64_t id, int lane,
                         double time)
{
    fprintf(file,
            ",\n{\"name\":\"%s\",\"cat\":\"transfer\",\"ph\":\"%c\",\"id\":%lld,\"pid\":"
            "0,\"tid\":%d%s",
            name, phase, (long long)id, lane, phase == 'f' ? ",\"bp\":\"e\"" : "");
    put_time(file, "ts", time);
    fputc('}', file);
}

/* An arrow's number: the same at both of its ends. from: the stage that produced the
 * result. */
static int64_t flow_id(const struct sched_plan *plan, const struct sched_op *op, int from)
{
    int64_t cell = (int64_t)op->mb * plan->stages + from;

    return 2 * cell + (op->kind != SCHED_F);
}

/* The arrows that begin and end at an op, if its result or its input crosses lanes. */
static void put_flows(FILE *file, const struct sched_plan *plan,
                      const struct sched_op *op, const struct sched_span *span, int lane)
{
    int step = op->kind == SCHED_F ? 1 : -1;
    int next = sched_plan_lane(plan, op->stage + step, op->mb);
    int before = sched_plan_lane(plan, op->stage - step, op->mb);
    const char *name = op->kind == SCHED_F ? "activation" : "gradient";
    double middle = (span->start + span->end) / 2;

    if (op->kind == SCHED_W)
        return;
    if (next >= 0 && next != lane)
        put_flow_end(file, name, 's', flow_id(plan, op, op->stage), lane, span->end);
    if (before >= 0 && before != lane)
        put_flow_end(file, name, 'f', flow_id(plan, op, op->stage - step), lane, middle);
}

int sched_draw_trace(const struct sched_plan *plan, const struct sched_sim *sim,
                     FILE *file)
{
    fprintf(file,
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\","
            "\"ph\":\"M\","
            "\"pid\":0,\"args\":{\"name\":\"%s, %d lanes, %d micro-batches\"}}",
            plan->name, plan->lanes, plan->micro_batches);
    for (int i = 0; i < plan->lanes; i++) {
        const struct sched_lane *l = &plan->lane[i];
        put_lane_name(file, i);
        for (size_t k = 0; k < l->n; k++) {
            const struct sched_span *span = &sim->lane[i].span[k];
            if (!sched_kind_computes(l->ops[k].kind))
                continue;
            if (!k || !l->ops[k - 1].pair)
                put_op(file, &l->ops[k], span, i);
            put_flows(file, plan, &l->ops[k], span, i);
        }
    }
    fputs("\n]}\n", file);
    return ferror(file) ? -EIO : 0;
}
