/* Planted faults, and the search for the op that gave a value that is not finite. */
#include "runtime/fault.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine.h"

static int parse(struct fault *f, const char *text)
{
    static const char *const kinds[] = {
        [FAULT_DELAY] = "delay:", [FAULT_HANG] = "hang:", [FAULT_NAN] = "nan:"};
    char *end = "";

    for (size_t k = FAULT_DELAY; k < ARRAY_LEN(kinds) && !f->kind; k++)
        if (!strncmp(text, kinds[k], strlen(kinds[k]))) {
            f->kind = k;
            text += strlen(kinds[k]);
        }
    size_t len = strcspn(text, ":");
    if (!f->kind || sched_op_parse(&f->op, text, len))
        return -EINVAL;
    if (f->kind == FAULT_NAN && !sched_kind_computes(f->op.kind))
        return -EINVAL;
    if (f->kind != FAULT_DELAY)
        return text[len] ? -EINVAL : 0;
    f->seconds = text[len] ? strtod(text + len + 1, &end) : 0;
    return f->seconds > 0 && f->seconds < 1e6 && !*end ? 0 : -EINVAL;
}

int fault_read(struct fault *f)
{
    const char *text = getenv("PENSTOCK_FAULT");

    *f = (struct fault){0};
    if (!text || !*text || !parse(f, text))
        return 0;
    log_error(
        "PENSTOCK_FAULT=%s: expected delay:OP:SECONDS, hang:OP or nan:OP, with an op "
        "like 2F3",
        text);
    return -EINVAL;
}

static bool is_meant(const struct fault *f, const struct op_task *o)
{
    return f->kind && f->op.kind == o->op.kind && f->op.stage == o->op.stage &&
           f->op.mb == o->op.mb;
}

void fault_check(const struct step *s)
{
    struct fault *f = &s->engine->fault;
    char op[SCHED_OP_TEXT];

    if (!f->kind || f->checked)
        return;
    f->checked = true;
    for (int i = 0; i < s->n; i++)
        if (is_meant(f, &s->ops[i]))
            return;
    log_warn("PENSTOCK_FAULT: the plan performs no %s", sched_op_print(op, &f->op));
}

/* Signals do not end it. */
static void wait_seconds(double seconds)
{
    struct timespec left = time_split(seconds);

    while (nanosleep(&left, &left) && errno == EINTR)
        continue;
}

void fault_begin(const struct op_task *o)
{
    const struct fault *f = &o->step->engine->fault;

    if (!is_meant(f, o))
        return;
    if (f->kind == FAULT_DELAY)
        wait_seconds(f->seconds);
    while (f->kind == FAULT_HANG)
        pause();
}

static void plant(struct kernel_ctx *ctx, const struct op_array *a)
{
    const uint32_t bits = 0x7fc07fc0; /* NaN in fp32, and twice in bf16 */

    if (!a->x)
        return;
    ctx->ops->upload(ctx, a->x, &bits, dtype_block_bytes(a->dtype));
    ctx->ops->sync(ctx);
}

static bool all_finite(const void *x, enum dtype dtype, size_t n)
{
    const uint32_t *f = x;
    const uint16_t *h = x;
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= dtype == DTYPE_F32 ? (f[i] & 0x7f800000) != 0x7f800000
                                     : (h[i] & 0x7f80) != 0x7f80;
    return finite;
}

/* Whether an array of the lane is finite; -ENOMEM. */
static int look(struct kernel_ctx *ctx, const struct op_array *a)
{
    size_t bytes = a->n * dtype_block_bytes(a->dtype);
    void *copy = a->x ? malloc(bytes) : NULL;

    if (!copy)
        return a->x ? log_no_memory("the search for a fault") : true;
    ctx->ops->download(ctx, copy, a->x, bytes);
    ctx->ops->sync(ctx);
    bool finite = all_finite(copy, a->dtype, a->n);
    free(copy);
    return finite;
}

static int search(const struct op_task *o)
{
    static const char *const words[] = {"forward", "backward", "input gradient",
                                        "weight gradient"};
    struct engine *e = o->step->engine;
    const struct lane *lane = &e->lanes->lanes[o->lane];
    char op[SCHED_OP_TEXT];

    for (size_t i = 0; i < ARRAY_LEN(o->wrote); i++) {
        int finite = look(lane->ctx, &o->wrote[i]);
        if (finite < 0)
            return finite;
        if (finite)
            continue;
        if (engine_fail(e, -EDOM))
            log_error(
                "lane %d (%s): %s, the %s of stage %d for micro-batch %d, gives a value "
                "that is not finite",
                o->lane, lane->spec.name, sched_op_print(op, &o->op), words[o->op.kind],
                o->op.stage, o->op.mb);
        return -EDOM;
    }
    return 0;
}

int fault_end(const struct op_task *o)
{
    const struct engine *e = o->step->engine;
    struct kernel_ctx *ctx = e->lanes->lanes[o->lane].ctx;

    if (e->fault.kind == FAULT_NAN && is_meant(&e->fault, o))
        for (size_t i = 0; i < ARRAY_LEN(o->wrote); i++)
            plant(ctx, &o->wrote[i]);
    return e->search ? search(o) : 0;
}
