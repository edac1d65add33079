/* Every schedule. A new one is a file that ends in one const struct schedule, and one
 * line here. */
#ifndef PENSTOCK_SCHED_LIST_H
#define PENSTOCK_SCHED_LIST_H

#include "schedules/costs.h"
#include "schedules/sched.h"

#define SCHED_LIST(X)                                                                    \
    X(gpipe)                                                                             \
    X(1f1b)                                                                              \
    X(1f1b_eager)                                                                        \
    X(interleaved)                                                                       \
    X(looped_bfs)                                                                        \
    X(zb_h1)                                                                             \
    X(zb_h2)                                                                             \
    X(zb_v)                                                                              \
    X(v_half)                                                                            \
    X(dualpipev)                                                                         \
    X(chimera)                                                                           \
    X(dualpipe)                                                                          \
    X(forward)                                                                           \
    X(auto)

#define SCHED_MAX_CHUNKS 1024
#define SCHED_MAX_CELLS  100000000 /* forward ops of a plan that is made here */

struct sched_shape {
    int lanes;                       /* p */
    int micro_batches;               /* m */
    int chunks;                      /* v; 0: the schedule's own; auto: at most */
    int group;                       /* interleaved's g; 0: p */
    const struct sched_costs *costs; /* for auto; NULL: sched_costs_unit */
    double cap;                      /* most activations on a lane, in A; 0: no limit */
    bool one_copy;                   /* auto: no plan with two copies of the weights */
};

/* Where the stages are. */
enum sched_place {
    SCHED_LOOP,   /* stage s on lane s % p */
    SCHED_VEE,    /* lane s has stages s and 2p-1-s */
    SCHED_TWO_WAY /* two copies: lane s has stage s of one, p-1-s of the other */
};

struct schedule {
    const char *name, *about;
    const char *idle, *peak, *limits; /* as formulas, for people */
    enum sched_place place;
    int chunks;        /* v if the shape names none */
    bool any_chunks;   /* takes any v */
    bool forward_only; /* inference */
    /* Refuses impossible shapes: -EINVAL. NULL: there are none. */
    int (*refuse)(const struct sched_shape *shape, struct sched_error *err);
    /* Adds one lane's ops to the plan, which has its stages placed, by sched_plan_add. Or
     * NULL: */
    void (*lane)(struct sched_plan *plan, const struct sched_shape *shape, int lane);
    /* all ops at once, the plan as in sched_make. */
    int (*make)(struct sched_plan *plan, const struct sched_shape *shape,
                struct sched_error *err);
};

#define X(name) extern const struct schedule schedule_##name;
SCHED_LIST(X)
#undef X

extern const struct schedule *const sched_list[]; /* ends in NULL */

/* NULL: there is none of that name. */
const struct schedule *sched_find(const char *name);

/* Makes a plan and checks it, against the cap too. -EINVAL: the shape is refused, err
 * says why; then there is no plan. */
int sched_make(struct sched_plan *plan, const struct schedule *schedule,
               const struct sched_shape *shape, struct sched_error *err);

/* An empty plan with its stages placed. */
int sched_make_empty(struct sched_plan *plan, const char *name, enum sched_place place,
                     int lanes, int chunks, int micro_batches);

/* ---- Shared by schedules of one family --------------------------------------------- */

/* Warm-up of w forwards, then F and B in turn, then the backwards left. */
void sched_1f1b_lane(struct sched_plan *plan, int lane, int warmup);

#endif
