/* StarPU: one worker per lane and one per GPU for transfers; tasks carry a worker and, in strict order,
 * a place in its line. */
#include "runtime/task.h"

#include <errno.h>
#include <pthread.h>
#include <starpu.h>
#include <stdlib.h>
#include <string.h>

struct task_data {
    starpu_data_handle_t handle;
    struct order order;
};

/* The next place in line of every worker, since starpu_init. StarPU wants it strictly consecutive for the
 * worker's life, and there is one StarPU in a process. Written by the submitting thread alone. */
static unsigned worker_line[STARPU_NMAXWORKERS];

int task_data_create(struct task_data **out)
{
    struct task_data *d = malloc(sizeof(*d));
    if (!d)
        return log_no_memory("a task's data");
    starpu_void_data_register(&d->handle);
    order_init(&d->order);
    *out = d;
    return 0;
}

void task_data_destroy(struct task_data *d)
{
    if (!d)
        return;
    starpu_data_unregister(d->handle);
    order_fini(&d->order);
    free(d);
}

struct order *task_data_order(struct task_data *d)
{
    return &d->order;
}

/* Workers that a GPU needs: its lanes and one for transfers. */
static int workers_per_gpu(const struct lane_spec *specs, int n)
{
    int most = 1;
    for (int i = 0; i < n; i++)
        if (specs[i].kind == LANE_CUDA && specs[i].n_slices > most)
            most = specs[i].n_slices;
    return most + 1;
}

void task_environment(const struct lane_spec *specs, int n)
{
    char workers[16];
    snprintf(workers, sizeof(workers), "%d", workers_per_gpu(specs, n));
    setenv("STARPU_NWORKER_PER_CUDA", workers, 1);
    /* A stream that waits for an event holds back the others of its hardware queue: have enough. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("STARPU_CUDA_PIPELINE", "4", 0);
    /* Threads are bound by place.c. */
    setenv("STARPU_WORKERS_NOBIND", "1", 0);
    setenv("STARPU_MAIN_THREAD_BIND", "0", 0);
    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_CALIBRATE", "0", 0);
}

/* Which GPUs the lanes use, each once, in the order of the lanes. */
static int list_gpus(unsigned *gpus, const struct lane_spec *specs, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        bool seen = specs[i].kind != LANE_CUDA;
        for (int j = 0; j < count; j++)
            seen |= gpus[j] == (unsigned)specs[i].device;
        if (!seen && count < STARPU_MAXCUDADEVS)
            gpus[count++] = specs[i].device;
    }
    return count;
}

/* The k-th worker of a GPU, from 0; k < 0: its last one. */
static int gpu_worker(int device, int k)
{
    int found = 0, last = -1;
    for (unsigned i = 0; i < starpu_cuda_worker_get_count(); i++) {
        int w = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
        if (starpu_worker_get_devid(w) != device)
            continue;
        if (found++ == k)
            return w;
        last = w;
    }
    return k < 0 ? last : -1;
}

int task_assign(struct lane *lanes, int n)
{
    int cpu = 0;
    for (int i = 0; i < n; i++) {
        struct lane *l = &lanes[i];
        if (l->spec.kind == LANE_CPU) {
            l->worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, cpu++);
            l->transfer_worker = l->worker;
        } else {
            l->worker = gpu_worker(l->spec.device, l->spec.slice);
            l->transfer_worker = gpu_worker(l->spec.device, -1);
        }
        if (l->worker < 0) {
            log_error("lane %s: StarPU has no worker for it", l->spec.name);
            return -ENODEV;
        }
    }
    return 0;
}

int task_init(const struct lane_spec *specs, int n)
{
    struct starpu_conf conf;
    int cpus = 0;

    starpu_conf_init(&conf);
    for (int i = 0; i < n; i++)
        cpus += specs[i].kind == LANE_CPU;
    conf.precedence_over_environment_variables = 1;
    conf.sched_policy_name = "prio";
    conf.ncpus = cpus;
    conf.ncuda = list_gpus(conf.workers_cuda_gpuid, specs, n);
    conf.use_explicit_workers_cuda_gpuid = conf.ncuda > 0;
    conf.nopencl = 0;
    conf.catch_signals = 0;
    int err = starpu_init(&conf);
    if (err) {
        log_error("StarPU does not start with %d CPU lanes and %d GPUs: error %d", cpus,
                  conf.ncuda, err);
        return err == -ENODEV ? err : -EIO;
    }
    memset(worker_line, 0, sizeof(worker_line));
    return 0;
}

void task_fini(void)
{
    starpu_shutdown();
}

static void run_cpu(void *buffers[], void *arg)
{
    (void)buffers;
    struct task *t = arg;
    t->run(t, NULL);
}

#ifdef STARPU_USE_CUDA
static void run_cuda(void *buffers[], void *arg)
{
    (void)buffers;
    struct task *t = arg;
    t->run(t, starpu_cuda_get_local_stream());
}
#endif

static void on_done(void *arg)
{
    struct task *t = arg;
    t->done(t);
}

static struct starpu_codelet codelet = {
    .cpu_funcs = {run_cpu},
#ifdef STARPU_USE_CUDA
    .cuda_funcs = {run_cuda},
    .cuda_flags = {STARPU_CUDA_ASYNC},
#endif
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .name = "op",
};

/* Of tasks that are complete when they are enqueued. */
static struct starpu_codelet codelet_ahead = {
#ifdef STARPU_USE_CUDA
    .cuda_funcs = {run_cuda},
#endif
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .name = "op",
};

/* Hands the uses to StarPU, which frees the arrays with the task. */
static int set_uses(struct starpu_task *s, const struct task_use *uses, int n)
{
    if (n > STARPU_NMAXBUFS) {
        s->dyn_handles = malloc(n * sizeof(*s->dyn_handles));
        s->dyn_modes = malloc(n * sizeof(*s->dyn_modes));
        if (!s->dyn_handles || !s->dyn_modes)
            return -ENOMEM;
    }
    s->nbuffers = n;
    for (int i = 0; i < n; i++) {
        enum starpu_data_access_mode mode = STARPU_R;
        if (uses[i].write)
            mode = STARPU_RW;
        STARPU_TASK_SET_HANDLE(s, uses[i].data->handle, i);
        STARPU_TASK_SET_MODE(s, mode, i);
    }
    return 0;
}

int task_submit(struct task *t, const struct task_use *uses, int n)
{
    struct starpu_task *s = starpu_task_create();
    if (s)
        s->cl = t->ahead ? &codelet_ahead : &codelet;
    if (!s || set_uses(s, uses, n)) {
        if (s)
            starpu_task_destroy(s);
        return log_no_memory("a task");
    }
    s->cl_arg = t;
    s->name = t->name;
    s->callback_func = on_done;
    s->callback_arg = t;
    s->execute_on_a_specific_worker = 1;
    s->workerid = t->worker;
    s->priority = t->priority;
    if (t->ordered)
        s->workerorder = ++worker_line[t->worker];
    int err = starpu_task_submit(s);
    if (err) {
        log_error("StarPU refuses task %s on worker %d: error %d", t->name, t->worker,
                  err);
        s->destroy = 0;
        starpu_task_destroy(s);
        return -EIO;
    }
    return 0;
}

/* A call that somebody waits for. */
struct call {
    struct task task;
    int (*fn)(void *arg);
    void *arg;
    int result;
    struct calls *all;
};

struct calls {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int pending;
};

static void call_run(struct task *t, void *stream)
{
    struct call *c = (struct call *)t;
    (void)stream;
    c->result = c->fn(c->arg);
}

static void call_done(struct task *t)
{
    struct call *c = (struct call *)t;
    struct calls *all = c->all;
    pthread_mutex_lock(&all->lock);
    all->pending--;
    pthread_cond_signal(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

int task_call_all(const int *workers, int n, int (*fn)(void *arg), void *args,
                  size_t stride)
{
    struct calls all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, n};
    struct call *calls = calloc(n, sizeof(*calls));
    int err = 0;
    if (!calls)
        return log_no_memory("tasks");
    for (int i = 0; i < n; i++) {
        calls[i] = (struct call){
            .task = {.run = call_run,
                     .done = call_done,
                     .name = "call",
                     .worker = workers[i],
                     .ordered = true},
            .fn = fn,
            .arg = (char *)args + i * stride,
            .all = &all,
        };
        int refused = task_submit(&calls[i].task, NULL, 0);
        if (refused) {
            calls[i].result = refused;
            call_done(&calls[i].task);
        }
    }
    pthread_mutex_lock(&all.lock);
    while (all.pending)
        pthread_cond_wait(&all.changed, &all.lock);
    pthread_mutex_unlock(&all.lock);
    for (int i = 0; i < n && !err; i++)
        err = calls[i].result;
    free(calls);
    return err;
}

int task_call(int worker, int (*fn)(void *arg), void *arg)
{
    return task_call_all(&worker, 1, fn, arg, 0);
}
