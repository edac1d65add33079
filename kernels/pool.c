/* Fork-join over tiles. A worker that finds nothing to do spins for some microseconds,
 * because the next kernel usually comes at once, and then sleeps. */
#include "kernels/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_SECONDS 50e-6
#define SPIN_ROUND   32 /* pauses between two looks at the clock */

struct worker {
    struct cpu_pool *pool;
    pthread_t thread;
    int index;
};

struct cpu_pool {
    /* Number of the job in the upper half, tiles that nobody has taken in the lower. A
     * tile is taken by compare and swap, so that a late worker can never take one of a
     * job it has not seen. */
    _Atomic uint64_t left;
    _Atomic(pool_fn *)
        fn; /* of the job; these three stay while one of its tiles is not done */
    _Atomic(void *) arg;
    atomic_int tiles;
    atomic_int done;     /* tiles of the job that are finished */
    atomic_int sleepers; /* workers in pthread_cond_wait, or about to be */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int threads;            /* with the caller */
    struct worker worker[]; /* (threads - 1) */
};

static uint32_t job_of(uint64_t left)
{
    return (uint32_t)(left >> 32);
}

#if defined(__x86_64__)
static void cpu_relax(void)
{
    __builtin_ia32_pause();
}
#else
static void cpu_relax(void)
{
    sched_yield();
}
#endif

/* Takes tiles of the job until none is left. */
static void work(struct cpu_pool *pool, uint32_t job, int thread)
{
    uint64_t left = atomic_load(&pool->left);

    while (job_of(left) == job && (uint32_t)left > 0) {
        if (!atomic_compare_exchange_weak(&pool->left, &left, left - 1))
            continue;
        pool_fn *fn = atomic_load(&pool->fn);
        fn(atomic_load(&pool->arg), atomic_load(&pool->tiles) - (int)(uint32_t)left,
           thread);
        atomic_fetch_add(&pool->done, 1);
        left = atomic_load(&pool->left);
    }
}

static bool idle(struct cpu_pool *pool, uint32_t job)
{
    return job_of(atomic_load(&pool->left)) == job && !atomic_load(&pool->stop);
}

static void wait_for_job(struct cpu_pool *pool, uint32_t job)
{
    double until = time_now() + SPIN_SECONDS;

    while (time_now() < until) {
        for (int i = 0; i < SPIN_ROUND; i++) {
            if (!idle(pool, job))
                return;
            cpu_relax();
        }
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (idle(pool, job))
        pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct cpu_pool *pool = worker->pool;
    uint32_t job = 0;

    for (;;) {
        wait_for_job(pool, job);
        if (atomic_load(&pool->stop))
            return NULL;
        job = job_of(atomic_load(&pool->left));
        work(pool, job, worker->index);
    }
}

static void wake_sleepers(struct cpu_pool *pool)
{
    if (!atomic_load(&pool->sleepers))
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

void pool_run(struct cpu_pool *pool, pool_fn *fn, void *arg, int tiles)
{
    uint32_t job;
    int spins = 0;

    if (tiles == 1 || pool->threads == 1) {
        for (int i = 0; i < tiles; i++)
            fn(arg, i, 0);
        return;
    }
    if (tiles <= 0)
        return;
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->arg, arg);
    atomic_store(&pool->done, 0);
    atomic_store(&pool->tiles, tiles);
    job = job_of(atomic_load(&pool->left)) + 1;
    atomic_store(&pool->left, (uint64_t)job << 32 | (uint32_t)tiles);
    wake_sleepers(pool);
    work(pool, job, 0);
    while (atomic_load(&pool->done) < tiles) {
        if (++spins % 1024)
            cpu_relax();
        else
            sched_yield();
    }
}

/* Binding is a matter of speed alone: where it is refused the thread runs unbound. */
static void bind_thread(pthread_t thread, int cpu)
{
    cpu_set_t set;

    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        log_warn("processor %d cannot be bound to: a thread of its lane runs unbound",
                 cpu);
        return;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(thread, sizeof(set), &set))
        log_warn("binding to processor %d is not allowed: the thread runs unbound", cpu);
}

int pool_create(struct cpu_pool **out, int n_threads, const int *cpus)
{
    struct cpu_pool *pool;
    int err = 0;

    if (n_threads < 1)
        return -EINVAL;
    pool = calloc(1, sizeof(*pool) + (size_t)(n_threads - 1) * sizeof(pool->worker[0]));
    if (!pool)
        return -ENOMEM;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (pool->threads = 1; pool->threads < n_threads && !err; pool->threads += !err) {
        struct worker *worker = &pool->worker[pool->threads - 1];
        *worker = (struct worker){.pool = pool, .index = pool->threads};
        err = -pthread_create(&worker->thread, NULL, worker_main, worker);
        if (!err && cpus)
            bind_thread(worker->thread, cpus[pool->threads]);
    }
    if (err) {
        log_error("thread %d of %d of a CPU lane could not start: %s", pool->threads,
                  n_threads, strerror(-err));
        pool_destroy(pool);
        return err;
    }
    *out = pool;
    return 0;
}

void pool_destroy(struct cpu_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    wake_sleepers(pool);
    for (int i = 0; i < pool->threads - 1; i++)
        pthread_join(pool->worker[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

int pool_threads(const struct cpu_pool *pool)
{
    return pool->threads;
}
