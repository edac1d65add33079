/* zb-v: two chunks per lane, the second on the way back, split backward (Qi et al.,
 * Pipeline Parallelism with Controllable Memory, 2024). */
#include "schedules/list.h"

/* The next micro-batch of every kind and chunk of one lane, planned for m of them. */
struct vee {
    struct sched_plan *plan;
    int lane, m;
    int next[SCHED_KIND_COUNT][2];
};

/* Adds the next op of a kind and chunk. The surplus of a plan for more micro-batches is
 * dropped. */
static void vee_add(struct vee *v, enum sched_kind kind, int chunk)
{
    int mb = v->next[kind][chunk]++;
    int stage = chunk ? 2 * v->plan->lanes - 1 - v->lane : v->lane;

    if (mb < v->plan->micro_batches)
        sched_plan_add(v->plan, kind, stage, mb);
}

static void vee_add_forward_rounds(struct vee *v)
{
    int p = v->plan->lanes, s = v->lane;

    for (int i = 0; i < 2 * (p - s) - 1; i++)
        vee_add(v, SCHED_F, 0);
    for (int i = 0; i < s; i++) {
        vee_add(v, SCHED_F, 1);
        vee_add(v, SCHED_F, 0);
    }
    for (int i = 0; i < p - s; i++) {
        vee_add(v, SCHED_F, 1);
        vee_add(v, SCHED_I, 1);
        vee_add(v, SCHED_W, 1);
    }
    while (v->next[SCHED_F][0] < v->m || v->next[SCHED_F][1] < v->m) {
        if (v->next[SCHED_F][0] < v->m)
            vee_add(v, SCHED_F, 0);
        vee_add(v, SCHED_I, 0);
        vee_add(v, SCHED_W, 0);
        vee_add(v, SCHED_F, 1);
        vee_add(v, SCHED_I, 1);
        vee_add(v, SCHED_W, 1);
    }
}

static void vee_add_drain(struct vee *v)
{
    int p = v->plan->lanes, s = v->lane;

    for (int i = 0; i < s; i++) {
        vee_add(v, SCHED_I, 0);
        vee_add(v, SCHED_I, 1);
    }
    for (int i = 0; i < p - s; i++) {
        vee_add(v, SCHED_I, 0);
        vee_add(v, SCHED_W, 0);
    }
    while (v->next[SCHED_W][1] < v->m)
        vee_add(v, SCHED_W, 1);
    while (v->next[SCHED_W][0] < v->m)
        vee_add(v, SCHED_W, 0);
}

static void zb_v_lane(struct sched_plan *plan, const struct sched_shape *shape, int lane)
{
    int least = 2 * shape->lanes - 1;
    struct vee v = {.plan = plan, .lane = lane, .m = plan->micro_batches};

    if (v.m < least)
        v.m = least;
    vee_add_forward_rounds(&v);
    vee_add_drain(&v);
}

const struct schedule schedule_zb_v = {
    .name = "zb-v",
    .about = "V placement, split backward: hardly idle in 1f1b's memory",
    .idle = "near 0 when T_F = T_I = T_W and m >= 2p-1",
    .peak = "p",
    .limits = "v = 2",
    .place = SCHED_VEE,
    .chunks = 2,
    .lane = zb_v_lane,
};
