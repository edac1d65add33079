/* Every schedule on every small shape: a good plan within its memory, or refused. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "schedules/check.h"
#include "schedules/list.h"
#include "schedules/simulate.h"
#include "tests/schedules-slow.h"
#include "tests/test.h"

#define LANES         8
#define CHUNKS        3
#define MICRO_BATCHES 17

static struct slow slow;

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* The limits of each schedule, and its most activations on lane s, in A; v: chunks asked
 * for. */
static bool always(int p, int m, int v)
{
    (void)p;
    (void)m;
    (void)v;
    return true;
}

static bool one_chunk(int p, int m, int v)
{
    (void)p;
    (void)m;
    return v == 1;
}

static bool two_chunks(int p, int m, int v)
{
    (void)p;
    (void)m;
    return v == 2;
}

static bool groups(int p, int m, int v)
{
    (void)v;
    return m % p == 0;
}

static bool long_vee(int p, int m, int v)
{
    return v == 2 && m >= 2 * p;
}

static bool even_lanes(int p, int m, int v)
{
    (void)m;
    return v == 1 && p % 2 == 0;
}

static bool even_and_long(int p, int m, int v)
{
    return even_lanes(p, m, v) && m % 2 == 0 && m >= 2 * p;
}

static double all_of_them(int p, int m, int v, int s)
{
    (void)p;
    (void)v;
    (void)s;
    return m;
}

static double peak_1f1b(int p, int m, int v, int s)
{
    (void)v;
    return lesser(m, p - s);
}

static double peak_eager(int p, int m, int v, int s)
{
    (void)v;
    return lesser(m, 2 * (p - 1 - s) + 1);
}

static double peak_interleaved(int p, int m, int v, int s)
{
    return lesser(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1) / (double)v;
}

static double lanes(int p, int m, int v, int s)
{
    (void)v;
    (void)s;
    return lesser(m, p);
}

static double peak_zb_h2(int p, int m, int v, int s)
{
    (void)v;
    (void)s;
    return lesser(m, 2 * p - 1);
}

static double peak_v_half(int p, int m, int v, int s)
{
    (void)m;
    (void)v;
    (void)s;
    return (p + 2) / 2;
}

static double lanes_and_half(int p, int m, int v, int s)
{
    return lanes(p, m, v, s) + 0.5;
}

static double lanes_and_one(int p, int m, int v, int s)
{
    return lanes(p, m, v, s) + 1;
}

static double one_op(int p, int m, int v, int s)
{
    (void)p;
    (void)m;
    (void)s;
    return 1.0 / v;
}

static const struct {
    const char *name;
    bool (*admits)(int p, int m, int v);
    double (*peak)(int p, int m, int v, int s);
    bool reached; /* by the lane with the most, for m >= 2p */
} expected[] = {
    {"gpipe", one_chunk, all_of_them, true},
    {"1f1b", one_chunk, peak_1f1b, true},
    {"1f1b-eager", one_chunk, peak_eager, true},
    {"interleaved", groups, peak_interleaved, true},
    {"looped-bfs", always, all_of_them, true},
    {"zb-h1", one_chunk, lanes, true},
    {"zb-h2", one_chunk, peak_zb_h2, true},
    {"zb-v", two_chunks, lanes, true},
    {"v-half", two_chunks, peak_v_half, true},
    {"dualpipev", long_vee, lanes_and_half, true},
    {"chimera", even_lanes, lanes, true},
    {"dualpipe", even_and_long, lanes_and_one, true},
    {"forward", always, one_op, true},
};

#define SCHEDULES (sizeof(expected) / sizeof(expected[0]))

static void assert_good(const struct sched_plan *plan)
{
    if (!slow_check(&slow, plan))
        fail_msg("%s p %d m %d v %d: fault at lane %d, stage %d, micro-batch %d",
                 plan->name, plan->lanes, plan->micro_batches, plan->chunks,
                 slow.fault[0].lane, slow.fault[0].stage, slow.fault[0].mb);
}

/* Peaks within what is stated, counted in two ways. */
static void assert_memory(const struct sched_plan *plan, size_t which)
{
    int p = plan->lanes, m = plan->micro_batches, v = plan->chunks;
    double most = 0, stated = 0;

    for (int s = 0; s < p; s++) {
        double peak = slow_peak(plan, s), limit = expected[which].peak(p, m, v, s);
        assert_true(peak == sched_peak(plan, s));
        if (peak > limit + 1e-9)
            fail_msg("%s p %d m %d v %d: lane %d holds %g, over %g", plan->name, p, m, v,
                     s, peak, limit);
        most = fmax(most, peak);
        stated = fmax(stated, limit);
    }
    if (expected[which].reached && m >= 2 * p && fabs(most - stated) > 1e-9)
        fail_msg("%s p %d m %d v %d: peaks at %g, not at %g", plan->name, p, m, v, most,
                 stated);
}

/* With transfers too, the plan stays good, and without them it is what it was. */
static void assert_transfers(struct sched_plan *plan)
{
    struct sched_error err;
    size_t n = sched_plan_count(plan);

    assert_int_equal(sched_comm_insert(plan, &err), 0);
    if (sched_check(plan, 0, &err))
        fail_msg("%s p %d m %d: %s", plan->name, plan->lanes, plan->micro_batches,
                 err.text);
    assert_good(plan);
    sched_comm_remove(plan);
    assert_true(sched_plan_count(plan) == n);
}

static void try_shape(size_t which, int p, int m, int v)
{
    struct sched_shape shape = {.lanes = p, .micro_batches = m, .chunks = v};
    struct sched_error err = {.text = ""};
    struct sched_plan plan;
    int rc = sched_make(&plan, sched_find(expected[which].name), &shape, &err);

    if (!expected[which].admits(p, m, v)) {
        assert_int_equal(rc, -EINVAL);
        assert_true(strlen(err.text) > 10);
        return;
    }
    if (rc)
        fail_msg("%s p %d m %d v %d is refused: %s", expected[which].name, p, m, v,
                 err.text);
    assert_int_equal(plan.chunks, v);
    assert_int_equal(plan.stages, p * v);
    assert_good(&plan);
    assert_memory(&plan, which);
    assert_transfers(&plan);
    sched_plan_fini(&plan);
}

static void all_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCHEDULES; i++)
        for (int p = 1; p <= LANES; p++)
            for (int v = 1; v <= CHUNKS; v++)
                for (int m = 1; m <= MICRO_BATCHES; m++)
                    try_shape(i, p, m, v);
}

/* Every schedule of the list is in the table above, but auto, which has a test of its
 * own. */
static void table_is_whole(void **state)
{
    size_t n = 0;

    (void)state;
    while (sched_list[n])
        n++;
    assert_int_equal(n, SCHEDULES + 1);
    for (size_t i = 0; i < SCHEDULES; i++)
        assert_non_null(sched_find(expected[i].name));
}

/* Groups of interleaved other than p: good, or refused with a reason; a remainder of at
 * least p is a group of its own. */
static void interleaved_groups(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int g = 1; g <= 9; g++)
            for (int m = 1; m <= MICRO_BATCHES; m++) {
                struct sched_shape shape = {
                    .lanes = p, .micro_batches = m, .chunks = 2, .group = g};
                struct sched_error err;
                struct sched_plan plan;
                int rc = sched_make(&plan, sched_find("interleaved"), &shape, &err);
                bool whole = g <= m && (m % g == 0 || m % g >= p);
                if (g >= p)
                    assert_true((rc == 0) == whole);
                if (rc)
                    continue;
                assert_true(whole);
                assert_good(&plan);
                sched_plan_fini(&plan);
            }
}

/* Any map of stages to lanes. */
static void forward_on_any_map(void **state)
{
    const int map[] = {2, 0, 0, 1, 2, 2, 0};
    struct sched_step_op out[64];
    struct sched_plan plan;

    (void)state;
    assert_int_equal(sched_forward(&plan, 3, 7, map, 5), 0);
    assert_int_equal(plan.chunks, 3);
    assert_good(&plan);
    assert_int_equal(sched_order(&plan, out, NULL), 0);
    sched_comm_insert(&plan, NULL);
    assert_good(&plan);
    sched_plan_fini(&plan);
    assert_int_equal(sched_forward(&plan, 2, 7, map, 5), -EINVAL);
}

/* The linear order has every op once, behind what it depends on: a plan of one lane that
 * holds all of it in this order runs. */
static void order_is_linear(void **state)
{
    struct sched_shape shape = {.lanes = 4, .micro_batches = 9};
    struct sched_plan plan;
    size_t n, at[4] = {0};
    struct sched_step_op *out;

    (void)state;
    assert_int_equal(sched_make(&plan, sched_find("zb-v"), &shape, NULL), 0);
    assert_int_equal(sched_comm_insert(&plan, NULL), 0);
    n = sched_plan_count(&plan);
    out = calloc(n, sizeof(*out));
    assert_int_equal(sched_order(&plan, out, NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(out[i].index == at[out[i].lane]++);
    for (int i = 0; i < 4; i++)
        assert_true(at[i] == plan.lane[i].n);
    free(out);
    sched_plan_fini(&plan);
}

static void impossible_shapes(void **state)
{
    static const struct sched_shape shapes[] = {
        {.lanes = 0, .micro_batches = 4},
        {.lanes = -3, .micro_batches = 4},
        {.lanes = 65536, .micro_batches = 4},
        {.lanes = 4, .micro_batches = 0},
        {.lanes = 4, .micro_batches = 8, .chunks = -1},
        {.lanes = 4, .micro_batches = 8, .chunks = 100000},
        {.lanes = 4, .micro_batches = 8, .group = -4},
        {.lanes = 60000, .micro_batches = 60000},
        {.lanes = 4, .micro_batches = 8, .cap = 0.2},
    };

    (void)state;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++)
        for (int i = 0; sched_list[i]; i++) {
            struct sched_error err = {.text = ""};
            struct sched_plan plan;
            assert_int_equal(sched_make(&plan, sched_list[i], &shapes[k], &err), -EINVAL);
            assert_true(strlen(err.text) > 10);
        }
}

/* A quarter million forwards on 64 lanes: made, checked, simulated in two seconds. */
static void large_shape(void **state)
{
    const struct sched_shape shape = {.lanes = 64, .micro_batches = 1024, .chunks = 4};
    struct sched_plan plan;
    struct sched_sim sim;
    clock_t before = clock();

    (void)state;
    assert_int_equal(sched_make(&plan, sched_find("interleaved"), &shape, NULL), 0);
    assert_int_equal(sched_simulate(&sim, &plan, &sched_costs_unit, NULL), 0);
    if (!TEST_SANITIZED)
        assert_true(clock() - before < 2 * CLOCKS_PER_SEC);
    assert_true(fabs(sim.makespan - (3 * 1024 + 3 * 63 / 4.0)) < 1e-6);
    sched_sim_fini(&sim);
    sched_plan_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_whole),     cmocka_unit_test(all_shapes),
        cmocka_unit_test(interleaved_groups), cmocka_unit_test(forward_on_any_map),
        cmocka_unit_test(order_is_linear),    cmocka_unit_test(impossible_shapes),
        cmocka_unit_test(large_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
