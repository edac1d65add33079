/* Lanes by name, and binding: what is refused is refused in one line, and what is bound is bound. */
#include "tests/test.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"
#include "runtime/place.h"

static struct place *place;
static char said[4096]; /* what the last call of parse() wrote to stderr */

/* place_parse with stderr kept in said. */
static int parse(struct lane_spec **specs, int *n, const char *list)
{
    FILE *file = tmpfile();
    int old = dup(STDERR_FILENO);

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    int err = place_parse(place, specs, n, list);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return err;
}

static int count(const char *text, char c)
{
    int n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}

/* The processors that this process may use, by the system's own word. */
static int usable(int *cpus)
{
    cpu_set_t set;
    int n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cpus[n++] = i;
    return n;
}

/* Every @ of a pattern becomes a processor that there is. */
static void name_first_processor(char *list, const char *pattern)
{
    int cpus[CPU_SETSIZE];

    usable(cpus);
    for (; *pattern; pattern++)
        if (*pattern == '@')
            list += sprintf(list, "%d", cpus[0]);
        else
            *list++ = *pattern;
    *list = '\0';
}

static void must_refuse(const char *pattern, const char *because)
{
    char list[100100];
    struct lane_spec *specs = NULL;
    int n = -1;

    name_first_processor(list, pattern);
    assert_int_equal(parse(&specs, &n, list), -EINVAL);
    assert_null(specs);
    assert_int_equal(n, -1);
    if (count(said, '\n') != 1 || !strstr(said, because))
        fail_msg("\"%s\" said: %s", list, said);
    assert_int_equal(strncmp(said, "penstock: error: --devices ", 27), 0);
}

static void refuses_bad_lists(void **state)
{
    static const char *const cases[][2] = {
        {"", "a lane is missing"},
        {",", "a lane is missing"},
        {",,", "a lane is missing"},
        {"cpu:@,", "a lane is missing"},
        {"cpu", "no kind of lane"},
        {"gpu:0", "no kind of lane"},
        {"CPU:0", "no kind of lane"},
        {"0", "no kind of lane"},
        {" cpu:0", "no kind of lane"},
        {"gpu\n\033[1m:0", "gpu??[1m:0"},
        {"cpu:", "a processor number is missing"},
        {"cpu:x", "a processor number is missing"},
        {"cpu:-1", "a processor number is missing"},
        {"cpu:@-", "a processor number is missing"},
        {"cpu:@+", "a processor number is missing"},
        {"cpu:+@", "a processor number is missing"},
        {"cpu:@ ", "cannot read"},
        {"cpu:@\n", "cannot read \"?\""},
        {"cpu:@x1", "cannot read \"x1\""},
        {"cpu:@-@-@", "cannot read \"-"},
        {"cpu:3-1", "runs backwards"},
        {"cpu:1000000", "no processor 1000000 for this process: it may use "},
        {"cpu:@-2147483647", "no processor"},
        {"cpu:2147483648", "no processor 2147483648"},
        {"cpu:99999999999999999999", "no processor 999999999999 "},
        {"cpu:@-99999999999999999999", "no processor 999999999999 "},
        {"cuda:", "a GPU number is missing"},
        {"cuda:x", "a GPU number is missing"},
        {"cuda:-1", "a GPU number is missing"},
        {"cuda:1000", "no such GPU"},
        {"cuda:99999999999999999999", "no such GPU"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        must_refuse(cases[i][0], cases[i][1]);
}

static void refuses_a_processor_twice(void **state)
{
    int cpus[CPU_SETSIZE];
    char list[64];
    (void)state;

    usable(cpus);
    snprintf(list, sizeof(list), "cpu:%d+%d", cpus[0], cpus[0]);
    must_refuse(list, "named twice");
}

static void lanes_may_share_a_processor(void **state)
{
    struct lane_spec *specs;
    int cpus[CPU_SETSIZE], n;
    char list[64];
    (void)state;

    usable(cpus);
    snprintf(list, sizeof(list), "cpu:%d,cpu:%d", cpus[0], cpus[0]);
    assert_int_equal(place_parse(place, &specs, &n, list), 0);
    assert_int_equal(n, 2);
    assert_int_equal(specs[0].cpus[0], specs[1].cpus[0]);
    lane_specs_free(specs, n);
}

static void refuses_gpus(void **state)
{
    (void)state;
    if (!device_count()) {
        must_refuse("cuda:0", device_why_none());
        must_refuse("cpu:@,cuda:0", device_why_none());
        return;
    }
    must_refuse("cuda:0/", "the number of slices is missing");
    must_refuse("cuda:0/0", "1 to");
    must_refuse("cuda:0/999", "1 to");
    must_refuse("cuda:0/99999999999999999999", "1 to");
    must_refuse("cuda:0/-1", "the number of slices is missing");
    must_refuse("cuda:0/4.0", "cannot read \".0\"");
    must_refuse("cuda:0x", "cannot read \"x\"");
    must_refuse("cuda:0,cuda:0", "named twice");
    must_refuse("cuda:0/2,cuda:0", "named twice");
    must_refuse("cuda:0/2,cuda:0/2", "named twice");
}

/* A long list of words is one short line as well. */
static void shows_little_of_a_long_list(void **state)
{
    char *list = malloc(100001);
    (void)state;

    memset(list, 'x', 100000);
    list[100000] = '\0';
    must_refuse(list, "xxx...");
    assert_true(strlen(said) < 300);
    free(list);
}

static void reads_cpu_lanes(void **state)
{
    int cpus[CPU_SETSIZE], n_cpus = usable(cpus), n;
    struct lane_spec *specs;
    char list[64];
    (void)state;

    snprintf(list, sizeof(list), "cpu:%d", cpus[0]);
    assert_int_equal(parse(&specs, &n, list), 0);
    assert_int_equal(n, 1);
    assert_string_equal(said, "");
    assert_string_equal(specs[0].name, list);
    assert_int_equal(specs[0].kind, LANE_CPU);
    assert_int_equal(specs[0].device, -1);
    assert_int_equal(specs[0].n_cpus, 1);
    assert_int_equal(specs[0].cpus[0], cpus[0]);
    lane_specs_free(specs, n);
    if (n_cpus < 2)
        return;

    snprintf(list, sizeof(list), "cpu:%d+%d", cpus[1], cpus[0]);
    assert_int_equal(parse(&specs, &n, list), 0);
    assert_int_equal(n, 1);
    assert_int_equal(specs[0].n_cpus, 2);
    assert_int_equal(specs[0].cpus[0], cpus[1]);
    assert_int_equal(specs[0].cpus[1], cpus[0]);
    lane_specs_free(specs, n);

    snprintf(list, sizeof(list), "cpu:%d,cpu:%d-%d", cpus[0], cpus[1], cpus[1]);
    assert_int_equal(parse(&specs, &n, list), 0);
    assert_int_equal(n, 2);
    assert_int_equal(specs[1].n_cpus, 1);
    assert_int_equal(specs[1].cpus[0], cpus[1]);
    lane_specs_free(specs, n);
}

/* "cpu:A+B+.." of all processors is longer than a name: it is cut, and the lane is right. */
static void reads_a_long_lane(void **state)
{
    int cpus[CPU_SETSIZE], n_cpus = usable(cpus), n;
    struct lane_spec *specs;
    char list[24 * CPU_SETSIZE] = "cpu:";
    (void)state;

    for (int i = 0; i < n_cpus; i++)
        sprintf(list + strlen(list), "%s%020d", i ? "+" : "", cpus[i]);
    assert_int_equal(parse(&specs, &n, list), 0);
    assert_int_equal(specs[0].n_cpus, n_cpus);
    assert_true(strlen(specs[0].name) < sizeof(specs[0].name));
    assert_memory_equal(specs[0].cpus, cpus, n_cpus * sizeof(int));
    lane_specs_free(specs, n);
}

static void offers_lanes(void **state)
{
    int cpus[CPU_SETSIZE], n_cpus = usable(cpus), n, m, seen = 0;
    struct lane_spec *specs, *again;
    (void)state;

    assert_int_equal(parse(&specs, &n, NULL), 0);
    assert_int_equal(parse(&again, &m, "auto"), 0);
    assert_int_equal(n, m);
    if (device_count()) {
        assert_int_equal(n, device_count());
        assert_string_equal(specs[0].name, "cuda:0");
        assert_int_equal(specs[0].n_slices, 1);
    } else {
        assert_int_equal(n, n_cpus > 1 ? 2 : 1);
        for (int i = 0; i < n; i++)
            seen += specs[i].n_cpus;
        assert_int_equal(seen, n_cpus);
        assert_true(abs(specs[0].n_cpus - specs[n - 1].n_cpus) <= 1);
    }
    for (int i = 0; i < n; i++)
        assert_string_equal(specs[i].name, again[i].name);
    lane_specs_free(specs, n);
    lane_specs_free(again, m);
}

static void names_slices(void **state)
{
    struct lane_spec *specs;
    int n;
    (void)state;

    if (!device_count())
        skip();
    assert_int_equal(parse(&specs, &n, "cuda:0/4"), 0);
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "cuda:0/4.%d", i);
        assert_string_equal(specs[i].name, name);
        assert_int_equal(specs[i].kind, LANE_CUDA);
        assert_int_equal(specs[i].slice, i);
        assert_int_equal(specs[i].n_slices, 4);
    }
    lane_specs_free(specs, n);
}

/* Every processor in turn: the thread may run there and nowhere else, by the system's own word. */
static void binds_the_thread(void **state)
{
    int cpus[CPU_SETSIZE], n_cpus = usable(cpus);
    cpu_set_t before, now;
    (void)state;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (int i = 0; i < n_cpus; i++) {
        struct lane_spec spec = {
            .kind = LANE_CPU, .name = "cpu", .device = -1, .cpus = &cpus[i], .n_cpus = 1};
        assert_int_equal(place_bind_thread(place, &spec), 0);
        assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
        assert_int_equal(CPU_COUNT(&now), 1);
        assert_true(CPU_ISSET(cpus[i], &now));
        assert_int_equal(sched_getcpu(), cpus[i]);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void binds_memory(void **state)
{
    int cpus[CPU_SETSIZE];
    struct lane_spec spec = {
        .kind = LANE_CPU, .name = "cpu", .device = -1, .cpus = cpus, .n_cpus = 1};
    size_t bytes = 1 << 22;
    char *buffer = malloc(bytes);
    (void)state;

    usable(cpus);
    memset(buffer, 7, bytes);
    assert_int_equal(place_bind_memory(place, &spec, buffer, bytes), 0);
    assert_int_equal(place_bind_memory(place, &spec, buffer, 0), 0);
    for (size_t i = 0; i < bytes; i += 4095)
        assert_int_equal(buffer[i], 7);
    free(buffer);
}

static void writes_processors(void **state)
{
    static const int some[] = {0, 1, 2, 3, 8, 10, 11};
    char text[64];
    (void)state;

    place_cpus_text(text, sizeof(text), some, 7, ',');
    assert_string_equal(text, "0-3,8,10-11");
    place_cpus_text(text, sizeof(text), some, 7, '+');
    assert_string_equal(text, "0-3+8+10-11");
    place_cpus_text(text, sizeof(text), some, 1, ',');
    assert_string_equal(text, "0");
    place_cpus_text(text, sizeof(text), some, 0, ',');
    assert_string_equal(text, "");
    place_cpus_text(text, 12, some, 7, ',');
    assert_string_equal(text, "0-3,8,10-11");
    place_cpus_text(text, 11, some, 7, ',');
    assert_string_equal(text, "0-3,8...");
}

/* In a process that may use one processor, the others do not exist. */
static void respects_the_allowed_set(void **state)
{
    int cpus[CPU_SETSIZE], n_cpus = usable(cpus), n;
    struct place *whole = place;
    struct lane_spec *specs;
    cpu_set_t before, one;
    char list[32];
    (void)state;

    if (n_cpus < 2)
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET(cpus[1], &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(place_open(&place), 0);
    snprintf(list, sizeof(list), "cpu:%d", cpus[0]);
    must_refuse(list, "no processor");
    if (!device_count()) {
        assert_int_equal(parse(&specs, &n, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(specs[0].cpus[0], cpus[1]);
        lane_specs_free(specs, n);
    }
    place_close(place);
    place = whole;
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_bad_lists),
        cmocka_unit_test(refuses_a_processor_twice),
        cmocka_unit_test(lanes_may_share_a_processor),
        cmocka_unit_test(refuses_gpus),
        cmocka_unit_test(shows_little_of_a_long_list),
        cmocka_unit_test(reads_cpu_lanes),
        cmocka_unit_test(reads_a_long_lane),
        cmocka_unit_test(offers_lanes),
        cmocka_unit_test(names_slices),
        cmocka_unit_test(binds_the_thread),
        cmocka_unit_test(binds_memory),
        cmocka_unit_test(writes_processors),
        cmocka_unit_test(respects_the_allowed_set),
    };

    if (place_open(&place))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_close(place);
    return failed;
}
