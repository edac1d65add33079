/* The machine as text and picture: this one, measured, and two that files describe. */
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/device.h"
#include "runtime/penstock.h"

static char folder[] = "/tmp/penstock-topo-XXXXXX";

struct seen {
    int err;
    char *text, *svg; /* svg NULL: there is no such file */
    char said[4096];  /* on stderr */
};

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n = 0;
    char *text = calloc(1, 1 << 20);

    if (f) {
        n = fread(text, 1, (1 << 20) - 1, f);
        fclose(f);
    }
    if (n)
        return text;
    free(text);
    return NULL;
}

/* penstock_topo of a topology file, NULL: this machine. */
static struct seen look(const char *topology, const char *devices, const char *picture)
{
    struct seen s = {0};
    char path[256];
    size_t bytes;
    FILE *out = open_memstream(&s.text, &bytes), *file = tmpfile();
    int old = dup(STDERR_FILENO);

    snprintf(path, sizeof(path), "%s/%s", folder, picture);
    if (topology)
        setenv("HWLOC_XMLFILE", TEST_DATA(topology), 1);
    else
        unsetenv("HWLOC_XMLFILE");
    dup2(fileno(file), STDERR_FILENO);
    s.err = penstock_topo(out, path, devices);
    dup2(old, STDERR_FILENO);
    close(old);
    fclose(out);
    rewind(file);
    s.said[fread(s.said, 1, sizeof(s.said) - 1, file)] = '\0';
    fclose(file);
    s.svg = read_all(path);
    unlink(path);
    return s;
}

static void drop(struct seen *s)
{
    free(s->text);
    free(s->svg);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word))) {
        n++;
        text += strlen(word);
    }
    return n;
}

static void must_have(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in:\n%s", words, text);
}

/* The picture is XML: elements are closed, and text has no stray mark-up. */
static void must_be_picture(const char *svg)
{
    assert_non_null(svg);
    assert_int_equal(strncmp(svg, "<svg xmlns=", 11), 0);
    assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
    assert_int_equal(count(svg, "<text "), count(svg, "</text>"));
    assert_int_equal(count(svg, "<rect "), count(svg, "/>"));
    assert_int_equal(count(svg, "<"),
                     count(svg, "<text ") * 2 + count(svg, "<rect ") + 4);
    assert_int_equal(count(svg, "nan"), 0);
    assert_int_equal(count(svg, "inf"), 0);
}

/* No temporary file stays behind. */
static void must_be_empty(void)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    assert_int_equal(n, 2);
}

static void shows_this_machine(void **state)
{
    struct seen s = look(NULL, NULL, "a.svg");
    (void)state;

    assert_int_equal(s.err, 0);
    assert_int_equal(strncmp(s.text, "machine\n", 8), 0);
    must_have(s.text, "GPUs\n");
    must_have(s.text, "lanes\n  c");
    if (device_count() == 0 && count(s.text, "  cpu:") > 1) {
        double latency, rate;
        must_have(s.text, "links\n");
        const char *copy = strstr(s.text, "copy*");
        assert_non_null(copy);
        assert_int_equal(sscanf(copy, "copy* %lf us %lf GB/s", &latency, &rate), 2);
        assert_true(latency >= 0 && latency < 1000);
        assert_true(rate > 0.01 && rate < 10000);
    }
    must_be_picture(s.svg);
    must_be_empty();
    drop(&s);
}

static void draws_an_nvswitch_machine(void **state)
{
    struct seen s = look("topologies/dgx2-16gpu-nvswitch.xml", NULL, "a.svg");
    (void)state;

    assert_int_equal(s.err, 0);
    must_have(s.text, "NVIDIA DGX-2H");
    must_have(s.text, "2 packages, 4 cores, 4 processors");
    must_have(s.text, "node 0: 754.6 GiB, usable processors 0-1\n");
    must_have(s.text, "node 1: 756.0 GiB, usable processors 24-25\n");
    must_have(s.text, "cuda:0   Tesla V100-SXM3-32GB-H, 0000:34:00.0, node 0\n");
    must_have(s.text, "cuda:15  Tesla V100-SXM3-32GB-H, 0000:e7:00.0, node 1\n");
    must_have(s.text, "links: not measured");
    assert_int_equal(count(s.text, "   150"), 16 * 15);
    must_have(s.text, "order of the GPUs (NVLink matrix of hwloc)\n  cuda:0,cuda:1,");
    must_be_picture(s.svg);
    assert_int_equal(count(s.svg, ">150<"), 16 * 15);
    assert_int_equal(count(s.svg, "Tesla V100"), 16);
    assert_int_equal(count(s.svg, ">node "), 2);
    drop(&s);
}

static void draws_a_machine_without_switch(void **state)
{
    struct seen s = look("topologies/power8-4gpu.xml", NULL, "a.svg");
    (void)state;

    assert_int_equal(s.err, 0);
    must_have(s.text, "usable processors 80-81,88-89,96-97,104-105\n");
    must_have(s.text,
              "cuda:2   Tesla P100-SXM2-16GB, 000a:01:00.0, node 1, 56 multiprocessors");
    must_have(s.text, "  cuda:0            40     -     -\n");
    must_have(s.text, "  cuda:3       -     -    40      \n");
    must_be_picture(s.svg);
    assert_int_equal(count(s.svg, ">40<"), 4);
    drop(&s);
}

/* What --devices takes if nobody says is the chain that is shown. */
static void orders_the_gpus(void **state)
{
    static const char order[] = "cuda:0,cuda:2,cuda:4,cuda:6,cuda:5,cuda:7,cuda:1,cuda:3";
    struct seen s = look("topologies/islands-8gpu.xml", "auto", "a.svg");
    (void)state;

    assert_int_equal(s.err, 0);
    must_have(s.text, "order of the GPUs (NVLink matrix of hwloc)\n  ");
    must_have(s.text, order);
    must_have(s.text, "lanes\n  cuda:0  GPU 0, node 0\n  cuda:2  GPU 2, node 0\n"
                      "  cuda:4  GPU 4, node 1\n  cuda:6  GPU 6, node 1\n  cuda:5  ");
    must_have(s.svg, order);
    must_be_picture(s.svg);
    drop(&s);
    s = look("topologies/pcie-4gpu.xml", NULL, "a.svg");
    must_have(s.text, "order of the GPUs (sockets and NUMA nodes)\n"
                      "  cuda:0,cuda:1,cuda:2,cuda:3\n");
    drop(&s);
    s = look("topologies/one-gpu.xml", NULL, "a.svg");
    assert_int_equal(count(s.text, "order"), 0);
    assert_int_equal(count(s.svg, "Order"), 0);
    drop(&s);
}

static void draws_lanes_of_another_machine(void **state)
{
    struct seen s =
        look("topologies/power8-4gpu.xml", "cuda:3/4,cuda:1,cpu:80-81+104", "a.svg");
    (void)state;

    assert_int_equal(s.err, 0);
    must_have(s.text, "cuda:3/4.3     GPU 3, node 1\n");
    must_have(s.text, "cpu:80-81+104  3 processors, node 1\n");
    must_be_picture(s.svg);
    drop(&s);
}

static void must_fail(const char *topology, const char *devices, const char *picture,
                      const char *because)
{
    struct seen s = look(topology, devices, picture);

    assert_true(s.err < 0);
    must_have(s.said, because);
    assert_int_equal(count(s.said, "\n"), 1);
    assert_null(s.svg);
    must_be_empty();
    drop(&s);
}

static void fails_in_one_line(void **state)
{
    (void)state;
    must_fail(NULL, "gpu:0", "a.svg", "no kind of lane");
    must_fail("topologies/power8-4gpu.xml", "cuda:4", "a.svg",
              "no such GPU: this machine has 4");
    must_fail("topologies/power8-4gpu.xml", "cpu:2", "a.svg", "no processor 2 ");
    must_fail("topologies/none.xml", NULL, "a.svg", "none.xml: No such file");
    must_fail("topologies/README.md", NULL, "a.svg", "hwloc cannot read ");
    must_fail(NULL, NULL, "no/a.svg", "no/a.svg: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_this_machine),
        cmocka_unit_test(draws_an_nvswitch_machine),
        cmocka_unit_test(draws_a_machine_without_switch),
        cmocka_unit_test(orders_the_gpus),
        cmocka_unit_test(draws_lanes_of_another_machine),
        cmocka_unit_test(fails_in_one_line),
    };

    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
