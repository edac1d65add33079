/* interleaved: 1f1b on v chunks per lane, micro-batches in groups (Narayanan et al.,
 * 2021). */
#include "schedules/list.h"

#include <errno.h>

/* The k-th op of a pass over all chunks: groups of g micro-batches, the last one with
 * what is left, each group through the chunks in turn. */
static void add_kth(struct sched_plan *plan, enum sched_kind kind,
                    const struct sched_shape *shape, int lane, int k)
{
    int v = shape->chunks, m = shape->micro_batches, g = shape->group;
    int first = k / (g * v) * g;
    int size = first + g <= m ? g : m - first;
    int in_group = k - first * v;
    int chunk = in_group / size;

    if (kind == SCHED_B)
        chunk = v - 1 - chunk;
    sched_plan_add(plan, kind, chunk * shape->lanes + lane, first + in_group % size);
}

static void interleaved_lane(struct sched_plan *plan, const struct sched_shape *shape,
                             int lane)
{
    int ops = shape->micro_batches * shape->chunks;
    int64_t full = 2 * (int64_t)(shape->lanes - 1 - lane) +
                   (int64_t)(shape->chunks - 1) * shape->group;
    int w = full < ops ? (int)full : ops;

    for (int k = 0; k < w; k++)
        add_kth(plan, SCHED_F, shape, lane, k);
    for (int k = 0; k < ops - w; k++) {
        add_kth(plan, SCHED_F, shape, lane, w + k);
        add_kth(plan, SCHED_B, shape, lane, k);
    }
    for (int k = ops - w; k < ops; k++)
        add_kth(plan, SCHED_B, shape, lane, k);
}

static int interleaved_refuse(const struct sched_shape *shape, struct sched_error *err)
{
    int p = shape->lanes, m = shape->micro_batches, g = shape->group ? shape->group : p;

    if (g < 1 || g > m)
        return sched_fail(
            err, -EINVAL, -1, -1, -1,
            "interleaved: groups of %d need at least as many micro-batches, not %d", g,
            m);
    if (m % g && m % g < p)
        return sched_fail(
            err, -EINVAL, -1, -1, -1,
            "interleaved: %d micro-batches in groups of %d leave %d, which must be "
            "none or at least %d",
            m, g, m % g, p);
    return 0;
}

const struct schedule schedule_interleaved = {
    .name = "interleaved",
    .about = "1f1b on v chunks per lane, micro-batches in groups of g",
    .idle = "(p-1)(T_F+T_B)/v",
    .peak = "p+(p-1)/v at s=0, g=p",
    .limits = "m % g = 0, or the remainder >= p",
    .place = SCHED_LOOP,
    .chunks = 2,
    .any_chunks = true,
    .refuse = interleaved_refuse,
    .lane = interleaved_lane,
};
