/* Training on the engine: stages with gradients and optimizer state, activations forward and gradients backward
 * from lane to lane, any checked plan. It knows micro-batches, not text.
 *
 * A plan of two copies of the weights gives the bits of any other, so its gradients are summed in the order of the
 * micro-batches too. A sum per copy, the two added at the end, would be another sum; and a micro-batch's gradient by
 * itself, added later, is not what a matrix product adds to a sum when it takes its rows in several pieces. So the
 * second copy puts off its W to the end of the step (sched_plan_late): then the first copy's sum, which is that of the
 * first half of the micro-batches, comes over, the second copy goes on with it, and sends it home. The first copy has
 * the optimizer's state; the second gets the new weights. */
#ifndef PENSTOCK_TRAINER_H
#define PENSTOCK_TRAINER_H

#include "runtime/engine.h"
#include "runtime/link.h"
#include "stages/train.h"

struct trainer_config {
    const struct model *model;
    struct place *place;
    struct lane_set *lanes;
    const struct sched_plan *plan; /* of every step; two copies: after sched_plan_late */
    const struct stage_range *ranges; /* (plan->stages) layers */
    int rows, segs,
        positions; /* most rows and sequences of a micro-batch, longest sequence */
    enum recompute recompute;
    enum link_kind link;
    enum engine_order order;
    double deadline; /* seconds, see struct engine */
    void (*progress)(void *user, const char *what, double done); /* or NULL */
    void *user;
};

/* Numbered buffers of a stage and which micro-batch has them, while a plan is being submitted. There are as many as
 * are in use at once in the order of submission, and one more, so that a hop can fill it meanwhile. Since a buffer is
 * taken after it was given back in that order, waiting for it cannot deadlock. */
struct buffer_pool {
    int n;
    int *queue, head, count; /* (n) free ones, longest free first */
    int *of;                 /* (micro_batches) what a micro-batch has, -1: none */
    struct task_data **data; /* (n) */
    void **x; /* (n)(rows, C) of the lane's type; NULL where the stage has them */
};

/* One stage and the buffers around it. */
struct trainer_stage {
    struct stage *stage;
    struct train_stage *train;
    struct buffer_pool slots; /* from F to B or W: train_stage's slots */
    struct buffer_pool grads; /* from I to W, or during B: its grad_slots */
    struct buffer_pool y;     /* its output, until the next stage's F */
    struct buffer_pool dx;  /* gradient of its input, until the previous stage's B or I */
    struct buffer_pool dy;  /* gradient of its output, received; not from the same lane */
    struct task_data *sums; /* its weights' gradients */
    bool splits;            /* some of its backward passes are I and W */
    bool second;            /* of the second copy of the weights */
    struct link *forward;   /* from the previous stage; NULL on its lane */
    struct link *backward;  /* from the next stage; NULL on its lane */
    struct link *out;       /* second: sums and weights from the first copy's stage */
    struct link *home;      /* second: sums to the first copy's stage */
    size_t predicted, measured; /* bytes */
};

struct trainer {
    struct engine engine; /* first: a step's engine is this */
    struct trainer_config config;
    struct trainer_stage *stages; /* (plan->copies, plan->stages) */
    size_t *lane_bytes;           /* (lanes) predicted arena of a lane */
    struct link *table_out,
        *table_in; /* the tied table's gradient: first stage to last, and back */
};

int trainer_create(struct trainer **out, const struct trainer_config *config);
void trainer_destroy(struct trainer *t);

/* Runs the plan over the micro-batches (plan->micro_batches); gradients are added to what is there. Waits. -EDOM,
 * without a line, if a loss is not finite: see trainer_search. */
int trainer_step(struct trainer *t, struct train_batch **batches);

/* After a loss or gradient that is not finite: runs the step again, looking at what every op computes, and says in one
 * line which is the first whose result is not finite. Gradients are lost. -EDOM. */
int trainer_search(struct trainer *t, struct train_batch **batches);

/* After all micro-batches of a step: joins the tied table's two gradients and gives the 2-norm of all. */
int trainer_finish(struct trainer *t, double *grad_norm);

/* AdamW on every stage; gradients become 0. */
int trainer_adamw(struct trainer *t, const struct kernel_adamw *p);

/* The second copy of the weights, if there is one, becomes what the first is. */
int trainer_share(struct trainer *t);

/* The stage that owns a weight: of a tied table the first. -1: none. */
int trainer_owner(const struct trainer *t, enum model_weight weight, size_t layer);

/* An array of a stage to the host: rows * cols floats of a weight's gradient or master weight. */
enum trainer_what { TRAINER_GRAD, TRAINER_WEIGHT, TRAINER_M, TRAINER_V };
int trainer_read(struct trainer *t, float *out, enum trainer_what what,
                 enum model_weight weight, size_t layer);
/* The same from the host, to every stage that has the weight. Weights of a lane that keeps them in less than fp32 stay
 * as they are until the next trainer_adamw: only their masters are written. */
int trainer_write(struct trainer *t, const float *values, enum trainer_what what,
                  enum model_weight weight, size_t layer);

/* How many buffers of each pool the plan uses at once: the pools' n, one more included. */
int trainer_count(struct trainer *t);

/* The engine's submit: an op of a plan as tasks (trainer_step.c). */
int trainer_submit(struct step *s, struct sched_op op);

/* Submits the whole plan. */
int trainer_begin(struct trainer *t, struct train_batch **batches, struct step **out);

/* The sums of gradients of the first copy's stage to that of the second, stages[place], enqueued. */
int trainer_send_sums(struct trainer *t, int place);
/* After a step: all second copies' sums, now complete, to the first. */
int trainer_return_sums(struct trainer *t);

#endif
