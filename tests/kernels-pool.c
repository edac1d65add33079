/* The threads of CPU lanes: every tile once, several lanes at once. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "kernels/pool.h"
#include "tests/test.h"

#define TILES 97

struct count {
    atomic_int seen[TILES];
    int threads;
};

static void count_tile(void *arg, int tile, int thread)
{
    struct count *c = arg;

    if (thread < 0 || thread >= c->threads)
        fail_msg("thread %d of %d", thread, c->threads);
    atomic_fetch_add(&c->seen[tile], 1);
}

/* Many short jobs, with pauses in which the workers fall asleep. */
static void run_jobs(struct cpu_pool *pool, int jobs, bool pause)
{
    for (int i = 0; i < jobs; i++) {
        struct count c = {.threads = pool_threads(pool)};
        int tiles = i % (TILES + 1);
        pool_run(pool, count_tile, &c, tiles);
        for (int t = 0; t < TILES; t++)
            assert_int_equal(atomic_load(&c.seen[t]), t < tiles);
        if (pause && i % 16 == 0)
            usleep(300);
    }
}

static void test_tiles(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct cpu_pool *pool;
        assert_int_equal(pool_create(&pool, threads, NULL), 0);
        assert_int_equal(pool_threads(pool), threads);
        run_jobs(pool, 400, threads % 2);
        pool_destroy(pool);
    }
}

static void *lane_main(void *arg)
{
    run_jobs(arg, 1000, true);
    return NULL;
}

static void test_lanes(void **state)
{
    struct cpu_pool *pool[3];
    pthread_t lane[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pool_create(&pool[i], 2, NULL), 0);
        assert_int_equal(pthread_create(&lane[i], NULL, lane_main, pool[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(lane[i], NULL);
        pool_destroy(pool[i]);
    }
}

/* The first processor that this process may run on. */
static int first_cpu(void)
{
    cpu_set_t set;
    int cpu = 0;

    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(set), &set), 0);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    return cpu;
}

static void check_cpu(void *arg, int tile, int thread)
{
    cpu_set_t set;

    (void)tile;
    if (thread == 0) {
        usleep(1000);
        return;
    }
    pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
    if (CPU_COUNT(&set) == 1 && CPU_ISSET(*(int *)arg, &set))
        return;
    fail_msg("thread %d is not bound to processor %d", thread, *(int *)arg);
}

static void test_binding(void **state)
{
    int cpu = first_cpu();
    const int cpus[] = {cpu, cpu};
    struct cpu_pool *pool;

    (void)state;
    assert_int_equal(pool_create(&pool, 2, cpus), 0);
    pool_run(pool, check_cpu, &cpu, 20);
    pool_destroy(pool);
}

static void test_invalid(void **state)
{
    struct cpu_pool *pool;

    (void)state;
    assert_int_equal(pool_create(&pool, 0, NULL), -EINVAL);
    assert_int_equal(pool_create(&pool, -3, NULL), -EINVAL);
    pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_invalid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
