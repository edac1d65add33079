/* The engine: walks a plan, makes every op a task on its lane's worker and every hop a transfer, and
 * keeps the times. It knows stages, lanes and links; not prompts or files of text. */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <pthread.h>

#include "runtime/events.h"
#include "runtime/lane.h"
#include "runtime/link.h"
#include "runtime/task.h"
#include "schedules/sched.h"
#include "stages/stage.h"

/* Buffers of hidden states per stage: one computed, one sent, one received. */
#define ENGINE_RING 3

enum engine_order { ORDER_STRICT, ORDER_PRIO };

struct engine_config {
    const struct model *model;
    struct place *place;
    struct lane_set *lanes;
    int n_stages;
    const struct stage_range *ranges; /* (n_stages) layers */
    const int *stage_lane;            /* (n_stages) */
    struct batch_limits limits;
    int groups; /* of sequences that decode together */
    enum link_kind link;
    enum engine_order order;
    double deadline; /* seconds without any op ending until the run is given up */
    void (*progress)(void *user, const char *what, double done); /* or NULL */
    void *user;
};

/* Hidden states on their way through a stage. Stages that follow each other on one lane share a ring. */
struct ring {
    void *x[ENGINE_RING]; /* (limits.rows, C) of the lane's type */
    struct task_data *data[ENGINE_RING];
};

struct engine {
    struct engine_config config;
    struct stage **stages; /* (n_stages) */
    struct ring *rings;    /* (n_stages); that of stage s is rings[ring_of[s]] */
    int *ring_of;
    struct link **links; /* (n_stages) into stage s; NULL from the same lane */
    struct link
        *tokens_link;      /* last stage's tokens to the first stage; NULL on one lane */
    struct task_data **kv; /* (n_stages, groups) */
    struct task_data **drawn; /* (groups) tokens at the last stage */
    struct task_data *
        *taken;            /* (groups) tokens at the first stage; the same on one lane */
    struct events *events; /* (lanes) */
    size_t *lane_bytes;    /* (lanes) predicted arena of a lane */
    size_t *predicted;     /* (n_stages) bytes by the dry run, before anything is taken */
    size_t *measured;      /* (n_stages) bytes really taken from the arena */
    unsigned long passes;  /* micro-batches submitted: the place in a ring */

    pthread_mutex_t lock; /* of what follows, and of steps */
    pthread_cond_t changed;
    unsigned long ended; /* ops that have ended, for the deadline */
    int failed;          /* first error as -errno; later ops do nothing */
    bool stalled;        /* the deadline passed: workers hang */

    /* Written by step_end. */
    double *busy;       /* (n_stages) seconds computing */
    double first, last; /* when the first op began, the last one ended; host clock */
};

struct op_task;

/* One plan in flight. */
struct step {
    struct engine *engine;
    const struct sched_plan *plan; /* borrowed */
    unsigned long pass;            /* of its first micro-batch */
    struct batch **batches;        /* (plan->micro_batches) borrowed */
    struct op_task *ops;           /* (n), in order of submission */
    int n, pending;
    int *waiting; /* (micro_batches) ops of the last stage still to come */
};

/* Lays stages out, predicts and takes the lanes' memory, binds the workers, makes the links, loads the
 * weights. StarPU runs and the lanes have their workers. One line for what does not fit, by how much. */
int engine_create(struct engine **out, const struct engine_config *config);
void engine_destroy(struct engine *e);

/* Submits every op of a plan. batches (plan->micro_batches) and what they point to live until step_end.
 * Several steps may be in flight: data orders them. */
int engine_step(struct engine *e, const struct sched_plan *plan, struct batch **batches,
                struct step **out);

/* Waits until the last stage is through with a micro-batch: its results are on the host. -ETIMEDOUT, after a line in
 * the plan's terms, if nothing moves for the deadline. The first error of any op. */
int step_wait(struct step *s, int micro_batch);

/* Waits for every op, adds its times to the engine's, frees the step. */
int step_end(struct step *s);

/* Records an error; ops that have not begun do nothing. */
void engine_fail(struct engine *e, int err);

/* One op and its task, for watch.c. */
struct op_task {
    struct task task;
    struct step *step;
    struct sched_op op;
    int lane;
    int slot;    /* in the ring */
    bool tokens; /* a transfer of tokens rather than of hidden states */
    bool ran, ended;
    void *event[2];    /* CUDA: begin and end on the device, or NULL */
    double begin, end; /* seconds on the host's clock */
};

/* Who waits for whom, in the plan's terms, into text. */
void watch_describe(char *text, size_t bytes, const struct step *s);

#endif
