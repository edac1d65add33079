/* auto: the best plan that a search finds for the given costs and memory, starting from
 * all the others. */
#include "schedules/search.h"
#include "schedules/simulate.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Ops that the search may try: less than half a second. */
#define WORK 4000000

struct pick {
    struct sched_plan plan;
    double makespan; /* infinity: none yet */
};

/* Makes one of the named schedules and keeps it if it is the fastest so far. */
static int try_named(struct pick *best, const struct schedule *schedule,
                     const struct sched_shape *shape, int chunks)
{
    struct sched_shape own = *shape;
    struct sched_plan plan;
    struct sched_sim sim;
    int rc;

    own.chunks = chunks;
    rc = sched_make(&plan, schedule, &own, NULL);
    if (rc)
        return rc == -ENOMEM ? rc : 0;
    rc = sched_simulate(&sim, &plan, shape->costs, NULL);
    if (!rc && sim.makespan < best->makespan * (1 - 1e-12)) {
        sched_plan_fini(&best->plan);
        best->plan = plan;
        best->makespan = sim.makespan;
        memset(&plan, 0, sizeof(plan));
    }
    if (!rc)
        sched_sim_fini(&sim);
    sched_plan_fini(&plan);
    return rc;
}

/* Those of up to v chunks per lane; those that take any number, with their own and with
 * v. */
static int try_all_named(struct pick *best, const struct sched_shape *shape)
{
    int rc = 0;

    for (int i = 0; sched_list[i] && !rc; i++) {
        const struct schedule *s = sched_list[i];
        if (s->forward_only || s == &schedule_auto ||
            (shape->one_copy && s->place == SCHED_TWO_WAY))
            continue;
        if (s->chunks <= shape->chunks)
            rc = try_named(best, s, shape, s->chunks);
        if (!rc && s->any_chunks && shape->chunks != s->chunks)
            rc = try_named(best, s, shape, shape->chunks);
    }
    return rc;
}

/* Searches the placements of one copy of the weights with up to v chunks per lane, each
 * with its share of the work; what one leaves is the next one's. Two copies cost memory
 * that A does not count: they are searched only if a named plan with two is still the
 * fastest. */
static int search(struct pick *best, const struct sched_shape *shape)
{
    const struct search_place places[] = {
        {SCHED_LOOP, 1}, {SCHED_VEE, 2}, {SCHED_VEE, 4}, {SCHED_TWO_WAY, 1}};
    int64_t work = 0;
    int rc = 0;

    for (int i = 0; i < 4 && !rc; i++) {
        bool two_way = places[i].place == SCHED_TWO_WAY;
        work += WORK / 4;
        if (places[i].chunks <= shape->chunks && (!two_way || best->plan.copies > 1))
            rc = search_place(&best->plan, &best->makespan, &places[i], shape, &work);
    }
    return rc;
}

static int auto_make(struct sched_plan *plan, const struct sched_shape *shape,
                     struct sched_error *err)
{
    struct pick best = {.makespan = INFINITY};
    int rc = try_all_named(&best, shape);

    rc = rc ? rc : search(&best, shape);
    if (rc) {
        sched_plan_fini(&best.plan);
        return sched_fail(err, rc, -1, -1, -1, "auto: %s", strerror(-rc));
    }
    if (isinf(best.makespan))
        return sched_fail(err, -EINVAL, -1, -1, -1,
                          "auto: no plan holds at most %g activations on a lane",
                          shape->cap);
    *plan = best.plan;
    snprintf(plan->name, sizeof(plan->name), "auto");
    return 0;
}

const struct schedule schedule_auto = {
    .name = "auto",
    .about = "searched for the given costs and memory",
    .idle = "never more than the best of the others",
    .peak = "<= the cap",
    .limits = "none; at most v chunks, 4 unless given",
    .place = SCHED_VEE,
    .chunks = 4,
    .any_chunks = true,
    .make = auto_make,
};
