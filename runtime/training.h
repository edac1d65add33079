/* A model on its lanes, ready to be trained: what penstock_grad and penstock_train share. */
#ifndef PENSTOCK_TRAINING_H
#define PENSTOCK_TRAINING_H

#include "runtime/machine.h"
#include "runtime/trainer.h"

struct training {
    struct machine machine;
    struct sched_plan plan;
    struct stage_range *ranges; /* (plan.stages) */
    struct trainer *trainer;
    int sequences, positions; /* most of a step, and the longest */
    enum recompute recompute;
    double deadline; /* seconds */

    /* The step's micro-batches on the host. */
    struct train_batch *batches; /* (plan.micro_batches) */
    struct train_batch **list;   /* the same, as the trainer takes them */
    uint8_t *slab;               /* (micro_batches, batch_bytes) */
    size_t batch_bytes;
    bool pinned;
    int64_t *pairs; /* (rows) work space of a sort */
};

/* Reads the model's files, makes the plan, checks it against the model and the lanes. sequences, positions: the most
 * that training_step will be given; a sequence of n tokens has n - 1 positions. One line for what is wrong. */
int training_open(struct training *t, const struct penstock_options *options,
                  const struct penstock_schedule *schedule, int sequences, int positions);
/* Starts the lanes, cuts and loads the model. */
int training_start(struct training *t, const struct penstock_options *options);
/* Not after -ETIMEDOUT: workers hang and may still use all of this. */
void training_close(struct training *t);

/* One step over n sequences of tokens, each of whose tokens predicts the next: cut into the plan's micro-batches as evenly as
 * possible, in order. loss: the mean over all real targets; gradients are added to what is there and not yet
 * joined (trainer_finish). */
int training_step(struct training *t, double *loss,
                  const struct penstock_prompt *sequences, int n);

/* After all steps whose gradients are summed: their 2-norm over all stages, as trainer_finish. -EDOM after a line that
 * names the op if it is not finite. */
int training_finish(struct training *t, double *grad_norm);

/* The loss of at most `sequences` sequences without a change to gradients or weights: its sum over their targets. */
int training_evaluate(struct training *t, double *sum, size_t *targets,
                      const struct penstock_prompt *sequences, int n);

/* Idle / (lanes x time) of what ran since engine_reset_times, and its time. */
double training_bubble(const struct training *t, double *seconds);

/* What the simulator makes of the plan with the mean times of ops, times (plan.stages), and hops that take none. */
int training_predict(const struct training *t, struct engine_times (*times)[ENGINE_KINDS],
                     double *bubble, double *seconds);

/* Stages as a report: lane, layers, bytes, busy. */
int training_report(const struct training *t, struct penstock_report *report);

#endif
