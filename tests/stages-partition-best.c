/* The best cut under memory caps against every possible one, and what it says where none fits. */
#include "tests/test.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "stages/partition.h"

#define CASES      3000
#define MAX_LANES  5
#define MAX_CHUNKS 3
#define MAX_LAYERS 12
#define MAX_STAGES MAX_LAYERS

static uint64_t seed = 20250311;

/* xorshift64*, top bits. */
static uint32_t draw(uint32_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (uint32_t)((seed * 2685821657736338717U) >> 33) % below;
}

/* A problem with what it points to. */
struct given {
    struct partition_problem p;
    int lane[MAX_STAGES], live[MAX_STAGES];
    double layer_time[MAX_LAYERS], speed[MAX_LANES];
    size_t layer_bytes[MAX_LAYERS], fixed[MAX_STAGES], cap[MAX_LANES];
};

struct value {
    double excess, slowest, squares;
};

/* ---- Every cut, from the definition alone ------------------------------------------------------ */

static double stage_time(const struct partition_problem *p, int stage, int first, int n)
{
    double t = (stage ? 0 : p->embed_time) + (stage < p->stages - 1 ? 0 : p->head_time);

    for (int i = first; i < first + n; i++)
        t += p->layer_time[i];
    return t / p->speed[p->lane[stage]];
}

static double stage_bytes(const struct partition_problem *p, int stage, int first, int n)
{
    bool shared = p->tied && p->lane[0] == p->lane[p->stages - 1] && stage == 0;
    size_t bytes = p->fixed[stage] + (stage < p->stages - 1 ? 0 : p->head_bytes);

    if (stage == 0)
        bytes += shared ? 0 : p->embed_bytes;
    for (int i = first; i < first + n; i++)
        bytes += p->layer_bytes[i] + (size_t)p->live[stage] * p->act_bytes;
    return (double)bytes;
}

static struct value value_of(const struct partition_problem *p, const int *count)
{
    struct value v = {0};

    for (int lane = 0; lane < p->lanes; lane++) {
        double t = 0, bytes = 0;
        for (int s = 0, first = 0; s < p->stages; first += count[s++])
            if (p->lane[s] == lane) {
                t += stage_time(p, s, first, count[s]);
                bytes += stage_bytes(p, s, first, count[s]);
            }
        if (p->cap[lane])
            v.excess = fmax(v.excess, bytes - (double)p->cap[lane]);
        v.slowest = fmax(v.slowest, t);
        v.squares += t * t;
    }
    return v;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static bool is_better(struct value a, struct value b)
{
    if (a.excess != b.excess)
        return a.excess < b.excess;
    return same(a.slowest, b.slowest) ? a.squares < b.squares : a.slowest < b.slowest;
}

static void every_cut(const struct partition_problem *p, int *count, int s, int left,
                      struct value *best)
{
    int later = p->stages - 1 - s;

    if (!later) {
        count[s] = left;
        struct value v = value_of(p, count);
        if (is_better(v, *best))
            *best = v;
        return;
    }
    for (count[s] = 1; count[s] <= left - later; count[s]++)
        every_cut(p, count, s + 1, left - count[s], best);
}

/* ---- Random problems -------------------------------------------------------------------------- */

/* Lane of a stage: 0 1 2 0 1 2, or 0 1 2 2 1 0. */
static int placed(int stage, int lanes, bool v)
{
    int back = stage / lanes % 2 && v;
    return back ? lanes - 1 - stage % lanes : stage % lanes;
}

/* Whole numbers in half of the cases, so that many cuts are equal; equal layers in some. */
static void draw_times(struct given *g)
{
    struct partition_problem *p = &g->p;
    bool whole = draw(2), equal = !draw(4);

    for (size_t i = 0; i < p->layers; i++) {
        g->layer_time[i] = whole ? 1 + draw(4) : 1e-3 * (0.1 + draw(1000) / 100.0);
        g->layer_bytes[i] = 1000 + draw(whole ? 3 : 2000);
        if (equal && i) {
            g->layer_time[i] = g->layer_time[0];
            g->layer_bytes[i] = g->layer_bytes[0];
        }
    }
    for (int lane = 0; lane < p->lanes; lane++)
        g->speed[lane] = whole ? 1 + draw(3) : 0.2 + draw(500) / 100.0;
    p->embed_time = draw(3) ? g->layer_time[0] * draw(3) : 0;
    p->head_time = draw(3) ? g->layer_time[0] * draw(9) : 0;
}

static void draw_bytes(struct given *g)
{
    struct partition_problem *p = &g->p;
    unsigned scale = 1 + draw(6);

    p->act_bytes = draw(500);
    p->embed_bytes = draw(3000);
    p->tied = draw(2);
    p->head_bytes = p->tied ? p->embed_bytes + draw(2) : draw(3000);
    for (int s = 0; s < p->stages; s++) {
        g->live[s] = (int)draw(5);
        g->fixed[s] = draw(300);
    }
    for (int lane = 0; lane < p->lanes; lane++)
        g->cap[lane] = draw(3) ? scale * (2000 + draw(2000)) : 0;
}

static void draw_problem(struct given *g)
{
    int lanes = 1 + (int)draw(MAX_LANES), chunks = 1 + (int)draw(MAX_CHUNKS);
    bool v = draw(2);

    while (lanes * chunks > MAX_LAYERS)
        chunks--;
    *g = (struct given){.p = {.stages = lanes * chunks, .lanes = lanes}};
    g->p.layers = (size_t)g->p.stages + draw(MAX_LAYERS + 1 - (uint32_t)g->p.stages);
    for (int s = 0; s < g->p.stages; s++)
        g->lane[s] = placed(s, lanes, v);
    draw_times(g);
    draw_bytes(g);
    g->p.lane = g->lane;
    g->p.layer_time = g->layer_time;
    g->p.speed = g->speed;
    g->p.layer_bytes = g->layer_bytes;
    g->p.live = g->live;
    g->p.fixed = g->fixed;
    g->p.cap = g->cap;
}

/* ---- Tests ------------------------------------------------------------------------------------ */

/* The layers per stage; every layer is there once, no stage is empty. */
static void counts_of(int *count, const struct stage_range *ranges, int stages,
                      size_t layers)
{
    int next = 0;

    for (int s = 0; s < stages; s++) {
        assert_int_equal(ranges[s].first, next);
        assert_true(ranges[s].count >= 1);
        next += count[s] = ranges[s].count;
    }
    assert_int_equal(next, layers);
}

/* Returns whether a cut fits. */
static bool check_problem(const struct given *g, int number)
{
    struct stage_range ranges[MAX_STAGES];
    struct partition_result r;
    int count[MAX_STAGES], trial[MAX_STAGES];
    struct value best = {INFINITY, INFINITY, INFINITY};
    int err = partition_best(ranges, &r, &g->p);

    every_cut(&g->p, trial, 0, (int)g->p.layers, &best);
    assert_int_equal(err, best.excess > 0 ? -ENOSPC : 0);
    assert_true(r.exact);
    counts_of(count, ranges, g->p.stages, g->p.layers);
    struct value got = value_of(&g->p, count);
    assert_true(same(r.slowest, got.slowest));
    assert_true((double)r.missing == got.excess);
    assert_int_equal(r.full_lane >= 0, got.excess > 0);
    if (got.excess != best.excess ||
        (!err && (!same(got.slowest, best.slowest) || !same(got.squares, best.squares))))
        fail_msg(
            "case %d, %d stages on %d lanes, %zu layers: excess %.0f, slowest %.17g, "
            "squares %.17g; the best cut has %.0f, %.17g, %.17g",
            number, g->p.stages, g->p.lanes, g->p.layers, got.excess, got.slowest,
            got.squares, best.excess, best.slowest, best.squares);
    return !err;
}

static void equals_the_best_of_all_cuts(void **state)
{
    int fit = 0;
    (void)state;

    for (int i = 0; i < CASES; i++) {
        struct given g;
        draw_problem(&g);
        fit += check_problem(&g, i);
    }
    assert_true(fit > CASES / 4 && fit < CASES * 9 / 10);
}

/* The simplest problem: nothing but times. */
static void needs_no_more_than_times(void **state)
{
    static const double times[] = {1, 1, 1, 1, 4, 4, 1, 1};
    struct partition_problem p = {
        .layers = 8, .stages = 3, .lanes = 3, .layer_time = times};
    struct stage_range r[3];
    (void)state;

    assert_int_equal(partition_best(r, NULL, &p), 0);
    assert_int_equal(r[0].count, 4);
    assert_int_equal(r[1].count, 1);
    assert_int_equal(r[2].count, 3);
}

/* A head of four layers' time on a V: its lane has both ends, and so four layers less; chunks stay even. */
static void balances_the_lanes_of_a_v(void **state)
{
    static const int lane[] = {0, 1, 1, 0};
    double times[20];
    struct stage_range r[4];
    struct partition_result result;
    (void)state;

    for (int i = 0; i < 20; i++)
        times[i] = 1;
    struct partition_problem p = {.layers = 20,
                                  .stages = 4,
                                  .lanes = 2,
                                  .lane = lane,
                                  .layer_time = times,
                                  .head_time = 4};
    assert_int_equal(partition_best(r, &result, &p), 0);
    assert_true(result.exact && result.slowest == 12);
    assert_int_equal(r[0].count, 4);
    assert_int_equal(r[1].count, 6);
    assert_int_equal(r[2].count, 6);
    assert_int_equal(r[3].count, 4);
}

/* Memory that is short on lane 0 moves layers to where fewer micro-batches are alive, then to the other lane. */
static void memory_moves_layers(void **state)
{
    static const int lane[] = {0, 1, 0, 1}, live[] = {4, 3, 2, 1};
    static const struct {
        size_t cap;
        int count[4];
    } cases[] = {{0, {2, 2, 2, 2}},  {12, {2, 2, 2, 2}}, {11, {1, 2, 3, 2}},
                 {10, {1, 2, 3, 2}}, {9, {1, 3, 2, 2}},  {6, {1, 3, 1, 3}}};
    double times[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t cap[] = {cases[i].cap, 0};
        struct stage_range r[4];
        struct partition_problem p = {.layers = 8,
                                      .stages = 4,
                                      .lanes = 2,
                                      .lane = lane,
                                      .layer_time = times,
                                      .act_bytes = 1,
                                      .live = live,
                                      .cap = cap};
        assert_int_equal(partition_best(r, NULL, &p), 0);
        for (int s = 0; s < 4; s++)
            assert_int_equal(r[s].count, cases[i].count[s]);
    }
}

/* Ten layers of 100 bytes, room for 300 and 500: the best attempt misses 100 on both. */
static void tells_what_is_missing(void **state)
{
    double times[10];
    size_t bytes[10], cap[] = {300, 500}, one[] = {1000};
    struct stage_range r[2];
    struct partition_result result;
    (void)state;

    for (int i = 0; i < 10; i++) {
        times[i] = 1;
        bytes[i] = 100;
    }
    struct partition_problem p = {.layers = 10,
                                  .stages = 2,
                                  .lanes = 2,
                                  .layer_time = times,
                                  .layer_bytes = bytes,
                                  .cap = cap};
    assert_int_equal(partition_best(r, &result, &p), -ENOSPC);
    assert_int_equal(result.full_lane, 0);
    assert_int_equal(result.missing, 100);
    assert_int_equal(r[0].count, 4);
    p.stages = p.lanes = 1;
    p.cap = one;
    p.embed_bytes = p.head_bytes = 64;
    assert_int_equal(partition_best(r, &result, &p), -ENOSPC);
    assert_int_equal(result.missing, 128);
    p.tied = true;
    assert_int_equal(partition_best(r, &result, &p), -ENOSPC);
    assert_int_equal(result.missing, 64);
}

/* Prints how long it takes if asked. Layers differ by up to `noise`. */
static void large(size_t layers, int lanes, int chunks, bool v, double noise)
{
    double times[128];
    size_t bytes[128], cap[16];
    int lane[64], live[64];
    struct stage_range ranges[64];
    struct partition_result r;
    struct timespec a, b;

    for (size_t i = 0; i < layers; i++) {
        times[i] = 1e-3 * (1 + noise * draw(1000) / 1000);
        bytes[i] = 1000000;
    }
    for (int s = 0; s < lanes * chunks; s++) {
        lane[s] = placed(s, lanes, v);
        live[s] = lanes * chunks - s;
        cap[lane[s]] = 1000000 * (layers / (size_t)lanes + 3);
    }
    struct partition_problem p = {.layers = layers,
                                  .stages = lanes * chunks,
                                  .lanes = lanes,
                                  .lane = lane,
                                  .layer_time = times,
                                  .head_time = 3e-3,
                                  .layer_bytes = bytes,
                                  .act_bytes = 1000,
                                  .live = live,
                                  .cap = cap};
    clock_gettime(CLOCK_MONOTONIC, &a);
    int err = partition_best(ranges, &r, &p);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_int_equal(err, 0);
    assert_int_equal(ranges[p.stages - 1].first + ranges[p.stages - 1].count, layers);
    if (chunks == 1 || noise == 0)
        assert_true(r.exact);
    double even = 0;
    for (size_t i = 0; i < layers; i++)
        even += times[i];
    even = (even + 3e-3) / lanes;
    assert_true(r.slowest >= even * (1 - 1e-9) && r.slowest < even + 2e-3);
    if (getenv("PENSTOCK_TEST_VERBOSE"))
        printf(
            "%zu layers, %d lanes x %d%s, noise %g: %.2f ms, slowest lane %.1f %% over "
            "an even share, %s\n",
            layers, lanes, chunks, v ? " in a V" : "", noise,
            (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6,
            100 * (r.slowest / even - 1), r.exact ? "exact" : "searched");
}

static void cuts_large_models(void **state)
{
    (void)state;
    large(128, 16, 1, false, 0);
    large(128, 16, 1, false, 0.5);
    large(64, 8, 2, false, 0);
    large(64, 8, 2, true, 0);
    large(32, 4, 2, true, 0.5);
    large(64, 8, 2, false, 0.5);
    large(64, 8, 2, true, 0.5);
    large(128, 16, 4, false, 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_best_of_all_cuts),
        cmocka_unit_test(needs_no_more_than_times),
        cmocka_unit_test(balances_the_lanes_of_a_v),
        cmocka_unit_test(memory_moves_layers),
        cmocka_unit_test(tells_what_is_missing),
        cmocka_unit_test(cuts_large_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
