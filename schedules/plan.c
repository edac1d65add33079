/* The plan: its memory, its ops as text, and who runs what. */
#include "schedules/sched.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[SCHED_KIND_COUNT] = {
#define X(name, text) text,
    SCHED_KIND_LIST(X)
#undef X
};

const char *sched_kind_name(int kind)
{
    return kind >= 0 && kind < SCHED_KIND_COUNT ? kind_names[kind] : "?";
}

bool sched_kind_computes(int kind)
{
    return kind == SCHED_F || kind == SCHED_B || kind == SCHED_I || kind == SCHED_W;
}

/* Appends "NAME VALUE" to a list that ends in ": ", unless the value is -1. */
static size_t error_place(char *text, size_t size, size_t n, const char *name, int value)
{
    if (value < 0 || n >= size)
        return n;
    n += (size_t)snprintf(text + n, size - n, "%s%s %d", n ? ", " : "", name, value);
    return n < size ? n : size - 1;
}

int sched_fail(struct sched_error *err, int code, int lane, int stage, int mb,
               const char *format, ...)
{
    va_list args;
    size_t n = 0;

    if (!err)
        return code;
    err->lane = lane;
    err->stage = stage;
    err->mb = mb;
    n = error_place(err->text, sizeof(err->text), n, "lane", lane);
    n = error_place(err->text, sizeof(err->text), n, "stage", stage);
    n = error_place(err->text, sizeof(err->text), n, "micro-batch", mb);
    if (n)
        n += (size_t)snprintf(err->text + n, sizeof(err->text) - n, ": ");
    va_start(args, format);
    vsnprintf(err->text + n, sizeof(err->text) - n, format, args);
    va_end(args);
    return code;
}

int sched_plan_init(struct sched_plan *plan, const char *name, int lanes, int stages,
                    int micro_batches)
{
    memset(plan, 0, sizeof(*plan));
    if (lanes < 1 || lanes > SCHED_MAX_LANES || stages < 1 || micro_batches < 1)
        return -EINVAL;
    plan->stage_lane = calloc((size_t)stages, sizeof(*plan->stage_lane));
    plan->lane = calloc((size_t)lanes, sizeof(*plan->lane));
    if (!plan->stage_lane || !plan->lane) {
        sched_plan_fini(plan);
        return -ENOMEM;
    }
    snprintf(plan->name, sizeof(plan->name), "%s", name);
    plan->lanes = lanes;
    plan->stages = stages;
    plan->chunks = (stages - 1) / lanes + 1;
    plan->micro_batches = micro_batches;
    plan->copies = 1;
    for (int s = 0; s < stages; s++)
        plan->stage_lane[s] = s % lanes;
    return 0;
}

void sched_plan_fini(struct sched_plan *plan)
{
    for (int i = 0; plan->lane && i < plan->lanes; i++)
        free(plan->lane[i].ops);
    free(plan->lane);
    free(plan->stage_lane);
    memset(plan, 0, sizeof(*plan));
}

int sched_plan_copy(struct sched_plan *copy, const struct sched_plan *plan)
{
    size_t places = (size_t)plan->copies * (size_t)plan->stages;

    *copy = *plan;
    copy->stage_lane = malloc(places * sizeof(*copy->stage_lane));
    copy->lane = calloc((size_t)plan->lanes, sizeof(*copy->lane));
    if (!copy->stage_lane || !copy->lane)
        goto no_memory;
    memcpy(copy->stage_lane, plan->stage_lane, places * sizeof(*copy->stage_lane));
    for (int i = 0; i < plan->lanes; i++) {
        const struct sched_lane *from = &plan->lane[i];
        if (!from->n)
            continue;
        copy->lane[i].ops = malloc(from->n * sizeof(*from->ops));
        if (!copy->lane[i].ops)
            goto no_memory;
        memcpy(copy->lane[i].ops, from->ops, from->n * sizeof(*from->ops));
        copy->lane[i].n = copy->lane[i].cap = from->n;
    }
    return 0;

no_memory:
    sched_plan_fini(copy);
    return -ENOMEM;
}

int sched_plan_push(struct sched_plan *plan, int lane, struct sched_op op)
{
    struct sched_lane *l;

    if (lane < 0 || lane >= plan->lanes)
        return -EINVAL;
    l = &plan->lane[lane];
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct sched_op *ops = realloc(l->ops, cap * sizeof(*ops));
        if (!ops)
            return -ENOMEM;
        l->ops = ops;
        l->cap = cap;
    }
    l->ops[l->n++] = op;
    return 0;
}

int sched_plan_add(struct sched_plan *plan, enum sched_kind kind, int stage, int mb)
{
    struct sched_op op = {.kind = (uint8_t)kind, .stage = stage, .mb = mb};

    if (!plan->rc)
        plan->rc = sched_plan_push(plan, sched_plan_lane(plan, stage, mb), op);
    return plan->rc;
}

int sched_plan_place(const struct sched_plan *plan, int stage, int mb)
{
    int64_t copy = 0;

    if (stage < 0 || stage >= plan->stages || mb < 0 || mb >= plan->micro_batches)
        return -1;
    if (plan->copies > 1)
        copy = (int64_t)mb * plan->copies / plan->micro_batches;
    return (int)(copy * plan->stages + stage);
}

int sched_plan_lane(const struct sched_plan *plan, int stage, int mb)
{
    int place = sched_plan_place(plan, stage, mb);

    return place < 0 ? -1 : plan->stage_lane[place];
}

size_t sched_plan_count(const struct sched_plan *plan)
{
    size_t n = 0;

    for (int i = 0; i < plan->lanes; i++)
        n += plan->lane[i].n;
    return n;
}

bool sched_plan_has_comm(const struct sched_plan *plan)
{
    for (int i = 0; i < plan->lanes; i++)
        for (size_t k = 0; k < plan->lane[i].n; k++)
            if (plan->lane[i].ops[k].kind >= SCHED_SEND_F &&
                plan->lane[i].ops[k].kind <= SCHED_RECV_B)
                return true;
    return false;
}

char *sched_op_print(char *text, const struct sched_op *op)
{
    const char *name = sched_kind_name(op->kind);

    if (op->kind == SCHED_STEP)
        snprintf(text, SCHED_OP_TEXT, "%d%s", (int)op->stage, name);
    else
        snprintf(text, SCHED_OP_TEXT, "%d%s%d", (int)op->stage, name, (int)op->mb);
    return text;
}

/* Decimal digits at text[*at], moved past them. -EINVAL if there are none or too many. */
static int number_parse(int32_t *value, const char *text, size_t len, size_t *at)
{
    int64_t sum = 0;
    size_t first = *at;

    while (*at < len && text[*at] >= '0' && text[*at] <= '9') {
        sum = sum * 10 + (text[(*at)++] - '0');
        if (sum >= INT32_MAX)
            return -EINVAL;
    }
    *value = (int32_t)sum;
    return *at > first ? 0 : -EINVAL;
}

int sched_op_parse(struct sched_op *op, const char *text, size_t len)
{
    size_t at = 0, end;

    memset(op, 0, sizeof(*op));
    if (number_parse(&op->stage, text, len, &at))
        return -EINVAL;
    for (end = at; end < len && (text[end] < '0' || text[end] > '9');)
        end++;
    for (op->kind = 0; op->kind < SCHED_KIND_COUNT; op->kind++)
        if (strlen(kind_names[op->kind]) == end - at &&
            !memcmp(kind_names[op->kind], text + at, end - at))
            break;
    if (op->kind == SCHED_KIND_COUNT)
        return -EINVAL;
    if (op->kind == SCHED_STEP)
        return end == len ? 0 : -EINVAL;
    if (number_parse(&op->mb, text, len, &end))
        return -EINVAL;
    return end == len ? 0 : -EINVAL;
}
