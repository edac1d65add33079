/* Slices are equal and disjoint in number; links between slices, between GPUs and to the host carry
 * every byte, in both directions at once. */
#include "tests/test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/link.h"

#define MOST   (((size_t)1 << 20) + 5)
#define GUARD  64 /* bytes on both sides of a destination that must stay as they are */
#define ROUNDS 20

static const size_t sizes[] = {0, 1, 3, 4096, MOST};
static struct place *place;

/* Lanes of a --devices list. */
struct lanes {
    struct lane_spec *specs;
    struct lane lane[8];
    int n;
};

static void open_lanes(struct lanes *l, const char *list)
{
    assert_int_equal(place_parse(place, &l->specs, &l->n, list), 0);
    assert_true(l->n <= 8);
    for (int i = 0; i < l->n; i++)
        l->lane[i] = (struct lane){.index = i, .spec = l->specs[i]};
}

static void close_lanes(struct lanes *l)
{
    lane_specs_free(l->specs, l->n);
}

static uint8_t *take(const struct lane *l, size_t bytes)
{
    void *p = NULL;
    if (l->spec.kind == LANE_CPU)
        p = malloc(bytes);
    else
        device_alloc(&p, l->spec.device, bytes);
    return p;
}

static void drop(const struct lane *l, void *p)
{
    if (l->spec.kind == LANE_CPU)
        free(p);
    else
        device_free(l->spec.device, p);
}

static int copy_now(void *dst, const void *src, size_t bytes, void *stream)
{
    int err = device_copy(dst, src, bytes, stream);
    return err ? err : device_stream_sync(stream);
}

/* One direction of a pair of lanes, in a thread of its own: cmocka's asserts belong to the main thread, so it
 * counts faults. */
struct direction {
    struct lane *from, *to;
    enum link_kind kind;
    bool backward;
    uint32_t seed;
    int faults;
    void *stream; /* of a consumer */
    uint8_t *src, *dst, *sent, *got;
};

static bool carry(struct direction *d, struct link *l, size_t bytes, void *after)
{
    size_t whole = MOST + 2 * GUARD;

    for (size_t i = 0; i < whole; i++)
        d->sent[i] = (uint8_t)((d->seed = d->seed * 1664525u + 1013904223u) >> 24);
    memset(d->got, 0x5a, whole);
    if (copy_now(d->src, d->sent, whole, d->stream) ||
        copy_now(d->dst, d->got, whole, d->stream) ||
        link_transfer(l, d->dst + GUARD, d->src + 3, bytes, after) ||
        copy_now(d->got, d->dst, whole, d->stream))
        return false;
    bool whole_guard = true;
    for (size_t i = 0; i < GUARD; i++)
        whole_guard &= d->got[i] == 0x5a && d->got[GUARD + bytes + i] == 0x5a;
    return whole_guard && !memcmp(d->got + GUARD, d->sent + 3, bytes);
}

static void *run_direction(void *arg)
{
    struct direction *d = arg;
    size_t whole = MOST + 2 * GUARD;
    int device = d->from->spec.device >= 0 ? d->from->spec.device : d->to->spec.device;
    struct link *l = NULL;

    d->src = take(d->from, whole);
    d->dst = take(d->to, whole);
    d->sent = malloc(whole);
    d->got = malloc(whole);
    if (!d->src || !d->dst || device_stream_create(&d->stream, device, false) ||
        link_create(&l, d->kind, d->from, d->to, MOST, d->backward))
        d->faults = 1000;
    for (int round = 0; round < ROUNDS && d->faults < 1000; round++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            d->faults += !carry(d, l, sizes[i], round % 2 ? d->stream : NULL);
    link_destroy(l);
    device_stream_destroy(d->stream);
    drop(d->from, d->src);
    drop(d->to, d->dst);
    free(d->sent);
    free(d->got);
    return NULL;
}

static void both_ways(struct lane *a, struct lane *b, enum link_kind kind)
{
    struct direction there = {.from = a, .to = b, .kind = kind, .seed = 1};
    struct direction back = {
        .from = b, .to = a, .kind = kind, .seed = 2, .backward = true};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, run_direction, &there), 0);
    run_direction(&back);
    pthread_join(thread, NULL);
    if (there.faults || back.faults)
        fail_msg("link %s between %s and %s: %d faults there, %d back",
                 link_kind_name(kind), a->spec.name, b->spec.name, there.faults,
                 back.faults);
}

static void cuts_slices(void **state)
{
    struct device_info info;
    (void)state;

    assert_int_equal(device_query(&info, 0), 0);
    for (int n = 1; n <= 4; n *= 2) {
        struct device_slices *slices;
        void *streams[4];
        int sms[4], sum = 0;
        assert_int_equal(device_slices_create(&slices, 0, n, streams, sms), 0);
        for (int i = 0; i < n; i++) {
            assert_int_equal(sms[i], sms[0]);
            assert_non_null(streams[i]);
            sum += sms[i];
            for (int j = 0; j < i; j++)
                assert_ptr_not_equal(streams[i], streams[j]);
        }
        assert_true(sum <= info.sm_count);
        /* The hardware's granularity is 8 multiprocessors at most. */
        assert_true(sms[0] > info.sm_count / n - 8);
        if (info.sm_count == 132)
            assert_int_equal(sms[0], n == 1 ? 132 : n == 2 ? 64 : 32);
        device_slices_destroy(slices);
    }
}

static void refuses_too_many_slices(void **state)
{
    struct device_slices *slices;
    void **streams = calloc(1000, sizeof(*streams));
    int sms[1000];
    (void)state;

    assert_int_equal(device_slices_create(&slices, 0, 1000, streams, sms), -EINVAL);
    assert_int_equal(device_slices_create(&slices, 0, 0, streams, sms), -EINVAL);
    assert_int_equal(device_slices_create(&slices, device_count(), 1, streams, sms),
                     -ENODEV);
    free(streams);
}

/* Events order two streams, and their times add up. */
static void times_events(void **state)
{
    void *a, *b, *stream, *p, *q;
    double seconds;
    (void)state;

    assert_int_equal(device_stream_create(&stream, 0, false), 0);
    assert_int_equal(device_event_create(&a, 0, true), 0);
    assert_int_equal(device_event_create(&b, 0, true), 0);
    assert_int_equal(device_alloc(&p, 0, 64 << 20), 0);
    assert_int_equal(device_alloc(&q, 0, 64 << 20), 0);
    assert_int_equal(device_event_record(a, stream), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(device_copy(q, p, 64 << 20, stream), 0);
    assert_int_equal(device_event_record(b, stream), 0);
    assert_int_equal(device_event_sync(b), 0);
    assert_int_equal(device_event_query(b), 1);
    assert_int_equal(device_event_elapsed(&seconds, a, b), 0);
    assert_true(seconds > 1e-5 && seconds < 1);
    device_free(0, p);
    device_free(0, q);
    device_event_destroy(a);
    device_event_destroy(b);
    device_stream_destroy(stream);
}

static void refuses_memory_that_is_not_there(void **state)
{
    void *p = NULL;
    (void)state;
    assert_int_equal(device_alloc(&p, 0, (size_t)1 << 45), -ENOMEM);
    assert_int_equal(device_alloc(&p, 0, 256), 0);
    device_free(0, p);
}

static void joins_slices(void **state)
{
    struct lanes l;
    (void)state;

    open_lanes(&l, "cuda:0/4");
    both_ways(&l.lane[0], &l.lane[1], LINK_COPY);
    both_ways(&l.lane[1], &l.lane[2], LINK_HOST);
    both_ways(&l.lane[2], &l.lane[3], LINK_AUTO);
    if (link_nccl.enqueue)
        both_ways(&l.lane[3], &l.lane[0], LINK_NCCL);
    close_lanes(&l);
}

static void joins_gpus_and_processors(void **state)
{
    struct lanes gpu, cpu;
    int *cpus, n;
    char list[32];
    (void)state;

    assert_int_equal(place_cpus(place, &cpus, &n), 0);
    snprintf(list, sizeof(list), "cpu:%d", cpus[0]);
    free(cpus);
    open_lanes(&gpu, "cuda:0");
    open_lanes(&cpu, list);
    both_ways(&gpu.lane[0], &cpu.lane[0], LINK_HOST);
    both_ways(&gpu.lane[0], &cpu.lane[0], LINK_AUTO);
    close_lanes(&gpu);
    close_lanes(&cpu);
}

static void joins_gpus(void **state)
{
    struct lanes l;
    (void)state;

    if (device_count() < 2)
        skip();
    open_lanes(&l, "cuda:0,cuda:1");
    both_ways(&l.lane[0], &l.lane[1], LINK_COPY);
    both_ways(&l.lane[0], &l.lane[1], LINK_HOST);
    if (link_nccl.enqueue)
        both_ways(&l.lane[0], &l.lane[1], LINK_NCCL);
    close_lanes(&l);
}

static void ends_by_abort(void **state)
{
    struct lanes l;
    struct link *link;
    void *p;
    (void)state;

    if (!link_nccl.enqueue)
        skip();
    open_lanes(&l, "cuda:0/2");
    assert_int_equal(device_alloc(&p, 0, 512), 0);
    assert_int_equal(link_create(&link, LINK_NCCL, &l.lane[0], &l.lane[1], 256, false),
                     0);
    assert_int_equal(link_transfer(link, (char *)p + 256, p, 256, NULL), 0);
    link_abort(link);
    link_abort(link);
    assert_int_equal(link_transfer(link, (char *)p + 256, p, 256, NULL), -ECANCELED);
    link_destroy(link);
    device_free(0, p);
    close_lanes(&l);
}

static void measures(void **state)
{
    struct lanes l;
    (void)state;

    open_lanes(&l, "cuda:0/2");
    for (int kind = LINK_NCCL; kind < LINK_KIND_COUNT; kind++) {
        struct link *link;
        double small, large;
        if (!link_can_join(kind, &l.lane[0], &l.lane[1], NULL))
            continue;
        assert_int_equal(
            link_create(&link, kind, &l.lane[0], &l.lane[1], 64 << 20, false), 0);
        assert_int_equal(link_measure(link, place, &small, 4096, 50), 0);
        assert_int_equal(link_measure(link, place, &large, 64 << 20, 9), 0);
        assert_true(small > 0 && small < 1e-3);
        assert_true(large > small && large < 0.1);
        printf("link %s between slices: %.1f us, %.1f GB/s\n", link_kind_name(kind),
               small * 1e6, (64 << 20) / (large - small) * 1e-9);
        link_destroy(link);
    }
    close_lanes(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_slices),
        cmocka_unit_test(refuses_too_many_slices),
        cmocka_unit_test(times_events),
        cmocka_unit_test(refuses_memory_that_is_not_there),
        cmocka_unit_test(joins_slices),
        cmocka_unit_test(joins_gpus_and_processors),
        cmocka_unit_test(joins_gpus),
        cmocka_unit_test(ends_by_abort),
        cmocka_unit_test(measures),
    };

    if (!device_count())
        return TEST_SKIPPED;
    if (place_open(&place))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_close(place);
    return failed;
}
