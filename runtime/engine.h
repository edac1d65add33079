/* The engine: walks a plan, makes every op a task on its lane's worker and every hop a transfer, watches that
 * they move, and keeps their times. What an op does is told by infer_step.c and
 * trainer_step.c. */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <pthread.h>

#include "runtime/events.h"
#include "runtime/fault.h"
#include "runtime/lane.h"
#include "runtime/link.h"
#include "runtime/task.h"
#include "schedules/sched.h"

/* strict: ops of a lane start in the plan's order. prio: of those that are ready, the plan's first. free: any that is
 * ready. */
enum engine_order { ORDER_STRICT, ORDER_PRIO, ORDER_FREE };

#define ENGINE_KINDS   4 /* F, B, I, W: the ops that compute */
#define ENGINE_CREDITS 8 /* ops of a lane that are enqueued at once: launch queues must not fill */

/* Ops of one stage and kind that have ended. */
struct engine_times {
    double seconds; /* computing */
    long n;
};

struct step;
struct op_task;

/* Ends of a lane's last ops. */
struct credits {
    struct event *end[ENGINE_CREDITS]; /* held, or NULL */
    unsigned next;
};

struct engine {
    struct lane_set *lanes; /* borrowed */
    int n_stages;           /* of all copies of the weights */
    const int *stage_lane;  /* (n_stages) borrowed; as the plans have it */
    enum engine_order order;
    /* Tasks complete at enqueue, and events order the device: strict order, all lanes on GPUs. A hop then costs no
     * round trip over the host. */
    bool ahead;
    double deadline; /* seconds without any op ending until the run is given up */
    /* Submits an op of the plan, and before it the hop that it needs, by step_compute and step_transfer. */
    int (*submit)(struct step *s, struct sched_op op);
    /* Told of every op and hop that ran, with its times, when its step ends; NULL: nobody is. */
    void (*observe)(void *user, const struct op_task *o);
    void *observer;

    struct fault fault;    /* planted */
    bool search;           /* look at all that ops write: who gives what is not finite? */
    int priority;          /* of the next op: what is submitted earlier goes first */
    struct events *events; /* (lanes) */
    struct credits *credits; /* (lanes) */
    pthread_mutex_t lock;  /* of what follows, and of steps */
    pthread_cond_t changed;
    unsigned long ended; /* ops that have ended, for the deadline */
    int failed;          /* first error as -errno; later ops do nothing */
    bool stalled;        /* the deadline passed: workers hang */

    /* Written by step_end. */
    struct engine_times (*times)[ENGINE_KINDS]; /* (n_stages) */
    double first, last; /* when the first op began, the last one ended; host clock */
};

/* One plan in flight. */
struct step {
    struct engine *engine;
    const struct sched_plan *plan; /* borrowed */
    void *work;          /* what the plan's micro-batches are, for submit; borrowed */
    unsigned long pass;  /* number of its first micro-batch in the engine's life */
    struct op_task *ops; /* (n), in order of submission */
    int n, pending;
    int *waiting; /* (micro_batches) ops that give results and are still to come */
    /* Ahead: (lanes, 2) compute ops, and hops to the lane, that have not ended. */
    struct op_queue {
        struct op_task *head, *tail;
    } *flying;
};

/* An array on the op's lane. */
struct op_array {
    void *x; /* (n), or NULL */
    size_t n;
    enum dtype dtype;
};

/* An op or a hop, and its task. */
struct op_task {
    struct task task; /* first: a task's callbacks get the op by a cast */
    struct step *step;
    struct sched_op op;
    int place; /* which of the engine's stages it is of */
    int lane;
    int slot, grad_slot, in, out; /* buffers that it uses, as submit likes */
    bool results;             /* when it ends, the micro-batch has results on the host */
    struct op_array wrote[2]; /* what it computes, for fault.c */
    const char *hop;          /* a transfer: what is received, else NULL */
    int from;                 /* a transfer: the sending lane */
    struct link *link;        /* a transfer: over it */
    /* Does the op: on the CPU, or enqueued on the lane's stream or, by link_enqueue, on the link's. */
    int (*work)(struct op_task *o);
    struct task_use *uses; /* (n_uses) ahead: what it waits for on the device */
    int n_uses;
    struct op_task *next;   /* in step's flying */
    bool ran, ended;        /* ran: without an error; ended: on the device, too */
    bool enqueued;          /* its task is complete */
    struct event *event[2]; /* CUDA: begin and end on the device, held, or NULL */
    double begin, end;      /* seconds on the host's clock */
};

/* Lanes have their workers. -ENOMEM, -EINVAL for a PENSTOCK_FAULT that is none. */
int engine_init(struct engine *e, struct lane_set *lanes, int n_stages,
                const int *stage_lane, enum engine_order order, double deadline);
/* When what tasks used is destroyed. Not after a stall: hanging workers may still look at it. */
void engine_fini(struct engine *e);

struct lane *engine_lane(const struct engine *e, int stage);

/* Seconds that a stage computed. */
double engine_busy(const struct engine *e, int stage);
/* Forgets the times so far; no step is in flight. */
void engine_reset_times(struct engine *e);

/* Submits every op of a plan. The plan and work live until step_end. Several steps may be in flight: data orders
 * them. pass: number of the plan's first micro-batch. */
int engine_step(struct engine *e, const struct sched_plan *plan, void *work,
                unsigned long pass, struct step **out);

/* For submit: a new op of the step, to be filled in and handed to one of the two below. */
struct op_task *step_op(struct step *s, struct sched_op op);
/* Runs on the op's lane, timed. */
int step_compute(struct op_task *o, int (*work)(struct op_task *o),
                 const struct task_use *uses, int n);
/* Runs on the worker that moves bytes between the link's lanes: the GPU's own for transfers or, between CPU lanes, the
 * receiver, in its order. */
int step_transfer(struct op_task *o, const char *hop, struct link *link,
                  int (*work)(struct op_task *o), const struct task_use *uses, int n);

/* Waits until a micro-batch has its results. -ETIMEDOUT, after a line in the plan's terms, if nothing moves for the
 * deadline. The first error of any op. */
int step_wait(struct step *s, int micro_batch);

/* Waits for every op, adds its times to the engine's, frees the step. */
int step_end(struct step *s);

/* Records an error; ops that have not begun do nothing. Whether it is the first. */
bool engine_fail(struct engine *e, int err);

/* For step.c: what an op's task does. */
void engine_compute(struct task *t, void *stream);
void engine_transfer(struct task *t, void *stream);

/* Who waits for whom, in the plan's terms, into text (watch.c). */
void watch_describe(char *text, size_t bytes, const struct step *s);

#endif
