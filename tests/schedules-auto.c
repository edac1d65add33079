/* auto against the best of all the named schedules, and its own time. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "schedules/check.h"
#include "schedules/list.h"
#include "schedules/simulate.h"
#include "tests/schedules-slow.h"
#include "tests/test.h"

#define SETS (TEST_SANITIZED ? 12 : 200)

#define MOST_ROWS 16

static struct slow slow;
static uint64_t seed = 0x853c49e6748fea9bu;

static double draw(double low, double high)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return low + (high - low) * (double)(seed >> 11) / 9007199254740992.0;
}

static int draw_int(int low, int high)
{
    return low + (int)(draw(0, 1) * (high - low + 1));
}

struct set {
    struct sched_cost row[MOST_ROWS];
    struct sched_costs costs;
    struct sched_shape shape;
};

/* Costs of 2p parts of a model: T_F varies by half around its mean, T_I by a fifth more,
 * T_W is a random share of T_I; some sets with a cap on memory. */
static void draw_set(struct set *s, double uneven)
{
    int p = draw_int(2, 8), caps[] = {0, p, draw_int((p + 2) / 2, 2 * p)};
    double w = draw(0.3, 2);

    memset(s, 0, sizeof(*s));
    for (int i = 0; i < 2 * p; i++) {
        double f = draw(1 - uneven, 1 + uneven),
               back = f * draw(1 - 0.4 * uneven, 1 + 0.4 * uneven);
        s->row[i] = (struct sched_cost){.f = f / 2, .i = back / 2, .w = back * w / 2};
    }
    s->costs =
        (struct sched_costs){.row = s->row, .rows = 2 * p, .latency = draw(0, 0.2)};
    s->shape = (struct sched_shape){.lanes = p,
                                    .micro_batches = draw_int(2 * p, 4 * p),
                                    .costs = &s->costs,
                                    .cap = caps[draw_int(0, 2)]};
}

/* Infinity if the schedule does not admit the shape. */
static double makespan_of(const struct schedule *schedule,
                          const struct sched_shape *shape)
{
    struct sched_plan plan;
    struct sched_sim sim;
    double makespan;

    if (sched_make(&plan, schedule, shape, NULL))
        return INFINITY;
    assert_int_equal(sched_simulate(&sim, &plan, shape->costs, NULL), 0);
    makespan = sim.makespan;
    sched_sim_fini(&sim);
    for (int i = 0; i < plan.lanes && shape->cap > 0; i++)
        assert_true(slow_peak(&plan, i) <= shape->cap + 1e-9);
    assert_true(slow_check(&slow, &plan));
    sched_plan_fini(&plan);
    return makespan;
}

static double best_named(const struct sched_shape *shape)
{
    double best = INFINITY;

    for (int i = 0; sched_list[i]; i++)
        if (!sched_list[i]->forward_only && strcmp(sched_list[i]->name, "auto"))
            best = fmin(best, makespan_of(sched_list[i], shape));
    return best;
}

/* How many of n sets are at least 3 % better. */
static int count_better(int n, double uneven)
{
    int better = 0;

    for (int i = 0; i < n; i++) {
        struct set s;
        double named, found;
        draw_set(&s, uneven);
        named = best_named(&s.shape);
        found = makespan_of(sched_find("auto"), &s.shape);
        if (!(found <= named * (1 + 1e-12)))
            fail_msg("set %d: p %d m %d cap %g: auto %.12g, but another %.12g", i,
                     s.shape.lanes, s.shape.micro_batches, s.shape.cap, found, named);
        better += found <= 0.97 * named;
    }
    return better;
}

static void uneven_costs(void **state)
{
    int better = count_better(SETS, 0.5);

    (void)state;
    print_message("auto is at least 3 %% better on %d of %d uneven sets\n", better, SETS);
    assert_true(3 * better >= SETS);
}

static void even_costs(void **state)
{
    (void)state;
    count_better(SETS / 10, 0);
}

/* The same costs give the same plan. */
static void is_deterministic(void **state)
{
    struct sched_plan plan[2];
    struct set s;

    (void)state;
    draw_set(&s, 0.5);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sched_make(&plan[i], sched_find("auto"), &s.shape, NULL), 0);
    for (int lane = 0; lane < plan[0].lanes; lane++) {
        assert_true(plan[0].lane[lane].n == plan[1].lane[lane].n);
        assert_memory_equal(plan[0].lane[lane].ops, plan[1].lane[lane].ops,
                            plan[0].lane[lane].n * sizeof(struct sched_op));
    }
    sched_plan_fini(&plan[0]);
    sched_plan_fini(&plan[1]);
}

/* Small shapes, and a cap that cannot hold a model's activations. */
static void small_shapes(void **state)
{
    static const int counts[] = {1, 6, 17};

    (void)state;
    for (int p = 1; p <= 8; p += TEST_SANITIZED ? 3 : 1)
        for (int i = 0; i < 3; i++)
            for (int cap = 0; cap <= 2; cap += 2) {
                struct sched_shape shape = {
                    .lanes = p, .micro_batches = counts[i], .cap = cap};
                struct sched_shape impossible = shape;
                impossible.cap = 0.2;
                shape.costs = impossible.costs = &sched_costs_unit;
                assert_true(makespan_of(sched_find("auto"), &shape) < INFINITY);
                assert_true(isinf(makespan_of(sched_find("auto"), &impossible)));
            }
}

/* With v = 1 dualpipe is the fastest, 26 against 27, with two copies of the weights. */
static void keeps_its_limits(void **state)
{
    struct sched_shape shape = {.lanes = 4, .micro_batches = 8};
    struct sched_plan plan;

    (void)state;
    for (int chunks = 1; chunks <= 4; chunks++)
        for (int one_copy = 0; one_copy < 2; one_copy++) {
            shape.chunks = chunks;
            shape.one_copy = one_copy;
            assert_int_equal(sched_make(&plan, sched_find("auto"), &shape, NULL), 0);
            assert_true(plan.chunks <= chunks);
            assert_int_equal(plan.copies, chunks == 1 && !one_copy ? 2 : 1);
            sched_plan_fini(&plan);
        }
}

static void takes_under_a_second(void **state)
{
    struct sched_shape shape = {.lanes = 8, .micro_batches = 64, .cap = 8};
    double longest = 0;

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct set s;
        struct sched_plan plan;
        clock_t before;
        do
            draw_set(&s, 0.5);
        while (s.shape.lanes != 8);
        shape.costs = &s.costs;
        before = clock();
        assert_int_equal(sched_make(&plan, sched_find("auto"), &shape, NULL), 0);
        longest = fmax(longest, (double)(clock() - before) / CLOCKS_PER_SEC);
        sched_plan_fini(&plan);
    }
    print_message("auto takes %.2f s at p = 8, m = 64\n", longest);
    if (!TEST_SANITIZED)
        assert_true(longest < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_costs),     cmocka_unit_test(even_costs),
        cmocka_unit_test(is_deterministic), cmocka_unit_test(small_shapes),
        cmocka_unit_test(keeps_its_limits), cmocka_unit_test(takes_under_a_second),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
