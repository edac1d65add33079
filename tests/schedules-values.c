/* Makespans and peaks that are known from elsewhere, and the schedules' closed forms. */
#include <math.h>
#include <string.h>

#include "schedules/check.h"
#include "schedules/compare.h"
#include "tests/test.h"

#define EXACT 1e-9

static void near_or_fail(double got, double want, int line)
{
    if (!(fabs(got - want) <= EXACT))
        fail_msg("line %d: %.12g, not %.12g", line, got, want);
}

#define assert_near(got, want) near_or_fail(got, want, __LINE__)

static void make(struct sched_plan *plan, const char *name, int p, int m, int v)
{
    struct sched_shape shape = {.lanes = p, .micro_batches = m, .chunks = v};
    struct sched_error err;

    if (sched_make(plan, sched_find(name), &shape, &err))
        fail_msg("%s", err.text);
}

static double peak_of(const struct sched_sim *sim)
{
    double peak = 0;

    for (int i = 0; i < sim->lanes; i++)
        peak = fmax(peak, sim->lane[i].peak);
    return peak;
}

/* Makespan and, unless NULL, peak of a schedule. */
static double run(const char *name, int p, int m, int v, const struct sched_costs *costs,
                  double *peak)
{
    struct sched_plan plan;
    struct sched_sim sim;
    struct sched_error err;
    double makespan;

    make(&plan, name, p, m, v);
    if (sched_simulate(&sim, &plan, costs, &err))
        fail_msg("%s", err.text);
    makespan = sim.makespan;
    if (peak)
        *peak = peak_of(&sim);
    sched_sim_fini(&sim);
    sched_plan_fini(&plan);
    return makespan;
}

/* p = 4, m = 8, T_F = T_I = T_W = 1. */
static void known_values(void **state)
{
    static const struct {
        const char *name;
        double plain, latency, peak;
    } table[] = {
        {"gpipe", 33, 33.6, 8},        {"1f1b", 33, 34.6, 4},
        {"1f1b-eager", 33, 33.6, 7},   {"zb-h1", 27, 28.2, 4},
        {"zb-h2", 27, 27.3, 7},        {"interleaved", 28.5, 29.9, 5.5},
        {"looped-bfs", 28.5, 29.1, 8}, {"zb-v", 25.5, 26.8, 4},
        {"dualpipev", 27, 28.7, 4.5},
    };
    struct sched_costs late = sched_costs_unit, fused = sched_costs_unit;
    double peak;

    (void)state;
    late.latency = 0.1;
    fused.pair = 2.5 / 3;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_near(run(table[i].name, 4, 8, 0, &sched_costs_unit, &peak),
                    table[i].plain);
        assert_near(peak, table[i].peak);
        assert_near(run(table[i].name, 4, 8, 0, &late, NULL), table[i].latency);
    }
    assert_near(run("dualpipev", 4, 8, 0, &fused, NULL), 24.5);
}

static void fewer_micro_batches_than_lanes(void **state)
{
    (void)state;
    assert_near(run("1f1b", 4, 2, 0, &sched_costs_unit, NULL), 15);
}

/* ---- Closed forms, T_F = T_I = T_W = 1 per lane, no latency, m >= 2p --------------- */

/* Idle time of the lane with the most of it, and of lane `lane`. */
static double idle_of(const char *name, int p, int m, int v, int lane)
{
    struct sched_plan plan;
    struct sched_sim sim;
    double idle = 0;

    make(&plan, name, p, m, v);
    assert_int_equal(sched_simulate(&sim, &plan, &sched_costs_unit, NULL), 0);
    for (int i = 0; i < p; i++)
        if (lane < 0 || i == lane)
            idle = fmax(idle, sim.lane[i].idle);
    sched_sim_fini(&sim);
    sched_plan_fini(&plan);
    return idle;
}

/* Every lane is idle for exactly this long. */
static void assert_idle(const char *name, int p, int m, int v, double idle)
{
    for (int lane = 0; lane < p; lane++)
        if (fabs(idle_of(name, p, m, v, lane) - idle) > EXACT)
            fail_msg("%s p %d m %d v %d: lane %d is idle for %g, not %g", name, p, m, v,
                     lane, idle_of(name, p, m, v, lane), idle);
}

static void idle_of_one_chunk(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = p < 2 ? 1 : p; m <= 3 * p; m++) { /* holds from m = p on */
            assert_idle("gpipe", p, m, 0, 3 * (p - 1));
            assert_idle("1f1b", p, m, 0, 3 * (p - 1));
            assert_idle("1f1b-eager", p, m, 0, 3 * (p - 1));
        }
    for (int p = 1; p <= 8; p++)
        for (int m = 2 * p; m <= 3 * p + 1; m++)
            assert_idle("zb-h1", p, m, 0, p - 1);
}

/* (p-1)(T_F + T_I - 2 T_W) on inner lanes is 0 here: they never wait once they have
 * begun, so that what is idle is the way to the lane and from it. */
static void zb_h2_never_waits(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 2 * p; m <= 3 * p; m++) {
            struct sched_plan plan;
            struct sched_sim sim;
            make(&plan, "zb-h2", p, m, 0);
            assert_int_equal(sched_simulate(&sim, &plan, &sched_costs_unit, NULL), 0);
            for (int i = 0; i < p; i++) {
                assert_near(sim.lane[i].waiting, 0);
                assert_near(sim.lane[i].warmup, i);
            }
            sched_sim_fini(&sim);
            sched_plan_fini(&plan);
        }
}

static void idle_of_chunks(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int v = 1; v <= 3; v++)
            for (int groups = 1; groups <= 3; groups++) {
                assert_idle("interleaved", p, groups * p, v, 3.0 * (p - 1) / v);
                assert_idle("looped-bfs", p, groups * p, v, 3.0 * (p - 1) / v);
            }
}

/* zb-v has no bubble but the way down the V: (p-1) chunk times of a lane. */
static void idle_of_vees(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 2 * p; m <= 3 * p + 1; m++) {
            double half = 3.0 * (p - 1) / 2;
            assert_near(idle_of("zb-v", p, m, 0, -1), 0.5 * (p - 1));
            /* An odd number of lanes saves half a unit. */
            assert_near(idle_of("v-half", p, m, 0, -1),
                        p % 2 && p > 1 ? half - 0.5 : half);
        }
}

static void idle_of_chimera(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p += 2)
        assert_near(idle_of("chimera", p, p, 0, -1), 2.0 * (p - 2));
}

static void idle_of_forward(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 9; m++)
            assert_idle("forward", p, m, 0, p - 1);
}

/* The simulator's three causes and its edges add up to the idle time. */
static void causes_add_up(void **state)
{
    struct sched_costs costs = sched_costs_unit;
    struct sched_shape shape = {.lanes = 4, .micro_batches = 8, .costs = &costs};
    struct sched_comparison c;

    (void)state;
    costs.latency = 0.3;
    costs.bytes = 10;
    costs.bandwidth = 100;
    assert_int_equal(sched_compare(&c, &shape, NULL), 0);
    assert_true(c.results >= 13);
    for (int r = 0; r < c.results; r++) {
        const struct sched_sim *sim = &c.result[r].sim;
        double waiting = 0, waited = 0, idle = 0;
        for (int i = 0; i < sim->lanes; i++) {
            const struct sched_lane_sim *l = &sim->lane[i];
            assert_near(l->warmup + l->waiting + l->drain, l->idle);
            assert_near(l->busy + l->idle, sim->makespan);
            waiting += l->waiting;
            idle += l->idle;
        }
        for (int i = 0; i < sim->edges.n; i++) {
            waited += sim->edges.edge[i].waited;
            assert_near(sim->edges.edge[i].bytes,
                        10.0 * (double)sim->edges.edge[i].count);
        }
        assert_near(waited, waiting);
        assert_near(sim->bubble, idle / (4 * sim->makespan));
        assert_true(r == 0 || sim->makespan >= c.result[r - 1].sim.makespan - EXACT);
    }
    sched_comparison_fini(&c);
}

/* A link of its own latency counts for its direction alone: lane 0's first forward is
 * late on lane 1 by 5, the gradient back is not. */
static void links_differ(void **state)
{
    struct sched_link link = {.from = 0, .to = 1, .latency = 5};
    struct sched_costs costs = sched_costs_unit;

    (void)state;
    costs.links = &link;
    costs.n_links = 1;
    assert_near(run("gpipe", 2, 1, 0, &costs, NULL), 1 + 5 + 1 + 2 + 2);
    link.from = 1;
    link.to = 0;
    link.latency = 0;
    link.bandwidth = 4;
    costs.bytes = 2;
    assert_near(run("gpipe", 2, 1, 0, &costs, NULL), 1 + 1 + 2 + 0.5 + 2);
}

/* Rows are the model's parts: any number of stages covers all of them once. */
static void rows_cut_the_model(void **state)
{
    struct sched_cost row[6];
    struct sched_costs costs = {.row = row, .rows = 6};

    (void)state;
    for (int i = 0; i < 6; i++)
        row[i] = (struct sched_cost){.f = i + 1, .i = 2 * i, .w = 3};
    for (int stages = 1; stages <= 13; stages++) {
        struct sched_cost sum = {0};
        for (int s = 0; s < stages; s++) {
            struct sched_cost c = sched_costs_stage(&costs, 2, stages, s);
            sum.f += c.f;
            sum.b += c.b;
        }
        assert_near(sum.f, 21);
        assert_near(sum.b, 30 + 18);
    }
    assert_near(sched_costs_stage(&costs, 2, 3, 1).f, 3 + 4);
    assert_near(sched_costs_stage(&costs, 2, 12, 11).f, 3);
    assert_near(sched_costs_stage(&costs, 2, 4, 1).f, 0.5 * 2 + 3);
}

/* Late W: the second copy's are the last of their lanes, in the order of the micro-batches. */
static void assert_late(const struct sched_plan *plan)
{
    size_t want = 2 * (size_t)plan->stages * (size_t)plan->micro_batches, seconds = 0;

    for (int l = 0; l < plan->lanes; l++) {
        int before = -1;
        for (size_t i = 0; i < plan->lane[l].n; i++) {
            const struct sched_op *op = &plan->lane[l].ops[i];
            bool second = op->mb >= (plan->micro_batches + 1) / 2;
            assert_true(!second || op->kind != SCHED_B);
            want += op->kind == SCHED_I;
            if (second && op->kind == SCHED_W) {
                assert_true(op->mb > before);
                before = op->mb;
                seconds++;
            } else {
                assert_int_equal(before, -1);
            }
        }
    }
    assert_int_equal(sched_plan_count(plan), want);
    assert_int_equal(seconds, plan->stages * (plan->micro_batches / 2));
}

static void late_plans(void **state)
{
    static const char *const names[] = {"chimera", "dualpipe"};

    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (int p = 2; p <= 6; p += 2)
            for (int m = k ? 2 * p : 1; m <= 3 * p; m += k ? 2 : 1) {
                struct sched_plan plan;
                struct sched_error err;
                make(&plan, names[k], p, m, 0);
                assert_int_equal(sched_plan_late(&plan), 0);
                assert_int_equal(plan.copies, m > 1 ? 2 : 1);
                if (sched_check(&plan, 0, &err))
                    fail_msg("%s, p %d, m %d: %s", names[k], p, m, err.text);
                if (m > 1)
                    assert_late(&plan);
                sched_plan_fini(&plan);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(fewer_micro_batches_than_lanes),
        cmocka_unit_test(idle_of_one_chunk),
        cmocka_unit_test(zb_h2_never_waits),
        cmocka_unit_test(idle_of_chunks),
        cmocka_unit_test(idle_of_vees),
        cmocka_unit_test(idle_of_chimera),
        cmocka_unit_test(idle_of_forward),
        cmocka_unit_test(causes_add_up),
        cmocka_unit_test(links_differ),
        cmocka_unit_test(rows_cut_the_model),
        cmocka_unit_test(late_plans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
