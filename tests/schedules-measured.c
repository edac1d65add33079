/* What happened, told in the simulator's terms: a simulation told back is the simulation. */
#include <errno.h>
#include <math.h>

#include "schedules/list.h"
#include "schedules/measured.h"
#include "tests/test.h"

#define SHIFT 1000.0 /* the clock's start is no matter */

static void make(struct sched_plan *plan, const char *name, int p, int m)
{
    struct sched_shape shape = {.lanes = p, .micro_batches = m};
    struct sched_error err;
    if (sched_make(plan, sched_find(name), &shape, &err))
        fail_msg("%s", err.text);
}

/* Computing ops and transfers of a simulation, the last first. */
static size_t tell(struct sched_ran *ran, const struct sched_plan *plan,
                   const struct sched_sim *sim)
{
    size_t n = 0;
    for (int l = plan->lanes - 1; l >= 0; l--)
        for (size_t k = 0; k < plan->lane[l].n; k++)
            if (sched_kind_computes(plan->lane[l].ops[k].kind))
                ran[n++] = (struct sched_ran){plan->lane[l].ops[k], sim->lane[l].span[k]};
    for (int i = 0; i < sim->transfers; i++) {
        struct sched_op op = sim->transfer[i].op;
        op.kind = op.kind == SCHED_F ? SCHED_RECV_F : SCHED_RECV_B;
        ran[n++] = (struct sched_ran){op, sim->transfer[i].span};
    }
    for (size_t i = 0; i < n; i++) {
        ran[i].span.start += SHIFT;
        ran[i].span.end += SHIFT;
    }
    return n;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) < 1e-9))
        fail_msg("%.12g is not %.12g", a, b);
}

static void same(const struct sched_sim *a, const struct sched_sim *b)
{
    near(a->makespan, b->makespan);
    near(a->bubble, b->bubble);
    assert_int_equal(a->transfers, b->transfers);
    for (int i = 0; i < a->lanes; i++) {
        near(a->lane[i].busy, b->lane[i].busy);
        near(a->lane[i].warmup, b->lane[i].warmup);
        near(a->lane[i].waiting, b->lane[i].waiting);
        near(a->lane[i].drain, b->lane[i].drain);
        near(a->lane[i].peak, b->lane[i].peak);
    }
}

static void tells_a_simulation_back(void **state)
{
    static const char *const names[] = {"gpipe", "1f1b",  "1f1b-eager", "interleaved",
                                        "zb-h1", "zb-h2", "zb-v",       "v-half"};
    (void)state;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int late = 0; late < 2; late++) {
            struct sched_costs costs = sched_costs_unit;
            struct sched_plan plan;
            struct sched_sim sim, told;
            struct sched_error err;
            costs.latency = late * 0.25;
            make(&plan, names[i], 4, 8);
            assert_int_equal(sched_simulate(&sim, &plan, &costs, &err), 0);
            struct sched_ran *ran = calloc(2 * sched_plan_count(&plan), sizeof(*ran));
            size_t n = tell(ran, &plan, &sim);
            assert_int_equal(sched_measured(&told, &plan, ran, n, &err), 0);
            same(&told, &sim);
            near(sched_exposed(&told, &plan), sched_exposed(&sim, &plan));
            assert_true(late ? sched_exposed(&sim, &plan) > 0
                             : sched_exposed(&sim, &plan) == 0);
            sched_sim_fini(&told);
            sched_sim_fini(&sim);
            sched_plan_fini(&plan);
            free(ran);
        }
}

/* Two lanes, one micro-batch, hops of 1/2: F 0-1, F 1.5-2.5, B 2.5-4.5, B 5-7. Lane 0 waits 4 of which 1 is hops, and
 * lane 1 begins half a unit late. */
static void counts_exposed_hops(void **state)
{
    struct sched_costs costs = sched_costs_unit;
    struct sched_plan plan;
    struct sched_sim sim;
    (void)state;

    costs.latency = 0.5;
    costs.lane = (struct sched_cost){.f = 1, .i = 1, .w = 1, .b = 2};
    make(&plan, "gpipe", 2, 1);
    assert_int_equal(sched_simulate(&sim, &plan, &costs, NULL), 0);
    near(sim.makespan, 7);
    near(sched_exposed(&sim, &plan), 1.0 / 14);
    sched_sim_fini(&sim);
    sched_plan_fini(&plan);
}

static void misses_an_op(void **state)
{
    struct sched_plan plan;
    struct sched_sim sim;
    struct sched_error err;
    struct sched_ran ran = {.op = {.kind = SCHED_F}, .span = {0, 1}};
    (void)state;

    make(&plan, "gpipe", 2, 1);
    assert_int_equal(sched_measured(&sim, &plan, &ran, 1, &err), -EINVAL);
    assert_string_equal(err.text, "lane 0, stage 0, micro-batch 0: 0B0 did not run");
    sched_plan_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_a_simulation_back),
        cmocka_unit_test(counts_exposed_hops),
        cmocka_unit_test(misses_an_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
