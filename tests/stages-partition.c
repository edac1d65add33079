/* Cutting layers into stages: by cost against every possible cut, by ratio, as told. */
#include <math.h>
#include <string.h>

#include "stages/partition.h"
#include "tests/stages-refuse.h"

#define CASES      4000
#define MAX_STAGES 5
#define MAX_LAYERS 12

static uint64_t seed = 20240607;

/* xorshift64*, top bits. */
static uint32_t draw(uint32_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (uint32_t)((seed * 2685821657736338717U) >> 33) % below;
}

struct problem {
    int stages;
    size_t layers;
    double layer, embed, head;
    double speed[MAX_STAGES];
    const double *given; /* speed or NULL */
};

struct value {
    double slowest, squares;
};

static struct value value_of(const struct problem *p, const int *count)
{
    struct value v = {0};
    for (int s = 0; s < p->stages; s++) {
        double t = count[s] * p->layer + (s == 0 ? p->embed : 0) +
                   (s == p->stages - 1 ? p->head : 0);
        t /= p->given ? p->given[s] : 1;
        v.slowest = fmax(v.slowest, t);
        v.squares += t * t;
    }
    return v;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* The best value over all ways to put `left` layers on the stages from `s`. */
static void every_cut(const struct problem *p, int *count, int s, int left,
                      struct value *best)
{
    int later = p->stages - 1 - s;
    if (!later) {
        count[s] = left;
        struct value v = value_of(p, count);
        if (same(v.slowest, best->slowest) ? v.squares < best->squares
                                           : v.slowest < best->slowest)
            *best = v;
        return;
    }
    for (count[s] = 1; count[s] <= left - later; count[s]++)
        every_cut(p, count, s + 1, left - count[s], best);
}

/* Costs are small whole numbers in half of the cases, so that many cuts are equal. */
static struct problem random_problem(void)
{
    struct problem p = {.stages = 1 + (int)draw(MAX_STAGES)};
    bool whole = draw(2);
    p.layers = p.stages + draw(MAX_LAYERS + 1 - p.stages);
    p.layer = whole ? 1 + draw(4) : 1e9 * (0.1 + draw(1000) / 100.0);
    p.embed = draw(3) ? p.layer * draw(5) / (whole ? 1 : 3.7) : 0;
    p.head = draw(3) ? p.layer * draw(9) / (whole ? 1 : 2.3) : 0;
    for (int s = 0; s < p.stages; s++)
        p.speed[s] = whole ? 1 + draw(3) : 0.2 + draw(500) / 100.0;
    return p;
}

/* Every layer exactly once, in order, no stage empty. */
static void assert_covers(const struct stage_range *ranges, int stages, size_t layers)
{
    int next = 0;
    for (int s = 0; s < stages; s++) {
        assert_int_equal(ranges[s].first, next);
        assert_true(ranges[s].count >= 1);
        next += ranges[s].count;
    }
    assert_int_equal(next, layers);
}

static void check_problem(const struct problem *p, int number)
{
    struct stage_range ranges[MAX_STAGES];
    int count[MAX_STAGES], trial[MAX_STAGES];
    struct value best = {INFINITY, INFINITY};

    assert_int_equal(partition_by_cost(ranges, p->stages, p->layers, p->layer, p->embed,
                                       p->head, p->given),
                     0);
    assert_covers(ranges, p->stages, p->layers);
    for (int s = 0; s < p->stages; s++)
        count[s] = ranges[s].count;
    struct value got = value_of(p, count);
    every_cut(p, trial, 0, (int)p->layers, &best);
    if (!same(got.slowest, best.slowest) || !same(got.squares, best.squares))
        fail_msg("case %d, %d stages, %zu layers: slowest %.17g, squares %.17g; the best "
                 "cut has %.17g, %.17g",
                 number, p->stages, p->layers, got.slowest, got.squares, best.slowest,
                 best.squares);
}

static void by_cost_is_the_best_of_all_cuts(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct problem p = random_problem();
        p.given = NULL;
        check_problem(&p, i);
        p.given = p.speed;
        check_problem(&p, i);
    }
}

/* A head of eight layers' cost takes layers from the last stage, an embedding from the first. */
static void head_and_embedding_are_counted(void **state)
{
    struct stage_range r[4];
    (void)state;
    assert_int_equal(partition_by_cost(r, 2, 30, 1, 0, 8, NULL), 0);
    assert_int_equal(r[0].count, 19);
    assert_int_equal(r[1].count, 11);
    assert_int_equal(partition_by_cost(r, 2, 30, 1, 8, 0, NULL), 0);
    assert_int_equal(r[0].count, 11);
    assert_int_equal(partition_by_cost(r, 4, 32, 1, 0, 0, NULL), 0);
    for (int s = 0; s < 4; s++)
        assert_int_equal(r[s].count, 8);
    /* A head that is worth more than everything else leaves the last stage one layer. */
    assert_int_equal(partition_by_cost(r, 3, 9, 1, 0, 100, NULL), 0);
    assert_int_equal(r[0].count, 4);
    assert_int_equal(r[1].count, 4);
    assert_int_equal(r[2].count, 1);
}

static void costs_are_multiply_adds(void **state)
{
    struct model_config c = {.L = 3, .C = 8, .H = 4, .K = 2, .D = 3, .F = 16, .V = 100};
    struct partition_work work = {.layer_rows = 10, .head_rows = 5, .mean_context = 7};
    double layer, embed, head;
    (void)state;
    partition_costs(&c, &work, &layer, &embed, &head);
    /* q 8x12, k and v 8x6, o 12x8, three of 8x16; scores and their sum 4 heads x 3 x 7 keys */
    assert_true(layer == 10 * (96 + 48 + 48 + 96 + 3 * 128 + 2 * 84));
    assert_true(embed == 10 * 8);
    assert_true(head == 5 * 100 * 8);
}

/* expect: counts per stage, terminated by 0. */
static void assert_counts(const struct stage_range *r, int stages, const int *expect)
{
    int n = 0;
    while (expect[n])
        n++;
    assert_int_equal(stages, n);
    for (int s = 0; s < stages; s++)
        assert_int_equal(r[s].count, expect[s]);
}

static void ratios_are_followed(void **state)
{
    static const struct {
        const char *split;
        int stages, layers;
        int expect[6];
    } cases[] = {
        {"1", 1, 7, {7}},
        {"3,1", 2, 8, {6, 2}},
        {"3,1", 2, 2, {1, 1}},
        {"1,1", 2, 30, {15, 15}},
        {"0.5,0.25,0.25", 3, 12, {6, 3, 3}},
        {"1e3,1", 2, 10, {9, 1}},
        {"1,1000000", 2, 10, {1, 9}},
        {"1,1,1000", 3, 4, {1, 1, 2}},
        {"1,2,3,4", 4, 30, {3, 6, 9, 12}},
        {"1,1,1,1,1", 5, 5, {1, 1, 1, 1, 1}},
    };
    struct stage_range r[6];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(
            partition_by_ratio(r, cases[i].stages, cases[i].layers, cases[i].split), 0);
        assert_covers(r, cases[i].stages, cases[i].layers);
        assert_counts(r, cases[i].stages, cases[i].expect);
    }
}

/* Whatever the ratios: every layer once, no stage empty, at most one layer from the exact share where no
 * stage is squeezed to one layer. */
static void random_ratios_cover_all_layers(void **state)
{
    struct stage_range r[MAX_STAGES];
    (void)state;
    for (int i = 0; i < CASES; i++) {
        int stages = 1 + (int)draw(MAX_STAGES), n = 0;
        size_t layers = stages + draw(80);
        double ratio[MAX_STAGES], sum = 0;
        char list[128];
        bool squeezed = false;
        for (int s = 0; s < stages; s++) {
            ratio[s] = draw(4) ? 1 + draw(9) : 0.001 + draw(1000);
            sum += ratio[s];
            n += snprintf(list + n, sizeof(list) - n, "%s%.3f", s ? "," : "", ratio[s]);
        }
        assert_int_equal(partition_by_ratio(r, stages, layers, list), 0);
        assert_covers(r, stages, layers);
        for (int s = 0; s < stages; s++)
            squeezed |= ratio[s] / sum * layers < 1;
        for (int s = 0; s < stages && !squeezed; s++)
            assert_true(fabs(r[s].count - ratio[s] / sum * layers) <= 1 + 1e-9);
    }
}

static void exact_counts_are_followed(void **state)
{
    struct stage_range r[4];
    (void)state;
    assert_int_equal(partition_exact(r, 2, 30, "12,18"), 0);
    assert_covers(r, 2, 30);
    assert_int_equal(r[0].count, 12);
    assert_int_equal(partition_exact(r, 1, 5, "5"), 0);
    assert_covers(r, 1, 5);
    assert_int_equal(partition_exact(r, 4, 10, "1,2,3,4"), 0);
    assert_covers(r, 4, 10);
    assert_counts(r, 4, (const int[]){1, 2, 3, 4, 0});
}

enum way { BY_COST, BY_RATIO, EXACT };

static void refuse_cut(enum way way, int stages, size_t layers, const char *list,
                       const char *says)
{
    struct stage_range r[8];
    struct capture c = capture_begin();
    int err = way == BY_COST    ? partition_by_cost(r, stages, layers, 1, 1, 1, NULL)
              : way == BY_RATIO ? partition_by_ratio(r, stages, layers, list)
                                : partition_exact(r, stages, layers, list);
    char *text = capture_end(c);
    if (err != -EINVAL || !capture_is_one_line(text) || !strstr(text, says))
        fail_msg("%d stages, %zu layers, \"%s\": error %d, \"%s\" was expected: %s",
                 stages, layers, list ? list : "", err, says, text);
    free(text);
}

static void bad_lists_are_refused(void **state)
{
    static const char *const malformed[] = {
        "",      ",",      "3",    "3,",   ",3",   "3,1,",  "3,1,2",   "3 1",
        "3;1",   "3,,1",   "a,b",  "3,1x", "3,-1", "0,3",   "-3,6",    "nan,1",
        "inf,1", "3,1e99", "3,1 ", "3,0x", "--",   "3,1\n", "1e-400,3"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(malformed); i++) {
        refuse_cut(BY_RATIO, 2, 4, malformed[i], "--split");
        refuse_cut(EXACT, 2, 4, malformed[i], "--layers");
    }
    refuse_cut(EXACT, 2, 4, "2.5,1.5", "whole numbers");
    refuse_cut(EXACT, 2, 4, "1,2", "adds up to 3");
    refuse_cut(EXACT, 2, 4, "4,1", "adds up to 5");
    refuse_cut(EXACT, 2, 4, "1000000,1000000", "adds up to 2000000");
}

static void stages_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refuse_cut(BY_COST, 5, 4, NULL, "5 stages cannot share 4 layers");
    refuse_cut(BY_COST, 0, 4, NULL, "stages");
    refuse_cut(BY_COST, -1, 4, NULL, "stages");
    refuse_cut(BY_COST, 1, 0, NULL, "stages");
    refuse_cut(BY_RATIO, 3, 2, "1,1,1", "3 stages cannot share 2 layers");
    refuse_cut(BY_RATIO, -1, 2, "1", "stages");
    refuse_cut(EXACT, 3, 2, "1,1,1", "3 stages cannot share 2 layers");
    refuse_cut(EXACT, 0, 2, "", "stages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_cost_is_the_best_of_all_cuts),
        cmocka_unit_test(head_and_embedding_are_counted),
        cmocka_unit_test(costs_are_multiply_adds),
        cmocka_unit_test(ratios_are_followed),
        cmocka_unit_test(random_ratios_cover_all_layers),
        cmocka_unit_test(exact_counts_are_followed),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(stages_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
