/* When nothing moves: who waits for whom, in the plan's terms. */
#include <stdio.h>

#include "runtime/engine.h"

/* The first op of a lane that has not ended, or NULL. */
static const struct op_task *first_pending(const struct step *s, int lane)
{
    for (int i = 0; i < s->n; i++)
        if (s->ops[i].lane == lane && !s->ops[i].ended)
            return &s->ops[i];
    return NULL;
}

/* "2F0", or "its end". */
static void print_op(char *text, const struct op_task *o)
{
    if (o)
        sched_op_print(text, &o->op);
    else
        snprintf(text, SCHED_OP_TEXT, "its end");
}

/* Follows waiting lanes from a hop that is pending: its sender may wait for another hop. */
static const struct op_task *last_waiting(const struct step *s, const struct op_task *hop)
{
    for (int i = 0; i < s->engine->lanes->n; i++) {
        const struct op_task *next = first_pending(s, hop->from);
        if (!next || !next->hop)
            break;
        hop = next;
    }
    return hop;
}

void watch_describe(char *text, size_t bytes, const struct step *s)
{
    const struct lane_set *lanes = s->engine->lanes;
    const struct op_task *running = NULL;
    char at[SCHED_OP_TEXT];

    for (int l = 0; l < lanes->n; l++) {
        const struct op_task *o = first_pending(s, l);
        if (!o)
            continue;
        if (!o->hop) {
            running = o;
            continue;
        }
        o = last_waiting(s, o);
        print_op(at, first_pending(s, o->from));
        snprintf(
            text, bytes,
            "lane %d waits for %s of stage %d, micro-batch %d, from lane %d, which is "
            "at %s",
            o->lane, o->hop, o->op.stage, o->op.mb, o->from, at);
        return;
    }
    print_op(at, running);
    int lane = running ? running->lane : 0;
    snprintf(text, bytes, "lane %d (%s) does not finish %s", lane,
             lanes->lanes[lane].spec.name, at);
}
