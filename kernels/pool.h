/* The threads of one CPU lane: fork-join over numbered tiles. The caller takes part. */
#ifndef PENSTOCK_POOL_H
#define PENSTOCK_POOL_H

#include "kernels/base.h"

struct cpu_pool;

/* Work on one tile; thread is 0 (the caller) .. n_threads - 1 and picks scratch
 * memory. */
typedef void pool_fn(void *arg, int tile, int thread);

/* n_threads - 1 threads beside the caller. cpus (n_threads) or NULL: thread i is bound
 * to cpus[i]; the caller's own binding (cpus[0]) is left to who owns that thread.
 * -EINVAL, -ENOMEM, -EAGAIN. */
int pool_create(struct cpu_pool **pool, int n_threads, const int *cpus);
void pool_destroy(struct cpu_pool *pool);
int pool_threads(const struct cpu_pool *pool);

/* Runs fn for every tile in 0 .. tiles - 1 and returns when all are done. Tiles go to
 * whoever is free, so a result must not depend on the thread. One caller at a time. */
void pool_run(struct cpu_pool *pool, pool_fn *fn, void *arg, int tiles);

#endif
