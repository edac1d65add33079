/* Lanes of a set have a context each, and lanes of one GPU a stream of their own. */
#include "tests/test.h"

#include <errno.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/kernel.h"
#include "runtime/lane.h"

static struct place *place;

static void must_hold_memory(struct lane *l)
{
    uint8_t sent[1000], got[1000] = {0};
    void *p;

    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t)(i * 7);
    assert_int_equal(arena_init(&l->arena, l->ctx, 4096), 0);
    assert_int_equal(arena_alloc(&l->arena, &p, sizeof(sent)), 0);
    l->ctx->ops->upload(l->ctx, p, sent, sizeof(sent));
    l->ctx->ops->download(l->ctx, got, p, sizeof(got));
    l->ctx->ops->sync(l->ctx);
    assert_int_equal(kernel_error(l->ctx), 0);
    assert_memory_equal(got, sent, sizeof(sent));
}

static void makes_lanes(const char *list, int expected, enum dtype dtype)
{
    struct lane_spec *specs;
    struct lane_set set;
    int n;

    assert_int_equal(place_parse(place, &specs, &n, list), 0);
    if (expected)
        assert_int_equal(n, expected);
    assert_int_equal(lane_set_create(&set, specs, n, dtype), 0);
    assert_int_equal(set.n, n);
    for (int i = 0; i < n; i++) {
        struct lane *l = &set.lanes[i];
        bool cpu = l->spec.kind == LANE_CPU;
        assert_int_equal(l->index, i);
        assert_string_equal(l->spec.name, specs[i].name);
        assert_int_equal(l->ctx->device, specs[i].device);
        assert_int_equal(l->ctx->dtype, cpu ? DTYPE_F32 : dtype);
        assert_true(cpu ? !l->stream : l->stream && l->sms > 0);
        for (int j = 0; j < i && !cpu; j++)
            assert_ptr_not_equal(l->stream, set.lanes[j].stream);
        must_hold_memory(l);
    }
    lane_set_destroy(&set);
    assert_int_equal(set.n, 0);
    lane_specs_free(specs, n);
}

static void makes_cpu_lanes(void **state)
{
    char list[32];
    int *cpus, n;
    (void)state;

    assert_int_equal(place_cpus(place, &cpus, &n), 0);
    snprintf(list, sizeof(list), "cpu:%d", cpus[0]);
    makes_lanes(list, 1, DTYPE_F32);
    makes_lanes(list, 1, DTYPE_BF16);
    if (n > 1) {
        snprintf(list, sizeof(list), "cpu:%d,cpu:%d", cpus[0], cpus[1]);
        makes_lanes(list, 2, DTYPE_F32);
    }
    free(cpus);
}

static void makes_gpu_lanes(void **state)
{
    (void)state;
    if (!device_count())
        skip();
    makes_lanes("cuda:0", 1, DTYPE_BF16);
    makes_lanes("cuda:0/2", 2, DTYPE_F32);
    makes_lanes("cuda:0/4", 4, DTYPE_BF16);
    makes_lanes(NULL, device_count(), DTYPE_BF16);
}

/* A GPU that is not there ends the whole set, with nothing left behind. */
static void fails_whole(void **state)
{
    struct lane_spec *specs, both[2];
    struct lane_set set;
    int *cpus, n;
    char list[32];
    (void)state;

    assert_int_equal(place_cpus(place, &cpus, &n), 0);
    snprintf(list, sizeof(list), "cpu:%d", cpus[0]);
    free(cpus);
    assert_int_equal(place_parse(place, &specs, &n, list), 0);
    both[0] = specs[0];
    both[1] = (struct lane_spec){
        .kind = LANE_CUDA, .name = "cuda:99", .device = 99, .n_slices = 1};
    assert_int_equal(lane_set_create(&set, both, 2, DTYPE_F32), -ENODEV);
    assert_null(set.lanes);
    lane_specs_free(specs, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_cpu_lanes),
        cmocka_unit_test(makes_gpu_lanes),
        cmocka_unit_test(fails_whole),
    };

    if (place_open(&place))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_close(place);
    return failed;
}
