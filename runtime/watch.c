/* When nothing moves: who waits for whom, in the plan's terms. */
#include <stdio.h>

#include "runtime/engine.h"

static const char *const kind_text[] = {
#define X(name, text) [SCHED_##name] = text,
    SCHED_KIND_LIST(X)
#undef X
};

/* The first op of a lane that has not ended, or NULL. */
static const struct op_task *first_pending(const struct step *s, int lane)
{
    for (int i = 0; i < s->n; i++)
        if (s->ops[i].lane == lane && !s->ops[i].ended)
            return &s->ops[i];
    return NULL;
}

/* "2F0", or "its end". */
static void print_op(char *text, size_t bytes, const struct op_task *o)
{
    if (o)
        snprintf(text, bytes, "%d%s%d", o->op.stage, kind_text[o->op.kind], o->op.mb);
    else
        snprintf(text, bytes, "its end");
}

void watch_describe(char *text, size_t bytes, const struct step *s)
{
    const struct engine *e = s->engine;
    int last = e->config.n_stages - 1;
    const struct op_task *running = NULL;
    char at[64];

    for (int l = 0; l < e->config.lanes->n; l++) {
        const struct op_task *o = first_pending(s, l);
        if (!o)
            continue;
        if (o->op.kind != SCHED_RECV_F) {
            running = o;
            continue;
        }
        int from = e->config.stage_lane[o->tokens ? last : o->op.stage - 1];
        print_op(at, sizeof(at), first_pending(s, from));
        snprintf(
            text, bytes,
            "lane %d waits for %s of stage %d, micro-batch %d, from lane %d, which is "
            "at %s",
            l, o->tokens ? "the tokens" : "RECV_F", o->op.stage, o->op.mb, from, at);
        return;
    }
    print_op(at, sizeof(at), running);
    snprintf(text, bytes, "lane %d (%s) does not finish %s", running ? running->lane : 0,
             e->config.lanes->lanes[running ? running->lane : 0].spec.name, at);
}
