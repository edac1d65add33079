/* Links between CPU lanes carry every byte and no other; impossible links are refused in one line. */
#include "tests/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/link.h"

#define MOST ((size_t)1 << 20)

static int processor;
static struct lane cpu_a = {.spec = {.kind = LANE_CPU, .name = "cpu:0", .device = -1}};
static struct lane cpu_b = {.spec = {.kind = LANE_CPU, .name = "cpu:1", .device = -1}};
static struct lane gpu_a = {.spec = {.kind = LANE_CUDA, .name = "cuda:0", .device = 0}};
static struct lane gpu_b = {.spec = {.kind = LANE_CUDA, .name = "cuda:1", .device = 1}};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void carries(enum link_kind kind, enum link_kind expected)
{
    uint8_t *src = malloc(MOST + 64), *dst = malloc(MOST + 64);
    uint32_t seed = 1;
    struct link *l;

    assert_int_equal(link_create(&l, kind, &cpu_a, &cpu_b, MOST, false), 0);
    assert_int_equal(l->ops->kind, expected);
    for (int round = 0; round < 64; round++) {
        size_t bytes = round == 0 ? 0 : round == 1 ? MOST : next_random(&seed) % MOST;
        size_t from = next_random(&seed) % 32, to = 1 + next_random(&seed) % 32;
        for (size_t i = 0; i < MOST + 64; i++)
            src[i] = (uint8_t)next_random(&seed);
        memset(dst, 0x5a, MOST + 64);
        assert_int_equal(link_transfer(l, dst + to, src + from, bytes, NULL), 0);
        assert_memory_equal(dst + to, src + from, bytes);
        assert_int_equal(dst[to - 1], 0x5a);
        assert_int_equal(dst[to + bytes], 0x5a);
    }
    link_abort(l);
    link_destroy(l);
    free(src);
    free(dst);
}

static void joins_cpu_lanes(void **state)
{
    (void)state;
    carries(LINK_COPY, LINK_COPY);
    carries(LINK_HOST, LINK_HOST);
    carries(LINK_AUTO, LINK_COPY);
}

/* What fn writes to stderr must be one line with these words. */
static void says(const char *words, int (*fn)(void *arg), void *arg)
{
    char said[1024];
    FILE *file = tmpfile();
    int old = dup(STDERR_FILENO);

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    int err = fn(arg);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(err, -EINVAL);
    char *end = strchr(said, '\n');
    if (!end || end[1] || !strstr(said, words))
        fail_msg("said: %s", said);
}

struct attempt {
    enum link_kind kind;
    struct lane *from, *to;
};

static int attempt(void *arg)
{
    struct attempt *a = arg;
    struct link *l;
    return link_create(&l, a->kind, a->from, a->to, 1, false);
}

static void refuses_what_cannot_join(void **state)
{
    struct attempt nccl_cpu = {LINK_NCCL, &cpu_a, &cpu_b};
    struct attempt nccl_mixed = {LINK_NCCL, &gpu_a, &cpu_a};
    struct attempt copy_mixed = {LINK_COPY, &cpu_a, &gpu_a};
    struct attempt copy_back = {LINK_COPY, &gpu_a, &cpu_a};
    (void)state;

    says("link nccl cannot join lanes cpu:0 and cpu:1: ", attempt, &nccl_cpu);
    says("link nccl cannot join lanes cuda:0 and cpu:0: ", attempt, &nccl_mixed);
    says("use host or auto", attempt, &copy_mixed);
    says("use host or auto", attempt, &copy_back);
}

static int overflow(void *arg)
{
    char byte[8] = "";
    return link_transfer(arg, byte, byte + 4, 4, NULL);
}

static void refuses_more_than_its_bytes(void **state)
{
    struct link *l;
    (void)state;

    assert_int_equal(link_create(&l, LINK_COPY, &cpu_a, &cpu_b, 3, false), 0);
    says("was made for 3 bytes, not 4", overflow, l);
    link_destroy(l);
}

static void picks_by_place(void **state)
{
    struct lane slice = {.spec = {.kind = LANE_CUDA, .name = "cuda:0/2.1", .device = 0}};
    bool nccl = link_nccl.enqueue != NULL;
    (void)state;

    assert_int_equal(link_kind_pick(&cpu_a, &cpu_b), LINK_COPY);
    assert_int_equal(link_kind_pick(&gpu_a, &slice), LINK_COPY);
    assert_int_equal(link_kind_pick(&gpu_a, &gpu_b), nccl ? LINK_NCCL : LINK_COPY);
    assert_int_equal(link_kind_pick(&gpu_a, &cpu_a), LINK_HOST);
    assert_int_equal(link_kind_pick(&cpu_a, &gpu_a), LINK_HOST);
}

static int parse_unknown(void *arg)
{
    enum link_kind kind;
    return link_kind_parse(&kind, arg);
}

static void names_kinds(void **state)
{
    (void)state;
    for (int i = 0; i < LINK_KIND_COUNT; i++) {
        enum link_kind kind = LINK_KIND_COUNT;
        assert_int_equal(link_kind_parse(&kind, link_kind_name(i)), 0);
        assert_int_equal(kind, i);
    }
    says("no link \"tcp\"", parse_unknown, "tcp");
    says("no link \"\"", parse_unknown, "");
}

static void measures(void **state)
{
    struct place *place;
    struct link *l;
    double small = -1, large = -1;
    (void)state;

    assert_int_equal(place_open(&place), 0);
    assert_int_equal(link_create(&l, LINK_COPY, &cpu_a, &cpu_b, 16 << 20, false), 0);
    assert_int_equal(link_measure(l, place, &small, 4096, 9), 0);
    assert_int_equal(link_measure(l, place, &large, 16 << 20, 9), 0);
    assert_true(small >= 0 && small < 1e-3);
    assert_true(large > small && large < 1);
    link_destroy(l);
    place_close(place);
}

/* A processor that this process may use. */
static int any_processor(void)
{
    struct place *place;
    int *cpus, n;

    if (place_open(&place) || place_cpus(place, &cpus, &n))
        exit(1);
    int cpu = cpus[0];
    free(cpus);
    place_close(place);
    return cpu;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_cpu_lanes),
        cmocka_unit_test(refuses_what_cannot_join),
        cmocka_unit_test(refuses_more_than_its_bytes),
        cmocka_unit_test(picks_by_place),
        cmocka_unit_test(names_kinds),
        cmocka_unit_test(measures),
    };

    processor = any_processor();
    cpu_a.spec.cpus = cpu_b.spec.cpus = &processor;
    cpu_a.spec.n_cpus = cpu_b.spec.n_cpus = 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
