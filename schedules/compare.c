/* Makes every schedule on one shape and sorts them. */
#include "schedules/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static double peak_of(const struct sched_sim *sim)
{
    double peak = 0;

    for (int i = 0; i < sim->lanes; i++)
        peak = sim->lane[i].peak > peak ? sim->lane[i].peak : peak;
    return peak;
}

/* The shortest first; of equals the one with less memory, then fewer copies, then the
 * order of the list. */
static int result_compare(const void *left, const void *right)
{
    const struct sched_result *a = left, *b = right;
    double gap = 1e-9 * (a->sim.makespan + b->sim.makespan);

    if (a->sim.makespan < b->sim.makespan - gap)
        return -1;
    if (b->sim.makespan < a->sim.makespan - gap)
        return 1;
    if (a->peak != b->peak)
        return a->peak < b->peak ? -1 : 1;
    if (a->plan.copies != b->plan.copies)
        return a->plan.copies - b->plan.copies;
    return strcmp(a->plan.name, b->plan.name);
}

/* 0 with a result added, -EINVAL with the reason in *why. */
static int compare_one(struct sched_comparison *c, const struct schedule *schedule,
                       const struct sched_shape *shape, struct sched_error *why)
{
    struct sched_result *r = &c->result[c->results];
    struct sched_shape own = *shape;
    int rc;

    if (schedule->forward_only)
        return sched_fail(why, -EINVAL, -1, -1, -1,
                          "%s is for inference: it has no backward", schedule->name);
    if (!schedule->any_chunks)
        own.chunks = 0;
    else if (schedule == &schedule_auto && own.chunks == 1)
        own.chunks = 2; /* what the others may have, it may have */
    rc = sched_make(&r->plan, schedule, &own, why);
    if (rc)
        return rc == -EDEADLK ? -EINVAL : rc;
    rc = sched_simulate(&r->sim, &r->plan,
                        shape->costs ? shape->costs : &sched_costs_unit, why);
    if (rc) {
        sched_plan_fini(&r->plan);
        return rc;
    }
    r->peak = peak_of(&r->sim);
    c->results++;
    return 0;
}

int sched_compare(struct sched_comparison *c, const struct sched_shape *shape,
                  struct sched_error *err)
{
    size_t n = 0;
    int rc = 0;

    while (sched_list[n])
        n++;
    memset(c, 0, sizeof(*c));
    c->lanes = shape->lanes;
    c->micro_batches = shape->micro_batches;
    c->result = calloc(n, sizeof(*c->result));
    c->refusal = calloc(n, sizeof(*c->refusal));
    if (!c->result || !c->refusal)
        rc = sched_fail(err, -ENOMEM, -1, -1, -1, "out of memory");
    for (size_t i = 0; i < n && !rc; i++) {
        struct sched_error why;
        rc = compare_one(c, sched_list[i], shape, &why);
        if (rc == -EINVAL) {
            c->refusal[c->refusals++] = (struct sched_refusal){sched_list[i]->name, why};
            rc = 0;
        } else if (rc && err) {
            *err = why;
        }
    }
    if (rc) {
        sched_comparison_fini(c);
        return rc;
    }
    qsort(c->result, (size_t)c->results, sizeof(*c->result), result_compare);
    return 0;
}

void sched_comparison_fini(struct sched_comparison *c)
{
    for (int i = 0; i < c->results; i++) {
        sched_sim_fini(&c->result[i].sim);
        sched_plan_fini(&c->result[i].plan);
    }
    free(c->result);
    free(c->refusal);
    memset(c, 0, sizeof(*c));
}
