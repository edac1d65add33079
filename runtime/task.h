/* Tasks: ops and transfers as StarPU runs them. The only module that includes StarPU. */
#ifndef PENSTOCK_TASK_H
#define PENSTOCK_TASK_H

#include "runtime/lane.h"
#include "runtime/order.h"

/* Something that tasks read and write. Tasks that use it run in the order of their submission, readers
 * together. It carries the dependency, not the bytes. */
struct task_data;
int task_data_create(struct task_data **out);
void task_data_destroy(struct task_data *d);
/* Its order on the device, for tasks that run ahead. */
struct order *task_data_order(struct task_data *d);

struct task_use {
    struct task_data *data;
    bool write; /* or read and write */
};

struct task {
    /* Runs on the worker's thread. CPU: does the work. CUDA: enqueues it and, unless it runs ahead, makes `stream`, the
     * worker's own (a cudaStream_t), wait for it: the task is complete when the device is. */
    void (*run)(struct task *t, void *stream);
    /* Complete. On a worker's thread; must be short. The task may be freed here. */
    void (*done)(struct task *t);
    const char *name; /* static */
    int worker;
    bool ahead;   /* complete when enqueued; the device is ordered by task_data_order */
    bool ordered; /* starts in the order of submission among the worker's ordered tasks */
    int priority; /* of those that are ready, greater first */
};

/* Environment that CUDA and StarPU read when they start: call before any other use of them. */
void task_environment(const struct lane_spec *specs, int n);

/* Starts StarPU with a worker per lane and one for transfers per GPU. Before anything is made on a GPU: at its
 * first start on a machine StarPU measures the buses, and resets the GPUs when it has. One at a time per
 * process. */
int task_init(const struct lane_spec *specs, int n);
void task_fini(void);

/* Sets worker and transfer_worker of the lanes that these specs have become. */
int task_assign(struct lane *lanes, int n);

/* uses (n): what it reads and writes. -ENOMEM, -EIO, one line. */
int task_submit(struct task *t, const struct task_use *uses, int n);

/* Runs fn(arg) on a worker's thread and waits; its result. */
int task_call(int worker, int (*fn)(void *arg), void *arg);
/* The same on n workers at once; the first error. args: n of `stride` bytes. */
int task_call_all(const int *workers, int n, int (*fn)(void *arg), void *args,
                  size_t stride);

#endif
