/* Finds a schedule by name, and makes plans. */
#include "schedules/list.h"

#include "schedules/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct schedule *const sched_list[] = {
#define X(name) &schedule_##name,
    SCHED_LIST(X)
#undef X
        NULL};

const struct schedule *sched_find(const char *name)
{
    for (int i = 0; sched_list[i]; i++)
        if (!strcmp(sched_list[i]->name, name))
            return sched_list[i];
    return NULL;
}

static void place_stages(struct sched_plan *plan, enum sched_place place)
{
    int p = plan->lanes;

    for (int s = 0; s < plan->stages; s++) {
        int turn = s / p, lane = s % p;
        bool back = place == SCHED_VEE && turn % 2;
        plan->stage_lane[s] = back ? p - 1 - lane : lane;
    }
}

/* A second copy of the weights, its pipeline in the other direction. */
static int place_second_copy(struct sched_plan *plan)
{
    size_t stages = (size_t)plan->stages;
    int *both = realloc(plan->stage_lane, 2 * stages * sizeof(*both));

    if (!both)
        return -ENOMEM;
    plan->stage_lane = both;
    plan->copies = 2;
    for (size_t s = 0; s < stages; s++)
        both[stages + s] = both[stages - 1 - s];
    return 0;
}

int sched_make_empty(struct sched_plan *plan, const char *name, enum sched_place place,
                     int lanes, int chunks, int micro_batches)
{
    int rc = sched_plan_init(plan, name, lanes, lanes * chunks, micro_batches);

    if (rc)
        return rc;
    place_stages(plan, place);
    if (place == SCHED_TWO_WAY)
        rc = place_second_copy(plan);
    if (rc)
        sched_plan_fini(plan);
    return rc;
}

static int check_shape(const struct schedule *schedule, const struct sched_shape *shape,
                       struct sched_error *err)
{
    if (shape->lanes < 1 || shape->lanes > SCHED_MAX_LANES)
        return sched_fail(err, -EINVAL, -1, -1, -1, "%s: lanes must be 1 to %d, not %d",
                          schedule->name, SCHED_MAX_LANES, shape->lanes);
    if (shape->micro_batches < 1 || shape->micro_batches > SCHED_MAX_CELLS)
        return sched_fail(err, -EINVAL, -1, -1, -1,
                          "%s: micro-batches must be 1 to %d, not %d", schedule->name,
                          SCHED_MAX_CELLS, shape->micro_batches);
    if (shape->chunks < 0 || shape->chunks > SCHED_MAX_CHUNKS)
        return sched_fail(err, -EINVAL, -1, -1, -1, "%s: chunks must be 1 to %d, not %d",
                          schedule->name, SCHED_MAX_CHUNKS, shape->chunks);
    if (shape->chunks && shape->chunks != schedule->chunks && !schedule->any_chunks)
        return sched_fail(err, -EINVAL, -1, -1, -1, "%s has %d chunk%s per lane, not %d",
                          schedule->name, schedule->chunks,
                          schedule->chunks > 1 ? "s" : "", shape->chunks);
    if (shape->group < 0)
        return sched_fail(err, -EINVAL, -1, -1, -1,
                          "%s: groups must be 1 or more, not %d", schedule->name,
                          shape->group);
    if ((double)shape->lanes * (shape->chunks ? shape->chunks : schedule->chunks) *
            shape->micro_batches >
        SCHED_MAX_CELLS)
        return sched_fail(err, -EINVAL, -1, -1, -1,
                          "%s: more than %d million forward ops", schedule->name,
                          SCHED_MAX_CELLS / 1000000);
    return schedule->refuse ? schedule->refuse(shape, err) : 0;
}

/* The plan as the schedule orders it. */
static int make_ops(struct sched_plan *plan, const struct schedule *schedule,
                    const struct sched_shape *shape, struct sched_error *err)
{
    int rc;

    if (schedule->make)
        return schedule->make(plan, shape, err);
    rc = sched_make_empty(plan, schedule->name, schedule->place, shape->lanes,
                          shape->chunks, shape->micro_batches);
    if (rc)
        return sched_fail(err, rc, -1, -1, -1, "%s: %s", schedule->name, strerror(-rc));
    for (int lane = 0; lane < plan->lanes && !plan->rc; lane++)
        schedule->lane(plan, shape, lane);
    rc = plan->rc;
    if (rc)
        sched_plan_fini(plan);
    return rc ? sched_fail(err, rc, -1, -1, -1, "%s: %s", schedule->name, strerror(-rc))
              : 0;
}

int sched_make(struct sched_plan *plan, const struct schedule *schedule,
               const struct sched_shape *shape, struct sched_error *err)
{
    struct sched_shape full = *shape;
    struct sched_error fault;
    int rc = check_shape(schedule, shape, err);

    memset(plan, 0, sizeof(*plan));
    if (rc)
        return rc;
    full.chunks = shape->chunks ? shape->chunks : schedule->chunks;
    full.group = shape->group ? shape->group : shape->lanes;
    full.costs = shape->costs ? shape->costs : &sched_costs_unit;
    rc = make_ops(plan, schedule, &full, err);
    if (rc)
        return rc;
    rc = sched_check(plan, shape->cap, &fault);
    if (rc)
        sched_plan_fini(plan);
    if (rc && err) {
        *err = fault;
        snprintf(err->text, sizeof(err->text), "%s: %.480s", schedule->name, fault.text);
    }
    return rc;
}
