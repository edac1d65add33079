/* dualpipev: forwards of one chunk fused with backwards of the other, V placement
 * (DeepSeek's DualPipe, cut in half by Sea AI Lab, 2025). */
#include "schedules/dualpipe.h"
#include "schedules/list.h"

#include <errno.h>
#include <stdlib.h>

struct writer {
    const struct dualpipe_lane *l;
    struct sched_plan *plan;
    int forwards[2], backwards[2]; /* done of each stream */
    struct sched_op *owed;         /* ring of W that I left, the oldest first */
    int paid, owing;
};

static void add(struct writer *w, enum sched_kind kind, int stream, int k, bool pair)
{
    const struct dualpipe_lane *l = w->l;
    int lane = sched_plan_lane(w->plan, l->stage[stream], l->first[stream] + k);
    struct sched_op op = {.kind = (uint8_t)kind,
                          .pair = pair,
                          .stage = l->stage[stream],
                          .mb = l->first[stream] + k};

    if (!w->plan->rc)
        w->plan->rc = sched_plan_push(w->plan, lane, op);
}

static void add_f(struct writer *w, int stream)
{
    add(w, SCHED_F, stream, w->forwards[stream]++, false);
}

static void add_b(struct writer *w, int stream)
{
    add(w, SCHED_B, stream, w->backwards[stream]++, false);
}

/* The backward's first half; its W is owed. */
static void add_i(struct writer *w, int stream)
{
    int k = w->backwards[stream]++;

    w->owed[w->owing++] = (struct sched_op){.stage = stream, .mb = k};
    add(w, SCHED_I, stream, k, false);
}

static void add_owed(struct writer *w)
{
    if (w->paid == w->owing)
        return;
    add(w, SCHED_W, w->owed[w->paid].stage, w->owed[w->paid].mb, false);
    w->paid++;
}

static void add_pair(struct writer *w, int forward, int backward)
{
    add(w, SCHED_F, forward, w->forwards[forward]++, true);
    add_b(w, backward);
}

static void add_warmup(struct writer *w)
{
    int ahead = w->l->depth - w->l->rank - 1;

    for (int i = 0; i < 2 * ahead; i++)
        add_f(w, 0);
    for (int i = 0; i < w->l->rank + 1; i++) {
        add_f(w, 0);
        add_f(w, 1);
    }
    for (int i = 0; i < ahead; i++) {
        add_i(w, 1);
        add_owed(w);
        add_f(w, 1);
    }
}

static void add_steady(struct writer *w)
{
    int ahead = w->l->depth - w->l->rank - 1;

    for (int i = 0; i < w->l->count - 2 * w->l->depth + w->l->rank + 1; i++) {
        if (i == 0 && ahead == 0) {
            add_f(w, 0);
            add_b(w, 1);
        } else {
            add_pair(w, 0, 1);
        }
        add_pair(w, 1, 0);
    }
    for (int i = 0; i < ahead; i++) {
        add_b(w, 1);
        add_pair(w, 1, 0);
    }
}

/* From half of the drain on only the first half of a backward is done at once. */
static void add_drain(struct writer *w)
{
    int rank = w->l->rank, half = (rank + 1) / 2;

    for (int i = 0; i < rank + 1; i++) {
        if (i > half || (i == half && rank % 2))
            add_i(w, 1);
        else
            add_b(w, 1);
        if (i >= half)
            add_i(w, 0);
        else
            add_b(w, 0);
    }
    for (int i = 0; i < w->l->depth - rank - 1; i++) {
        add_owed(w);
        add_i(w, 0);
    }
    while (w->paid < w->owing)
        add_owed(w);
}

void sched_dualpipe_lane(const struct dualpipe_lane *lane)
{
    struct writer w = {.l = lane, .plan = lane->plan};

    w.owed = calloc(2 * (size_t)lane->count, sizeof(*w.owed));
    if (!w.owed) {
        w.plan->rc = -ENOMEM;
        return;
    }
    add_warmup(&w);
    add_steady(&w);
    add_drain(&w);
    free(w.owed);
}

static void dualpipev_lane(struct sched_plan *plan, const struct sched_shape *shape,
                           int lane)
{
    struct dualpipe_lane l = {.plan = plan,
                              .depth = shape->lanes,
                              .rank = lane,
                              .count = shape->micro_batches,
                              .stage = {lane, 2 * shape->lanes - 1 - lane}};

    sched_dualpipe_lane(&l);
}

static int dualpipev_refuse(const struct sched_shape *shape, struct sched_error *err)
{
    if (shape->micro_batches >= 2 * shape->lanes)
        return 0;
    return sched_fail(err, -EINVAL, -1, -1, -1,
                      "dualpipev: %d lanes need at least %d micro-batches, not %d",
                      shape->lanes, 2 * shape->lanes, shape->micro_batches);
}

const struct schedule schedule_dualpipev = {
    .name = "dualpipev",
    .about = "V placement, forwards of one chunk fused with backwards of the other",
    .idle = "depends on the gain of F&B",
    .peak = "p+1/2",
    .limits = "v = 2, m >= 2p",
    .place = SCHED_VEE,
    .chunks = 2,
    .refuse = dualpipev_refuse,
    .lane = dualpipev_lane,
};
