/* Which GPU gets which lane: machines that files describe, machines that are made up, and every chain of small
 * ones. */
#include "tests/test.h"

#include <errno.h>
#include <string.h>

#include "runtime/assign.h"
#include "tests/stages-files.h"

#define MAX_GPUS 6
#define CASES    400

static void describe(struct place_machine *m, const char *topology)
{
    struct place *place;

    setenv("HWLOC_XMLFILE", TEST_DATA(topology), 1);
    assert_int_equal(place_open(&place), 0);
    place_imagine(place);
    assert_int_equal(place_describe(place, m), 0);
    place_close(place);
    unsetenv("HWLOC_XMLFILE");
}

/* want: "0 2 4". */
static void must_be(const struct place_machine *m, int p, bool ring, const char *want,
                    const char *basis)
{
    int order[32];
    const char *by;
    char text[128] = "";

    assert_int_equal(assign_chain(order, &by, m, p, ring), 0);
    for (int i = 0, n = 0; i < p; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%d", i ? " " : "", order[i]);
    assert_string_equal(text, want);
    assert_string_equal(by, basis);
}

/* ---- Machines --------------------------------------------------------------------------------- */

static void behind_a_switch_numbers_decide(void **state)
{
    static const char basis[] = "NVLink matrix of hwloc";
    struct place_machine m;
    (void)state;

    describe(&m, "topologies/nvswitch-8gpu.xml");
    must_be(&m, 1, false, "0", basis);
    must_be(&m, 4, false, "0 1 2 3", basis);
    must_be(&m, 8, false, "0 1 2 3 4 5 6 7", basis);
    must_be(&m, 8, true, "0 1 2 3 4 5 6 7", basis);
    place_machine_free(&m);
    describe(&m, "topologies/dgx2-16gpu-nvswitch.xml");
    must_be(&m, 16, false, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", basis);
    must_be(&m, 16, true, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", basis);
    place_machine_free(&m);
}

/* Four stay in one island; eight leave it once, a ring twice, and do so within a socket. */
static void islands_are_left_once(void **state)
{
    static const char basis[] = "NVLink matrix of hwloc";
    struct place_machine m;
    (void)state;

    describe(&m, "topologies/islands-8gpu.xml");
    must_be(&m, 2, false, "0 2", basis);
    must_be(&m, 4, false, "0 2 4 6", basis);
    must_be(&m, 4, true, "0 2 4 6", basis);
    must_be(&m, 5, false, "0 1 3 5 7", basis);
    must_be(&m, 8, false, "0 2 4 6 5 7 1 3", basis);
    must_be(&m, 8, true, "0 1 3 5 7 4 6 2", basis);
    place_machine_free(&m);
    describe(&m, "topologies/power8-4gpu.xml");
    must_be(&m, 2, false, "0 1", basis);
    must_be(&m, 4, false, "0 1 2 3", basis);
    place_machine_free(&m);
}

static void pcie_shares_a_socket(void **state)
{
    static const char basis[] = "sockets and NUMA nodes";
    struct place_machine m;
    (void)state;

    describe(&m, "topologies/pcie-4gpu.xml");
    must_be(&m, 2, false, "0 1", basis);
    must_be(&m, 4, true, "0 1 2 3", basis);
    /* The same machine with its GPUs numbered across the sockets. */
    struct place_gpu one = m.gpus[1];
    m.gpus[1] = m.gpus[2];
    m.gpus[2] = one;
    must_be(&m, 2, false, "0 2", basis);
    must_be(&m, 4, false, "0 2 1 3", basis);
    must_be(&m, 4, true, "0 1 3 2", basis);
    place_machine_free(&m);
    describe(&m, "topologies/pcie-8gpu.xml");
    must_be(&m, 4, false, "0 1 2 3", basis);
    must_be(&m, 8, false, "0 1 2 3 4 5 6 7", basis);
    place_machine_free(&m);
    describe(&m, "topologies/one-gpu.xml");
    must_be(&m, 1, true, "0", basis);
    place_machine_free(&m);
}

/* A GPU of which nothing is known. */
static const struct place_gpu stray = {.node = -1, .package = -1};

static void says_what_it_knows_nothing_of(void **state)
{
    struct place_gpu gpus[20];
    double none[9] = {0};
    struct place_machine m = {.gpus = gpus, .n_gpus = 3, .nvlink = none};
    (void)state;

    for (int i = 0; i < 20; i++)
        gpus[i] = stray;
    must_be(&m, 3, false, "0 1 2", "no link information: in the order of their numbers");
    gpus[0].node = gpus[2].node = 0;
    gpus[1].node = 1;
    must_be(&m, 2, false, "0 2", "sockets and NUMA nodes");
    m.nvlink = NULL;
    m.n_gpus = 17;
    must_be(&m, 2, true, "0 1",
            "too many GPUs to compare: in the order of their numbers");
}

/* Ranks of the driver: 0-3, 3-1 and 1-2 have the best, 0-1 and 2-3 the next; 0-2 have no link. */
static void follows_the_driver(void **state)
{
    static const char basis[] = "peer attributes of the driver";
    struct place_gpu gpus[4] = {stray, stray, stray, stray};
    int peers[16] = {-1, 1, -1, 0, 1, -1, 0, 0, -1, 0, -1, 1, 0, 0, 1, -1};
    int alike[16];
    struct place_machine m = {.gpus = gpus, .n_gpus = 4, .peers = peers};
    (void)state;

    must_be(&m, 4, false, "0 3 1 2", basis);
    must_be(&m, 3, false, "0 3 1", basis);
    must_be(&m, 3, true, "0 1 3", basis);
    for (int i = 0; i < 16; i++)
        alike[i] = i % 5 ? 0 : -1;
    m.peers = alike;
    for (int i = 0; i < 4; i++)
        gpus[i].node = gpus[i].package = i % 2;
    must_be(&m, 2, false, "0 2", basis);
    must_be(&m, 4, false, "0 2 1 3", basis);
}

static void refuses_more_lanes_than_gpus(void **state)
{
    struct place_gpu gpus[2] = {stray, stray};
    struct place_machine m = {.gpus = gpus, .n_gpus = 2};
    int order[3];
    const char *by;
    (void)state;

    for (int p = 0; p <= 3; p += 3) {
        struct capture c = capture_begin();
        int err = assign_chain(order, &by, &m, p, false);
        char *text = capture_end(c);
        assert_int_equal(err, -EINVAL);
        assert_true(capture_is_one_line(text));
        assert_non_null(strstr(text, "lanes need as many GPUs: this machine has 2"));
        free(text);
    }
}

/* ---- Every chain ------------------------------------------------------------------------------ */

static uint64_t seed = 20250401;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(seed >> 33) % below;
}

struct value {
    double slowest, sum;
    int gaps, crossings;
};

static void add_hop(struct value *v, const struct place_machine *m, int a, int b)
{
    const struct place_gpu *x = &m->gpus[a], *y = &m->gpus[b];
    double to = m->nvlink[a * m->n_gpus + b], from = m->nvlink[b * m->n_gpus + a];
    double rate = to < from ? to : from;

    v->slowest = rate < v->slowest ? rate : v->slowest;
    v->sum += rate;
    v->gaps += rate == 0;
    v->crossings += (x->node != y->node) + (x->package != y->package);
}

static struct value value_of(const struct place_machine *m, const int *order, int p,
                             bool ring)
{
    struct value v = {.slowest = 1e30};

    for (int i = 1; i < p; i++)
        add_hop(&v, m, order[i - 1], order[i]);
    if (ring && p > 1)
        add_hop(&v, m, order[p - 1], order[0]);
    return v;
}

static bool is_better(struct value a, struct value b)
{
    if (a.slowest != b.slowest)
        return a.slowest > b.slowest;
    if (a.gaps != b.gaps)
        return a.gaps < b.gaps;
    return a.crossings != b.crossings ? a.crossings < b.crossings : a.sum > b.sum;
}

/* Chains in the order of their numbers: the first of equals stays. */
static void every_chain(int *best, int *order, const struct place_machine *m, int i,
                        int p, bool ring)
{
    if (i == p) {
        if (best[0] < 0 ||
            is_better(value_of(m, order, p, ring), value_of(m, best, p, ring)))
            memcpy(best, order, (size_t)p * sizeof(*best));
        return;
    }
    for (int gpu = 0; gpu < m->n_gpus; gpu++) {
        bool taken = false;
        for (int k = 0; k < i; k++)
            taken |= order[k] == gpu;
        order[i] = gpu;
        if (!taken)
            every_chain(best, order, m, i + 1, p, ring);
    }
}

static void equals_the_best_of_all_chains(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct place_gpu gpus[MAX_GPUS];
        double nvlink[MAX_GPUS * MAX_GPUS];
        int n = 2 + (int)draw(MAX_GPUS - 1), p = 1 + (int)draw((uint32_t)n);
        int best[MAX_GPUS] = {-1}, order[MAX_GPUS];
        bool ring = draw(2);
        const char *by;
        struct place_machine m = {.gpus = gpus, .n_gpus = n, .nvlink = nvlink};
        for (int k = 0; k < n * n; k++)
            nvlink[k] = draw(3) ? 25e9 * (1 + draw(3)) : 0;
        nvlink[1] = 50e9;
        for (int k = 0; k < n; k++)
            gpus[k] = (struct place_gpu){.node = (int)draw(3), .package = (int)draw(2)};
        every_chain(best, order, &m, 0, p, ring);
        assert_int_equal(assign_chain(order, &by, &m, p, ring), 0);
        assert_memory_equal(order, best, (size_t)p * sizeof(*best));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_a_switch_numbers_decide),
        cmocka_unit_test(islands_are_left_once),
        cmocka_unit_test(pcie_shares_a_socket),
        cmocka_unit_test(says_what_it_knows_nothing_of),
        cmocka_unit_test(follows_the_driver),
        cmocka_unit_test(refuses_more_lanes_than_gpus),
        cmocka_unit_test(equals_the_best_of_all_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
